/** Where what the host does is listed. */
import type { HostCause, LateCause, Panel } from '../api/types';
import type { HashChange } from '../host/nav.svelte';
import { toIdle, withShift } from './part_places';
import { NAME_IN_ADDRESS, toPanel, toSlices } from './places';

/** The panels that list what the host does, and their tables: of the rest the slices of that name are the list. */
const HOST_LISTS: Partial<Record<HostCause | LateCause, [panel: Panel, table?: string]>> = {
  python: ['python', 'functions'],
  library: ['python', 'functions'],
  operator: ['operators', 'operators'],
  optimizer: ['operators', 'operators'],
  graph: ['compiled_regions'],
  guards: ['compiled_regions'],
  wrappers: ['compiled_regions'],
  compile: ['compile_time'],
  autotuning: ['compile_time'],
  gpu_clock: ['step_breakdown'],
  slower_kernels: ['kernels', 'kernels'],
  more_work: ['kernels', 'kernels'],
};
const IDLE: Partial<Record<HostCause | LateCause, string>> = {
  waiting: 'synchronise',
  synchronise: 'synchronise',
  nothing: 'nothing_launched',
  launch: 'launch_call',
  data_loading: 'data_loading',
  communication: 'communication_wait',
};

/** What the host did, by its cause and, where it is known, its name. */
export function toHostCause(cause: HostCause | LateCause, name: string, event: Event): HashChange {
  const [panel, table] = HOST_LISTS[cause] ?? [];
  if (name && (!panel || withShift(event))) return toSlices(name.slice(0, NAME_IN_ADDRESS));
  if (!panel) return { ...toIdle(IDLE[cause] ?? 'python'), then: withShift(event) ? 'timeline' : null };
  return {
    ...toPanel(panel),
    ...(table && name ? { [`search.${table}`]: name.slice(0, NAME_IN_ADDRESS) } : {}),
  };
}
