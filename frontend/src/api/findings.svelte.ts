/** Findings without those that the user switched off. The choice is personal, so it is kept in the browser. */
import { data } from './data.svelte';
import type { Finding } from './types';

const KEY = 'torch_compile.findings_off';

/** "run rule" → why it is switched off there. */
let off = $state.raw<Record<string, string>>(read());

function read(): Record<string, string> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return stored && typeof stored === 'object' ? (stored as Record<string, string>) : {};
  } catch {
    // Storage can be forbidden or hold what an older version wrote.
    return {};
  }
}

const keyOf = (finding: Finding) => `${data.selection.run?.run ?? ''} ${finding.rule}`;

export const reasonOff = (finding: Finding): string | undefined => off[keyOf(finding)];

/** With a reason the rule is off for this run; with null it is on again. */
export function switchOff(finding: Finding, reason: string | null): void {
  const others = Object.entries(off).filter(([key]) => key !== keyOf(finding));
  off = Object.fromEntries(reason === null ? others : [...others, [keyOf(finding), reason]]);
  try {
    localStorage.setItem(KEY, JSON.stringify(off));
  } catch {
    // Then it lasts until the page is closed.
  }
}

/** Whether all of the selected span was read. If not, the missing part may hold a finding. */
export const isWhole = (): boolean => !data.span.value?.warnings.length;

export const nothingFound = (): string =>
  isWhole() ? 'Nothing to change was found' : 'Nothing to change was found in what could be read';

/** null while nothing is known. */
export function findingsOn(): Finding[] | null {
  return data.findingsHere?.findings.filter((finding) => reasonOff(finding) === undefined) ?? null;
}
