/** The table of kernels that inductor generated. */
import type { GeneratedKernels } from '../../api/types';
import { categoryHelp, categoryLabel } from '../../names/categories';
import type { Column } from '../../table/table';
import { count } from '../../widgets/format';

export interface GeneratedRow extends GeneratedKernels {
  key: string;
  names: string[];
}

export function generatedRows(generated: GeneratedKernels[]): GeneratedRow[] {
  return generated.map((row, i) => ({ ...row, key: String(i), names: row.kernels }));
}

export const GENERATED_COLUMNS: Column<GeneratedRow>[] = [
  { key: 'compile_id', label: 'Compile id', value: (r) => r.compile_id },
  { key: 'direction', label: 'Direction', value: (r) => r.direction },
  {
    key: 'category',
    label: 'Category',
    value: (r) => r.category,
    show: (r) => categoryLabel(r.category),
    title: (r) => categoryHelp(r.category),
    inset: 16,
  },
  { key: 'kernels', label: 'Kernels', kind: 'count', value: (r) => r.names.length, bar: true, total: 'sum' },
  {
    key: 'names',
    label: 'Names',
    value: (r) => r.names.join(' '),
    grow: 2,
    title: (r) => `${count(r.names.length)} kernels`,
  },
  {
    key: 'graph_key',
    label: 'Graph key',
    value: (r) => r.graph_key || null,
    hidden: true,
    unknown: 'torch did not tell',
  },
  {
    key: 'output_code_file',
    label: 'Output code',
    value: (r) => r.output_code_file || null,
    hidden: true,
    unknown: 'torch did not tell',
  },
];
