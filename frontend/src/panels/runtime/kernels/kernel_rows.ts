/** Tables of the kernels panel. */
import type { Kernel } from '../../../api/types';
import { location, shortPath, significant } from '../../../widgets/format';
import { toCompilation } from '../../../links/addresses';
import type { Column } from '../../../table/table';
import { categoryHelp, categoryLabel, deviceLabel } from '../../../names/categories';

/** Whether inductor wrote it, so that its source stands in an output code. */
export function isGenerated({ category }: Kernel): boolean {
  return category === 'cpp' || category.startsWith('triton_');
}

/** Its name in the output code: C++ kernels are traced as graph_3_<name>. */
export function codeName({ name }: Kernel): string {
  return name.replace(/^graph_\d+_/, '');
}

/** The row that an address of before means: it had the whole name and graph key, or neither compile id nor graph key. */
export function rowOfBefore(rows: Kernel[], key: string): Kernel | undefined {
  const whole = (row: Kernel) => [row.device, row.name, row.compile_id ?? '', row.graph_key ?? ''].join();
  return rows.find((row) => whole(row) === key) ?? rows.find((row) => whole(row).startsWith(`${key},`));
}

/** "train.py:27 +2": the first line, and how many more. */
export function linesText(row: Kernel): string | null {
  const [first, ...more] = row.lines;
  if (!first) return null;
  return location(shortPath(first.file, 1), first.line) + (more.length > 0 ? ` +${more.length}` : '');
}

/** "≈ 909": what shapes tell is an estimate. A search asks about rows without a number too. */
function amount(value: number | null | undefined, from: string | null | undefined): string {
  return value ? (from === 'shapes' ? '≈ ' : '') + significant(value) : '';
}

function ofPeak(percent: number): string {
  return percent < 0.05 ? '<0.1' : (percent > 100 ? '▴ ' : '') + percent.toFixed(1);
}

/** The first columns are those that a narrow window shows. */
export const KERNEL_COLUMNS: Column<Kernel>[] = [
  { key: 'name', label: 'Kernel', title: (r) => `${r.name}\n${categoryLabel(r.category)}`, grow: 2 },
  {
    key: 'above_floor_us',
    label: 'Above floor',
    value: (r) => r.achieved.above_floor_us,
    scaleWith: 'time_us',
    total: 'sum',
  },
  { key: 'time_us', label: 'Time', total: 'sum' },
  {
    key: 'share_percent',
    label: '% of time',
    bar: true,
    total: 'sum',
  },
  { key: 'launches', label: 'Launches', kind: 'count', total: 'sum' },
  { key: 'mean_us', label: 'Mean' },
  { key: 'min_us', label: 'Min', scaleWith: 'mean_us', hidden: true },
  { key: 'max_us', label: 'Max', scaleWith: 'mean_us', hidden: true },
  {
    key: 'bandwidth_gb_s',
    label: 'GB/s',
    kind: 'count',
    value: (r) => r.achieved.bandwidth_gb_s,
    show: (r) => amount(r.achieved.bandwidth_gb_s, r.achieved.bandwidth_from),
  },
  {
    key: 'bandwidth_percent',
    label: '% of peak',
    show: (r) => ofPeak(r.bandwidth_percent ?? 0),
    title: (r) => ((r.bandwidth_percent ?? 0) > 100 ? 'More than its memory can: out of a cache' : ''),
    bar: true,
  },
  {
    key: 'line',
    label: 'Your line',
    value: linesText,
    title: (r) => r.lines.map((l) => `${l.file}:${l.line}  ${l.source ?? ''}`).join('\n'),
  },
  {
    key: 'category',
    label: 'Category',
    show: (r) => categoryLabel(r.category),
    meaning: (r) => categoryHelp(r.category),
    hidden: true,
  },
  {
    key: 'compile_id',
    label: 'Compile id',
    link: (r) => toCompilation({ compile_id: r.compile_id ?? '' }),
  },
  {
    key: 'tflop_s',
    label: 'TFLOP/s',
    kind: 'count',
    value: (r) => r.achieved.tflop_s,
    show: (r) => amount(r.achieved.tflop_s, r.achieved.tflop_from),
    hidden: true,
  },
  {
    key: 'twice_as_fast_percent',
    label: 'Gain if 2× faster',
    hidden: true,
  },
  { key: 'direction', label: 'Direction', hidden: true },
  { key: 'aten_ops', label: 'Fused operators', value: (r) => r.aten_ops.join(' ') || null, hidden: true },
  {
    key: 'occupancy_percent',
    label: 'Occupancy %',
    value: (r) => r.config?.occupancy_percent ?? null,
    hidden: true,
  },
  {
    key: 'registers',
    label: 'Registers',
    kind: 'count',
    value: (r) => r.config?.registers ?? null,
    hidden: true,
  },
  { key: 'device', label: 'Device', show: (r) => deviceLabel(r.device), hidden: true },
  { key: 'graph_key', label: 'Graph key', hidden: true },
];
