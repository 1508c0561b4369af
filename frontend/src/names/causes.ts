/** Why a GPU idles, what the host does and why a rank is late: words and colours, the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { HostCause, HostKind, LateCause, IdleReason } from '../api/types';
import { graphName } from './kernel_names';

export type Look = [label: string, color: string];

/** What the host does, also while a GPU idles: eager and compiled code share these kinds. A moment has the first one. */
export const HOST_KINDS: Record<HostKind, Look> = {
  compiling: ['compiling', 'var(--phase-inductor)'],
  waiting_for_ranks: ['waiting for ranks', 'var(--cat-communication)'],
  waiting_for_gpu: ['waiting for the GPU', 'var(--phase-aot_autograd)'],
  data_loading: ['data loading', 'var(--phase-triton)'],
  guards: ['guards', 'var(--phase-dynamo)'],
  kernel_launches: ['kernel launches', 'var(--phase-autotune)'],
  compiled_graph: ['compiled graph', 'var(--cat-cpp)'],
  graph_breaks: ['graph breaks', 'var(--cat-triton_user)'],
  eager_operators: ['eager operators', 'var(--warn-line)'],
  python: ['Python', 'var(--phase-cache)'],
  unaccounted: ['unaccounted', 'var(--idle)'],
};

export const isHostKind = (part: string): part is HostKind => part in HOST_KINDS;

export const hostKindLabel = (kind: HostKind): string => HOST_KINDS[kind][0];
export const hostKindHelp = (kind: HostKind): string => meaningOf('host_kinds', kind);

/** What the host does in a step: words and colours, those of `HOST_KINDS` where they mean the same. */
export const HOST_CAUSES: Record<HostCause, Look> = {
  python: ['Python', 'var(--phase-cache)'],
  library: ['Python of libraries', 'var(--cat-gemm)'],
  operator: ['operators', 'var(--cat-convolution)'],
  graph: ['compiled graphs', 'var(--cat-cpp)'],
  guards: ['guards', HOST_KINDS.guards[1]],
  wrappers: ['wrappers', 'var(--cat-triton_persistent_reduction)'],
  compile: HOST_KINDS.compiling,
  autotuning: ['autotuning', 'var(--phase-autotune)'],
  garbage: ['garbage collection', 'var(--bad)'],
  data_loading: HOST_KINDS.data_loading,
  communication: ['communication', 'var(--cat-communication)'],
  optimizer: ['optimizer', 'var(--cat-attention)'],
  label: ['labelled code', 'var(--cat-triton_foreach)'],
  launch: ['launch calls', HOST_KINDS.kernel_launches[1]],
  synchronise: ['synchronisation calls', 'var(--cat-normalization)'],
  waiting: ['waiting for the GPU', HOST_KINDS.waiting_for_gpu[1]],
  memory_copy: ['copy calls', 'var(--cat-memcpy)'],
  allocation: ['allocation', 'var(--cat-triton_template)'],
  module_load: ['loading code', 'var(--cat-triton_user)'],
  graph_capture: ['graph capture', 'var(--cat-triton_reduction)'],
  query: ['other calls', 'var(--phase-other)'],
  nothing: ['nothing recorded', 'var(--idle)'],
  gpu_clock: ['longer on the GPU', 'var(--line-strong)'],
};

export const hostHelp = (cause: HostCause | LateCause): string => meaningOf('host_causes', cause);

/** Why a rank is late: words and colours, those of the host's causes where they mean the same. */
export const LATE_CAUSES: Record<LateCause, Look> = {
  ...HOST_CAUSES,
  slower_kernels: ['slower kernels', 'var(--cat-gemm)'],
  more_work: ['more work', 'var(--cat-attention)'],
};

/** What held a GPU up: its key in tables and its name. */
export const idleReasonKey = (r: IdleReason) => [r.device, r.cause, r.name, r.file, r.line].join(',');
export const idleReasonName = (r: IdleReason) => (r.name ? graphName(r.name) : HOST_CAUSES[r.cause][0]);
