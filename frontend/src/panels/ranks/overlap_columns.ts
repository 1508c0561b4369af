/** The table of kernels that run beside collectives. */
import type { OverlapRow } from '../../api/types';
import { shortKernel } from '../../names/kernel_names';
import type { Column } from '../../table/table';

export const overlapLabel = ({ name }: OverlapRow) => shortKernel(name);
export const overlapKey = (row: OverlapRow) => [row.name, row.compile_id, row.grid].join(',');

export const OVERLAP_COLUMNS: Column<OverlapRow>[] = [
  { key: 'name', label: 'Kernel', value: overlapLabel, title: ({ name }) => name, grow: 2 },
  { key: 'compile_id', label: 'Compile id' },
  { key: 'grid', label: 'Grid', hidden: true },
  { key: 'beside', label: 'Beside', kind: 'count' },
  { key: 'known', label: 'Known', kind: 'count' },
  { key: 'alone_us', label: 'Alone', scaleWith: 'beside_us' },
  { key: 'beside_us', label: 'Beside' },
  { key: 'wait_percent', label: 'Waiting' },
  { key: 'loss_us', label: 'Longer', total: 'sum' },
];
