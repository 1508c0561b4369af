/** Why a GPU idles, what the host does and why a rank is late: words and colours, the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { HostCause, HostKind, IdleReason } from '../api/types';
import { graphName } from './compile_ids';

export type Look = [label: string, color: string];

const look = (kind: HostKind, label: string = kind.replaceAll('_', ' ')): Look => [
  label,
  `var(--host-${kind})`,
];

/** What the host does, also while a GPU idles: eager and compiled code share these kinds. */
export const HOST_KINDS: Record<HostKind, Look> = {
  compiling: look('compiling'),
  waiting_for_ranks: look('waiting_for_ranks'),
  waiting_for_gpu: look('waiting_for_gpu', 'waiting for the GPU'),
  data_loading: look('data_loading'),
  guards: look('guards'),
  kernel_launches: look('kernel_launches'),
  compiled_graph: look('compiled_graph'),
  graph_breaks: look('graph_breaks'),
  eager_operators: look('eager_operators'),
  python: look('python', 'Python'),
  unaccounted: look('unaccounted'),
};

export const isHostKind = (part: string): part is HostKind => Object.hasOwn(HOST_KINDS, part);

export const hostKindHelp = (kind: HostKind): string => meaningOf('host_kinds', kind);

/** What the host does in a step, in more detail: each has the colour of its kind. */
export const HOST_CAUSES: Record<HostCause, Look> = {
  ...HOST_KINDS,
  library: look('python', 'library Python'),
  label: look('python', 'labeled code'),
  garbage: look('python', 'garbage collection'),
  operator: look('eager_operators', 'operators'),
  optimizer: look('eager_operators', 'optimizer'),
  graph: look('compiled_graph', 'compiled graphs'),
  wrappers: look('guards', 'wrappers'),
  compile: look('compiling'),
  autotuning: look('compiling', 'autotuning'),
  communication: look('waiting_for_ranks', 'communication'),
  launch: look('kernel_launches', 'launch calls'),
  memory_copy: look('kernel_launches', 'copy calls'),
  allocation: look('kernel_launches', 'allocation'),
  module_load: look('kernel_launches', 'loading code'),
  graph_capture: look('kernel_launches', 'graph capture'),
  query: look('kernel_launches', 'other calls'),
  synchronise: look('waiting_for_gpu', 'synchronization calls'),
  waiting: look('waiting_for_gpu', 'waiting for the GPU'),
  nothing: look('unaccounted', 'nothing recorded'),
  gpu_clock: ['longer on the GPU', 'var(--line-strong)'],
  // Why the GPU of a rank is late.
  slower_kernels: ['slower kernels', 'var(--measure)'],
  more_work: ['more work', 'var(--measure)'],
};

export const hostHelp = (cause: HostCause): string => meaningOf('host_causes', cause);

/** The label of any cause; other words as they are. */
export const causeLabel = (cause: string): string =>
  Object.hasOwn(HOST_CAUSES, cause) ? HOST_CAUSES[cause as HostCause][0] : cause.replaceAll('_', ' ');

/** Why a GPU was idle: its key in tables and its name. */
export const idleReasonKey = (r: IdleReason) => [r.device, r.cause, r.name, r.file, r.line].join(',');
export const idleReasonName = (r: IdleReason) => (r.name ? graphName(r.name) : causeLabel(r.cause));
