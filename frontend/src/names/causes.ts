/** Why a GPU idles, what the host does and why a rank is late: words and colours, the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { Cause, HostCause, HostKind, LateCause, HeldUp } from '../api/types';
import { graphName } from './kernel_names';

export type Look = [label: string, color: string];

/** Causes of idle time: a moment has the first one that holds. */
export const CAUSES: Record<Cause, Look> = {
  compile: ['compile', 'var(--phase-inductor)'],
  communication_wait: ['communication wait', 'var(--cat-communication)'],
  synchronise: ['synchronise', 'var(--phase-aot_autograd)'],
  data_loading: ['data loading', 'var(--phase-triton)'],
  guards_wrapper: ['guards and wrapper', 'var(--phase-dynamo)'],
  break_eager: ['break or eager op', 'var(--warn-line)'],
  launch_call: ['operators, launching', 'var(--phase-autotune)'],
  python: ['Python', 'var(--phase-cache)'],
  nothing_launched: ['nothing launched', 'var(--idle)'],
};

/** What the host does, by causes that eager and compiled code share; each with the cause of idle time to look at. */
export const HOST_KINDS: Record<HostKind, [...Look, idle: Cause]> = {
  compiling: ['compiling', CAUSES.compile[1], 'compile'],
  waiting_for_ranks: ['waiting for ranks', CAUSES.communication_wait[1], 'communication_wait'],
  waiting_for_gpu: ['waiting for the GPU', CAUSES.synchronise[1], 'synchronise'],
  data_loading: ['data loading', CAUSES.data_loading[1], 'data_loading'],
  guards: ['guards', CAUSES.guards_wrapper[1], 'guards_wrapper'],
  kernel_launches: ['kernel launches', CAUSES.launch_call[1], 'launch_call'],
  compiled_graph: ['compiled graph', 'var(--cat-cpp)', 'launch_call'],
  graph_breaks: ['graph breaks', 'var(--cat-triton_user)', 'break_eager'],
  eager_operators: ['eager operators', CAUSES.break_eager[1], 'break_eager'],
  python: ['Python', CAUSES.python[1], 'python'],
  unaccounted: ['unaccounted', CAUSES.nothing_launched[1], 'nothing_launched'],
};

export const isHostKind = (part: string): part is HostKind => part in HOST_KINDS;

export const kindHelp = (kind: HostKind): string => meaningOf('host_kinds', kind);

export const causeLabel = (cause: Cause): string => CAUSES[cause][0];
export const causeHelp = (cause: Cause): string => meaningOf('idle_causes', cause);

/** What the host does in a step: words and colours, those of idle causes where they mean the same. */
export const HOST_CAUSES: Record<HostCause, Look> = {
  python: ['Python', 'var(--phase-cache)'],
  library: ['Python of libraries', 'var(--cat-gemm)'],
  operator: ['operators', 'var(--cat-convolution)'],
  graph: ['compiled graphs', 'var(--cat-cpp)'],
  guards: ['guards', CAUSES.guards_wrapper[1]],
  wrappers: ['wrappers', 'var(--cat-triton_persistent_reduction)'],
  compile: CAUSES.compile,
  autotuning: ['autotuning', 'var(--phase-autotune)'],
  garbage: ['garbage collection', 'var(--bad)'],
  data_loading: CAUSES.data_loading,
  communication: ['communication', 'var(--cat-communication)'],
  optimizer: ['optimizer', 'var(--cat-attention)'],
  label: ['labelled code', 'var(--cat-triton_foreach)'],
  launch: ['launch calls', CAUSES.launch_call[1]],
  synchronise: ['synchronisation calls', 'var(--cat-normalization)'],
  waiting: ['waiting for the GPU', CAUSES.synchronise[1]],
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
export const heldUpKey = (r: HeldUp) => [r.device, r.cause, r.name, r.file, r.line].join(',');
export const heldUpName = (r: HeldUp) => (r.name ? graphName(r.name) : HOST_CAUSES[r.cause][0]);
