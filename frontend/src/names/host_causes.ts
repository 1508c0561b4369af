/** What the host does in a step: words and colours, those of idle causes where they mean the same. */
import type { HostCause } from '../api/types';
import { CAUSES, type Look } from './idle_causes';

export const HOST_CAUSES: Record<HostCause, Look> = {
  python: ['Python', 'var(--phase-cache)', 'Your functions'],
  library: ['Python of libraries', 'var(--cat-gemm)', 'Functions of libraries, torch’s among them'],
  operator: ['operators', 'var(--cat-convolution)', 'On the way to a launch, inside of an operator'],
  graph: ['compiled graphs', 'var(--cat-cpp)', 'Between the launches of compiled graphs'],
  guards: ['guards', CAUSES.guards_wrapper[1], 'Cache lookups of compiled regions'],
  wrappers: ['wrappers', 'var(--cat-triton_persistent_reduction)', 'Around the graphs of compiled regions'],
  compile: CAUSES.compile,
  autotuning: [
    'autotuning',
    'var(--phase-autotune)',
    'The compiler benchmarks the kernels that it chooses from',
  ],
  garbage: ['garbage collection', 'var(--bad)', 'Python collects garbage'],
  data_loading: CAUSES.data_loading,
  communication: ['communication', 'var(--cat-communication)', CAUSES.communication_wait[2]],
  optimizer: ['optimizer', 'var(--cat-attention)', 'In the optimizer, outside of its operators'],
  label: ['labelled code', 'var(--cat-triton_foreach)', 'Inside of a label, outside of operators'],
  launch: ['launch calls', CAUSES.launch_call[1], 'Own time of calls that launch work'],
  synchronise: ['synchronisation calls', 'var(--cat-normalization)', 'Own time of calls that wait'],
  waiting: ['waiting for the GPU', CAUSES.synchronise[1], 'Calls that wait until the GPU is done'],
  memory_copy: ['copy calls', 'var(--cat-memcpy)', 'Own time of calls that copy or fill memory'],
  allocation: ['allocation', 'var(--cat-triton_template)', 'Asking the driver for memory'],
  module_load: ['loading code', 'var(--cat-triton_user)', 'Loading kernels onto the GPU'],
  graph_capture: ['graph capture', 'var(--cat-triton_reduction)', 'Recording CUDA graphs'],
  query: ['other calls', 'var(--phase-other)', 'Other calls into the runtime or driver'],
  nothing: ['nothing recorded', 'var(--idle)', 'Nothing was recorded on the thread'],
  gpu_clock: [
    'longer on the GPU',
    'var(--line-strong)',
    'By how much the step is longer on the GPU’s clock: the host runs ahead, or steps differ',
  ],
};
