/** What the host does in a step: words and colours, those of idle causes where they mean the same. */
import { meaningOf } from '../api/meanings.svelte';
import type { HostCause, LateCause } from '../api/types';
import { CAUSES, type Look } from './idle_causes';

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
