/** Why a rank comes late: words and colours, those of the host's causes where they mean the same. */
import type { LateCause } from '../api/types';
import { HOST_CAUSES } from './host_causes';
import type { Look } from './idle_causes';

export const LATE_CAUSES: Record<LateCause, Look> = {
  ...HOST_CAUSES,
  slower_kernels: ['slower kernels', 'var(--cat-gemm)'],
  more_work: ['more work', 'var(--cat-attention)'],
};
