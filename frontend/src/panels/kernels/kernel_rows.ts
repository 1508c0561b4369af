/** Tables of the kernels panel. */
import type { Kernel, KernelRow } from '../../api/types';
import { location, shortPath, significant } from '../../widgets/format';
import type { Column } from '../../table/table';
import { categoryHelp, categoryLabel, deviceLabel } from '../../names/categories';

/** A row of the table: what the span's answer holds, and all the rest once it is there. */
export interface Row extends Kernel {
  share: number;
  full: KernelRow | null;
}

/** Share of the device's summed kernel time, so that the rows of a device sum to 100 %. */
export function kernelRows(kernels: Kernel[], full: KernelRow[] | null, category: string): Row[] {
  const totals = new Map<number | string, number>();
  for (const k of kernels) totals.set(k.device, (totals.get(k.device) ?? 0) + k.time_us);
  const more = new Map(full?.map((row) => [kernelRowKey(row), row]));
  return kernels
    .filter((k) => !category || k.category === category)
    .map((k) => ({
      ...k,
      share: totals.get(k.device) ? (100 * k.time_us) / totals.get(k.device)! : 0,
      full: more.get(kernelRowKey(k)) ?? null,
    }));
}

export function kernelRowKey(row: Kernel): string {
  return [row.device, row.name, row.compile_id ?? '', row.graph_key ?? ''].join(',');
}

/** Whether inductor wrote it, so that its source stands in an output code. */
export function isGenerated({ category }: Kernel): boolean {
  return category === 'cpp' || category.startsWith('triton_');
}

/** Its name in the output code: C++ kernels are traced as graph_3_<name>. */
export function codeName({ name }: Kernel): string {
  return name.replace(/^graph_\d+_/, '');
}

/** "train.py:27 +2": the first line, and how many more. */
export function linesText(row: Row): string | null {
  const [first, ...more] = row.full?.lines ?? [];
  if (!first) return null;
  return location(shortPath(first.file, 1), first.line) + (more.length > 0 ? ` +${more.length}` : '');
}

const NO_WORK = 'Neither inductor nor recorded shapes tell what it moves';
const achieved = (r: Row) => r.full?.achieved;

/** "≈ 909": what shapes tell is an estimate. A search asks about rows without a number too. */
function amount(value: number | null | undefined, from: string | null | undefined): string {
  return value ? (from === 'shapes' ? '≈ ' : '') + significant(value) : '';
}

function ofPeak(percent: number): string {
  return percent < 0.05 ? '<0.1' : (percent > 100 ? '▴ ' : '') + percent.toFixed(1);
}

/** The first columns are those that a narrow window shows. */
export const KERNEL_COLUMNS: Column<Row>[] = [
  {
    key: 'name',
    label: 'Kernel',
    value: (r) => r.name,
    title: (r) => `${r.name}\n${categoryLabel(r.category)}`,
    grow: 3,
  },
  { key: 'time_us', label: 'Time', kind: 'us', value: (r) => r.time_us, total: 'sum' },
  {
    key: 'share_percent',
    label: '% of time',
    kind: 'percent',
    help: 'Share of the summed time of all kernels and copies of the device',
    value: (r) => r.share,
    bar: true,
    total: 'sum',
  },
  { key: 'launches', label: 'Launches', kind: 'count', value: (r) => r.launches, total: 'sum' },
  { key: 'mean_us', label: 'Mean', kind: 'us', value: (r) => r.mean_us },
  { key: 'min_us', label: 'Min', kind: 'us', value: (r) => r.min_us, scaleWith: 'mean_us', hidden: true },
  { key: 'max_us', label: 'Max', kind: 'us', value: (r) => r.max_us, scaleWith: 'mean_us', hidden: true },
  {
    key: 'bandwidth_gb_s',
    label: 'GB/s',
    kind: 'count',
    help: 'Bytes over time; “≈” is an estimate from recorded shapes',
    value: (r) => achieved(r)?.bandwidth_gb_s ?? null,
    show: (r) => amount(achieved(r)?.bandwidth_gb_s, achieved(r)?.bandwidth_from),
    unknown: NO_WORK,
  },
  {
    key: 'bandwidth_percent',
    label: '% of peak',
    kind: 'percent',
    help: 'Of the device’s memory bandwidth; ▴ above 100 %: the data came out of a cache',
    value: (r) => achieved(r)?.bandwidth_percent ?? null,
    show: (r) => ofPeak(achieved(r)?.bandwidth_percent ?? 0),
    title: (r) =>
      (achieved(r)?.bandwidth_percent ?? 0) > 100 ? 'More than its memory can: out of a cache' : '',
    bar: true,
    unknown: 'Its bandwidth or the device’s peak is not known',
  },
  {
    key: 'line',
    label: 'Your line',
    value: linesText,
    title: (r) => r.full?.lines.map((l) => `${l.file}:${l.line}  ${l.source ?? ''}`).join('\n') ?? '',
    unknown: 'Nothing tells which line of yours it computes',
  },
  {
    key: 'category',
    label: 'Category',
    value: (r) => r.category,
    show: (r) => categoryLabel(r.category),
    title: (r) => categoryHelp(r.category),
    hidden: true,
  },
  {
    key: 'compile_id',
    label: 'Compile id',
    value: (r) => r.compile_id,
    unknown: 'Launched outside of compiled code, or the launch is not in the trace',
  },
  {
    key: 'tflop_s',
    label: 'TFLOP/s',
    kind: 'count',
    value: (r) => achieved(r)?.tflop_s ?? null,
    show: (r) => amount(achieved(r)?.tflop_s, achieved(r)?.tflop_from),
    unknown: 'Neither inductor nor recorded shapes tell what it computes',
    hidden: true,
  },
  {
    key: 'twice_as_fast_percent',
    label: 'Gain if 2× faster',
    kind: 'percent',
    help: 'What a step gains at most if this kernel takes half its time',
    value: (r) => r.full?.twice_as_fast_percent ?? null,
    hidden: true,
  },
  {
    key: 'direction',
    label: 'Direction',
    value: (r) => r.full?.direction ?? null,
    hidden: true,
  },
  {
    key: 'aten_ops',
    label: 'Fused operators',
    value: (r) => r.full?.aten_ops.join(' ') || null,
    hidden: true,
  },
  {
    key: 'occupancy_percent',
    label: 'Occupancy %',
    kind: 'percent',
    value: (r) => r.full?.config?.occupancy_percent ?? null,
    hidden: true,
  },
  {
    key: 'registers',
    label: 'Registers',
    kind: 'count',
    value: (r) => r.full?.config?.registers ?? null,
    hidden: true,
  },
  {
    key: 'device',
    label: 'Device',
    value: (r) => r.device,
    show: (r) => deviceLabel(r.device),
    hidden: true,
  },
  {
    key: 'graph_key',
    label: 'Graph key',
    value: (r) => r.graph_key,
    hidden: true,
    unknown: 'No graph is known for it',
  },
];
