/** How the server lays out the rows of its answers as tables. Fetched when the first table needs it. */
import { Resource } from './resource.svelte';
import type { SheetTable } from './types';

const layouts = new Resource('sheets');
let isRequested = false;

/** The layouts of all answers with their states, to be shown while they are not there. */
export function askForLayouts(): Resource<'sheets'> {
  if (!isRequested || layouts.error) {
    isRequested = true;
    void layouts.ask({});
  }
  return layouts;
}

/** The tables of an answer, in the order of its fields. */
export const layoutsOf = (answer: string): SheetTable[] => layouts.value?.sheets[answer] ?? [];

/** One table of an answer; "late.causes" is that of the rows within the rows of `late`. */
export function layoutOf(answer: string, field: string): SheetTable | undefined {
  const [outer, within] = field.split('.');
  const table = layoutsOf(answer).find(({ rows }) => rows === outer);
  return within ? table?.inner.find(({ rows }) => rows === within) : table;
}
