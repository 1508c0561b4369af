/** The table of kernels that inductor generated. */
import type { GeneratedKernels } from '../../../api/types';
import { categoryLabel } from '../../../names/categories';
import type { Column } from '../../../table/table';
import { plural } from '../../../widgets/format';

export const GENERATED_COLUMNS: Column<GeneratedKernels>[] = [
  { key: 'compile_id', label: 'Compile id' },
  { key: 'direction', label: 'Direction' },
  {
    key: 'category',
    label: 'Category',
    show: (r) => categoryLabel(r.category),
    inset: 16,
  },
  {
    key: 'kernels',
    label: 'Kernels',
    kind: 'count',
    value: (r) => r.kernels.length,
    bar: true,
    total: 'sum',
  },
  {
    key: 'names',
    label: 'Names',
    value: (r) => r.kernels.join(' '),
    grow: 2,
    title: (r) => plural(r.kernels.length, 'kernel'),
  },
  {
    key: 'graph_key',
    label: 'Graph key',
    value: (r) => r.graph_key || null,
    hidden: true,
  },
  {
    key: 'output_code_file',
    label: 'Output code',
    value: (r) => r.output_code_file || null,
    hidden: true,
  },
];
