/** The table of kernels that run beside collectives. */
import type { OverlapRow } from '../../api/types';
import { shortKernel } from '../../names/kernel_names';
import type { Column } from '../../table/table';

const NEVER = 'The same kernel at the same place of a step never runs alone';

export const overlapLabel = ({ name }: OverlapRow) => shortKernel(name);
export const overlapKey = (row: OverlapRow) => [row.name, row.compile_id, row.grid].join(',');

export const OVERLAP_COLUMNS: Column<OverlapRow>[] = [
  { key: 'name', label: 'Kernel', value: overlapLabel, title: ({ name }) => name, grow: 2 },
  { key: 'compile_id', label: 'Compile id', unknown: 'Ran eager, or nothing tells' },
  { key: 'grid', label: 'Grid', hidden: true },
  { key: 'beside', label: 'Beside', kind: 'count', help: 'Launches beside a collective' },
  { key: 'known', label: 'Known', kind: 'count', help: 'Of these it is known how long they take alone' },
  { key: 'alone_us', label: 'Alone', help: 'Median', unknown: NEVER, scaleWith: 'beside_us' },
  { key: 'beside_us', label: 'Beside', help: 'Median' },
  { key: 'wait_percent', label: 'Waiting', help: 'Of that time the collective waited for another rank' },
  { key: 'loss_us', label: 'Longer', help: 'In an average step of a rank', unknown: NEVER, total: 'sum' },
];
