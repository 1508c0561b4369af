/** Where the parts of pictures lead: a part is a door to the list that it is the sum of. */
import type { HashChange } from '../host/nav.svelte';
import { isCategory } from '../names/categories';
import { CAUSES } from '../names/idle_causes';
import { toCategory, toPanel } from './places';

const BUSY: Record<string, HashChange> = {
  compute: toCategory(null),
  communication: toCategory('communication'),
  memory: toCategory('memcpy'),
  compiled_graph: toPanel('compiled_regions'),
};

/** key: of a part ("gpu gemm", "idle python", "compute"). With Shift: its longest on the timeline. */
export function toPart(key: string, event: Event): HashChange {
  const part = key.slice(key.indexOf(' ') + 1);
  const then = withShift(event) ? 'timeline' : null;
  if (part in CAUSES) return { panel: 'gpu_utilization', row: `idle:${part}`, then };
  return { ...(isCategory(part) ? toCategory(part) : BUSY[part]), then };
}

export const withShift = (event: Event): boolean => 'shiftKey' in event && event.shiftKey === true;
