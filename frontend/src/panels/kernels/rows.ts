/** Tables of the kernels panel. */
import type { GeneratedKernels, Kernel, KernelCategory, Span } from '../../api/types';
import { count } from '../../widgets/format';
import type { Column } from '../../widgets/table';
import { categoryHelp, categoryLabel, deviceLabel } from '../shared/categories';

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

export interface KernelRow extends Kernel {
  share: number;
}

/** Share of the device's summed kernel time, so that the rows of a device sum to 100 %. */
export function kernelRows(span: Span, category: string): KernelRow[] {
  const totals = new Map<number | string, number>();
  for (const k of span.kernels) totals.set(k.device, (totals.get(k.device) ?? 0) + k.time_us);
  return span.kernels
    .filter((k) => !category || k.category === category)
    .map((k) => ({ ...k, share: totals.get(k.device) ? (100 * k.time_us) / totals.get(k.device)! : 0 }));
}

/** Different kernels: a name has one row for each compilation that launches it. */
export function countKernels(span: Span): number {
  return new Set(span.kernels.map((k) => `${k.device} ${k.name}`)).size;
}

export function kernelRowKey(row: Kernel): string {
  return [row.device, row.name, row.compile_id ?? '', row.graph_key ?? ''].join(',');
}

/** "void at::native::elementwise_kernel<…>(…)" → the part that tells kernels apart at a glance. */
export function shortKernel(name: string): string {
  return name.replace(/^void /, '').replace(/^\(anonymous namespace\)::/, '');
}

/** Whether inductor wrote it, so that its source stands in an output code. */
export function isGenerated({ category }: Kernel): boolean {
  return category === 'cpp' || (category.startsWith('triton_') && category !== 'triton_user');
}

/** Its name in the output code: C++ kernels are traced as graph_3_<name>. */
export function codeName({ name }: Kernel): string {
  return name.replace(/^graph_\d+_/, '');
}

export const KERNEL_COLUMNS: Column<KernelRow>[] = [
  {
    key: 'name',
    label: 'Kernel',
    value: (r) => r.name,
    show: (r) => shortKernel(r.name),
    title: (r) => r.name,
    grow: 2,
  },
  {
    key: 'category',
    label: 'Category',
    value: (r) => r.category,
    show: (r) => categoryLabel(r.category),
    title: (r) => categoryHelp(r.category),
    inset: 16,
  },
  {
    key: 'device',
    label: 'Device',
    value: (r) => r.device,
    show: (r) => deviceLabel(r.device),
    hidden: true,
  },
  {
    key: 'share_percent',
    label: '% of device time',
    kind: 'percent',
    help: 'Share of the summed time of all kernels and copies of the device',
    value: (r) => r.share,
    bar: true,
    total: 'sum',
  },
  { key: 'time_us', label: 'Time', kind: 'us', value: (r) => r.time_us, total: 'sum' },
  { key: 'launches', label: 'Launches', kind: 'count', value: (r) => r.launches, total: 'sum' },
  { key: 'mean_us', label: 'Mean', kind: 'us', value: (r) => r.mean_us },
  { key: 'min_us', label: 'Min', kind: 'us', value: (r) => r.min_us, scaleWith: 'mean_us', hidden: true },
  { key: 'max_us', label: 'Max', kind: 'us', value: (r) => r.max_us, scaleWith: 'mean_us', hidden: true },
  {
    key: 'compile_id',
    label: 'Compile id',
    value: (r) => r.compile_id,
    unknown: 'Launched outside of compiled code, or the launch is not in the trace',
  },
  {
    key: 'graph_key',
    label: 'Graph key',
    value: (r) => r.graph_key,
    hidden: true,
    unknown: 'No graph is known for it',
  },
];

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
