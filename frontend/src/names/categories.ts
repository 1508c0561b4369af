import type { Category } from '../api/types';

/** Kernel categories. Each has one colour everywhere: `app.css` holds both themes. */
export const CATEGORIES: Record<Category, [label: string, help: string]> = {
  triton_pointwise: ['Triton pointwise', 'Element-wise kernels that inductor generated (triton_poi_…)'],
  triton_reduction: [
    'Triton reduction',
    'Reductions that inductor generated as a loop over the reduced dimension (triton_red_…)',
  ],
  triton_persistent_reduction: [
    'Triton persistent reduction',
    'Reductions that inductor generated to hold a whole row in registers (triton_per_…)',
  ],
  triton_split_scan: ['Triton split scan', 'Scans that inductor split over several blocks (triton_spl_…)'],
  triton_foreach: ['Triton foreach', 'One kernel over many tensors, as optimizers use it (triton_for_…)'],
  triton_template: [
    'Triton template',
    'Matrix products and convolutions from inductor’s Triton templates (triton_tem_…)',
  ],
  triton_other: ['Triton, other', 'Other Triton kernels that inductor defined'],
  triton_user: ['Triton, user-written', 'Triton kernels that the user wrote'],
  cpp: ['C++', 'C++ kernels that inductor generated for the CPU (cpp_fused_…)'],
  gemm: ['GEMM', 'Matrix products of a library (cuBLAS, CUTLASS, hipBLASLt …)'],
  convolution: ['Convolution', 'Convolutions of a library (cuDNN, MIOpen …)'],
  attention: ['Attention', 'Attention kernels of a library (FlashAttention, cuDNN …)'],
  normalization: [
    'Normalization',
    'Batch, layer, group and RMS norm of a library or of PyTorch (cuDNN, ATen, MIOpen …)',
  ],
  communication: ['Communication', 'Collectives (NCCL, RCCL)'],
  memcpy: ['Memory copy', 'Copies between host and device or within a device'],
  memset: ['Memory set', 'Fills of device memory'],
  aten: ['ATen', 'PyTorch’s own kernels (at::native …)'],
  other: ['Other', 'Kernels that no rule of the category table names'],
};

export const isCategory = (text: string): text is Category => Object.hasOwn(CATEGORIES, text);
export const categoryLabel = (category: Category): string => CATEGORIES[category][0];
export const categoryHelp = (category: Category): string => CATEGORIES[category][1];
export const categoryColor = (category: Category): string => `var(--cat-${category})`;

export function deviceLabel(device: number | 'cpu'): string {
  return device === 'cpu' ? 'CPU' : `GPU ${device}`;
}
