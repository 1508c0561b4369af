/** The table of kernel categories. */
import type { KernelCategory } from '../../../api/types';
import { categoryLabel, deviceLabel } from '../../../names/categories';
import type { Column } from '../../../table/table';

export function categoryRowKey(row: KernelCategory): string {
  return `${row.device},${row.category}`;
}

export const CATEGORY_COLUMNS: Column<KernelCategory>[] = [
  {
    key: 'category',
    label: 'Category',
    show: (r) => categoryLabel(r.category),
    inset: 16,
  },
  { key: 'device', label: 'Device', show: (r) => deviceLabel(r.device) },
  {
    key: 'gpu_time_percent',
    label: '% of GPU time',
    bar: true,
    total: 'sum',
  },
  { key: 'time_us', label: 'Time', total: 'sum' },
  { key: 'wall_time_percent', label: '% of wall time' },
  { key: 'launches', label: 'Launches', kind: 'count', total: 'sum' },
  { key: 'distinct_kernels', label: 'Distinct', kind: 'count', total: 'sum' },
];
