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
    value: (r) => r.category,
    show: (r) => categoryLabel(r.category),
    title: (r) => categoryHelp(r.category),
    inset: 16,
  },
  { key: 'device', label: 'Device', value: (r) => r.device, show: (r) => deviceLabel(r.device) },
  {
    key: 'gpu_time_percent',
    label: '% of GPU time',
    kind: 'percent',
    help: 'Share of the summed time of all GPU events of the device',
    value: (r) => r.gpu_time_percent,
    bar: true,
    total: 'sum',
    unknown: ON_CPU,
  },
  { key: 'time_us', label: 'Time', kind: 'us', value: (r) => r.time_us, total: 'sum' },
  {
    key: 'wall_time_percent',
    label: '% of wall time',
    kind: 'percent',
    value: (r) => r.wall_time_percent,
    unknown: 'The length of the span is not known',
  },
  { key: 'launches', label: 'Launches', kind: 'count', value: (r) => r.launches, total: 'sum' },
  {
    key: 'distinct_kernels',
    label: 'Distinct',
    kind: 'count',
    help: 'Different kernel names',
    value: (r) => r.distinct_kernels,
    total: 'sum',
  },
];
