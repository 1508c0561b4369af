/** Where the parts of pictures lead: a part is a door to the list that it is the sum of. With Shift: to the timeline. */
import type { Phase } from '../api/types';
import type { HashChange } from '../host/nav.svelte';
import { isCategory } from '../names/categories';
import { CAUSES } from '../names/idle_causes';
import { toCategory, toPanel } from './places';

export const withShift = (event: Event): boolean => 'shiftKey' in event && event.shiftKey === true;

const LISTS: Record<string, HashChange> = {
  busy: toCategory(null),
  compute: toCategory(null),
  communication: toCategory('communication'),
  memory: toCategory('memcpy'),
  idle: toPanel('gpu_utilization'),
  compiled_graph: toPanel('compiled_regions'),
};

export const toIdle = (cause: string): HashChange => ({ panel: 'gpu_utilization', row: `idle:${cause}` });

/** key: of a part ("gpu gemm", "idle python", "compute"). */
export function toPart(key: string, event: Event): HashChange {
  const [, kind, part] = /^(?:(\w+) )?(\w+)$/.exec(key)!;
  if (kind === 'host') return toPanel(part === 'compiled_graph' ? 'compiled_regions' : 'operators');
  const then = withShift(event) ? 'timeline' : null;
  if (part! in CAUSES) return { ...toIdle(part!), then };
  return { ...(isCategory(part!) ? toCategory(part) : LISTS[part!]), then };
}

/** The compilations by what they took in a phase. */
export const toPhase = (phase: Phase): HashChange => ({ panel: 'compile_time', row: `phase:${phase}` });
