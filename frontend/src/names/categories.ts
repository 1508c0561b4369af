import { meaningOf } from '../api/meanings.svelte';
import type { Category } from '../api/types';

/** Kernel categories. Each has one colour everywhere: `app.css` holds both themes. */
export const CATEGORIES: Record<Category, string> = {
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
  normalization: 'Normalization',
  communication: 'Communication',
  memcpy: 'Memory copy',
  memset: 'Memory set',
  aten: 'ATen',
  other: 'Other',
};

export const isCategory = (text: string): text is Category => Object.hasOwn(CATEGORIES, text);
export const categoryLabel = (category: Category): string => CATEGORIES[category];
export const categoryHelp = (category: Category): string => meaningOf('kernel_categories', category);
export const categoryColor = (category: Category): string => `var(--cat-${category})`;

export function deviceLabel(device: number | 'cpu'): string {
  return device === 'cpu' ? 'CPU' : `GPU ${device}`;
}
