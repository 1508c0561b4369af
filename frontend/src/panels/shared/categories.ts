/** Kernel categories: their names for people, and one colour each everywhere (`app.css` holds both themes). */
const LABELS: Record<string, string> = {
  triton_pointwise: 'Triton pointwise',
  triton_reduction: 'Triton reduction',
  triton_persistent_reduction: 'Triton persistent reduction',
  triton_split_scan: 'Triton split scan',
  triton_foreach: 'Triton foreach',
  triton_template: 'Triton template',
  triton_other: 'Triton, other',
  triton_user: 'Triton, user-written',
  cpp: 'C++',
  gemm: 'GEMM',
  convolution: 'Convolution',
  attention: 'Attention',
  communication: 'Communication',
  memcpy: 'Memory copy',
  memset: 'Memory set',
  aten: 'ATen',
  other: 'Other',
};

const EXPLAINED: Record<string, string> = {
  triton_pointwise: 'Element-wise kernels that inductor generated (triton_poi_…)',
  triton_reduction: 'Reductions that inductor generated as a loop over the reduced dimension (triton_red_…)',
  triton_persistent_reduction:
    'Reductions that inductor generated to hold a whole row in registers (triton_per_…)',
  triton_split_scan: 'Scans that inductor split over several blocks (triton_spl_…)',
  triton_foreach: 'One kernel over many tensors, as optimizers use it (triton_for_…)',
  triton_template: 'Matrix products and convolutions from inductor’s Triton templates (triton_tem_…)',
  triton_other: 'Other Triton kernels that inductor defined',
  triton_user: 'Triton kernels that the user wrote',
  cpp: 'C++ kernels that inductor generated for the CPU (cpp_fused_…)',
  gemm: 'Matrix products of a library (cuBLAS, CUTLASS, hipBLASLt …)',
  convolution: 'Convolutions of a library (cuDNN, MIOpen …)',
  attention: 'Attention kernels of a library (FlashAttention, cuDNN …)',
  communication: 'Collectives (NCCL, RCCL)',
  memcpy: 'Copies between host and device or within a device',
  memset: 'Fills of device memory',
  aten: 'PyTorch’s own kernels (at::native …)',
  other: 'Kernels that no rule of the category table names',
};

/** "triton_pointwise" → "Triton pointwise"; a category of a newer server is shown by its own name. */
export function categoryLabel(category: string): string {
  return LABELS[category] ?? category.replaceAll('_', ' ');
}

export function categoryHelp(category: string): string {
  return EXPLAINED[category] ?? '';
}

export function categoryColor(category: string): string {
  return `var(--cat-${LABELS[category] ? category : 'other'})`;
}

export function deviceLabel(device: number | 'cpu'): string {
  return device === 'cpu' ? 'CPU' : `GPU ${device}`;
}
