/** The table of kernel categories. */
import type { KernelCategory } from '../../api/types';
import { categoryHelp, categoryLabel, deviceLabel } from '../../names/categories';
import type { Column } from '../../table/table';

const ON_CPU = 'On a CPU there is no GPU event time to be a share of';

export function categoryRowKey(row: KernelCategory): string {
  return `${row.device},${row.category}`;
}

export const CATEGORY_COLUMNS: Column<KernelCategory>[] = [
  {
    key: 'category',
    label: 'Category',
    show: (r) => categoryLabel(r.category),
    title: (r) => categoryHelp(r.category),
    inset: 16,
  },
  { key: 'device', label: 'Device', show: (r) => deviceLabel(r.device) },
  {
    key: 'gpu_time_percent',
    label: '% of GPU time',
    help: 'Share of the summed time of all GPU events of the device',
    bar: true,
    total: 'sum',
    unknown: ON_CPU,
  },
  { key: 'time_us', label: 'Time', total: 'sum' },
  { key: 'wall_time_percent', label: '% of wall time', unknown: 'The length of the span is not known' },
  { key: 'launches', label: 'Launches', kind: 'count', total: 'sum' },
  { key: 'distinct_kernels', label: 'Distinct', kind: 'count', help: 'Different kernel names', total: 'sum' },
];
