/** Tables of the kernels panel. */
import type { Kernel, Category, StepCategory, GeneratedKernels } from '../../api/types';
import { location, shortPath, significant, plural } from '../../widgets/format';
import { toCompilation } from '../../links/addresses';
import type { Column } from '../../table/table';
import { categoryHelp, categoryLabel, deviceLabel } from '../../names/categories';

/** Whether inductor wrote it, so that an output code holds its source. */
export function isGenerated({ category }: Kernel): boolean {
  return category === 'cpp' || category.startsWith('triton_');
}

/** Its name in the output code: C++ kernels are traced as graph_3_<name>. */
export function codeName({ name }: Kernel): string {
  return name.replace(/^graph_\d+_/, '');
}

/** Find the row of an old address, which had the whole name and graph key, or neither compile id nor graph key. */
export function rowOfBefore(rows: Kernel[], key: string): Kernel | undefined {
  const whole = (row: Kernel) => [row.device, row.name, row.compile_id ?? '', row.graph_key ?? ''].join();
  return rows.find((row) => whole(row) === key) ?? rows.find((row) => whole(row).startsWith(`${key},`));
}

/** "train.py:27 +2": the first line, and how many more. */
function linesText(row: Kernel): string | null {
  const [first, ...more] = row.lines;
  if (!first) return null;
  return location(shortPath(first.file, 1), first.line) + (more.length > 0 ? ` +${more.length}` : '');
}

/** "≈ 909": numbers from shapes are estimates. A search also reads rows without a number. */
function amount(value: number | null | undefined, from: string | null | undefined): string {
  return value ? (from === 'shapes' ? '≈ ' : '') + significant(value) : '';
}

function ofPeak(percent: number): string {
  return percent < 0.05 ? '<0.1' : (percent > 100 ? '▴ ' : '') + percent.toFixed(1);
}

/** A narrow window shows the first columns. */
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

/** Kernels put together, and their categories step by step. */

export const GROUPINGS = {
  '': 'kernel',
  category: 'category',
  compiled: 'compiled graph',
  module: 'module',
} as const;

export interface KernelGroup {
  key: string;
  rows: Kernel[];
  share: number;
  time_us: number;
  launches: number;
  min_us: number;
  max_us: number;
  /** Share of the span's wall time. */
  wall: number;
}

/** Kernels put together; one of several modules is in a group of these. */
export function groupRows(rows: Kernel[], by: string): KernelGroup[] {
  const groups = new Map<string, KernelGroup>();
  for (const row of rows) {
    const key = groupKey(row, by) || '(not known)';
    const none = { share: 0, time_us: 0, launches: 0, min_us: Infinity, max_us: 0, wall: 0 };
    const group = groups.get(key) ?? { key, rows: [], ...none };
    groups.set(key, group);
    group.rows.push(row);
    group.share += row.share_percent;
    group.time_us += row.time_us;
    group.launches += row.launches;
    group.min_us = Math.min(group.min_us, row.min_us);
    group.max_us = Math.max(group.max_us, row.max_us);
    group.wall += row.wall_percent ?? 0;
  }
  return [...groups.values()];
}

function groupKey(row: Kernel, by: string): string {
  if (by === 'category') return categoryLabel(row.category);
  if (by === 'module') return row.modules.join(', ');
  return row.compile_id ? `${row.compile_id} ${row.direction ?? ''} ${row.graph_key ?? ''}`.trim() : '';
}

export const GROUP_COLUMNS: Column<KernelGroup>[] = [
  { key: 'group', label: 'Group', value: (r) => r.key, grow: 2 },
  {
    key: 'share_percent',
    label: '% of time',
    value: (r) => r.share,
    bar: true,
    total: 'sum',
  },
  {
    key: 'wall_percent',
    label: '% of wall',
    value: (r) => r.wall,
    total: 'sum',
  },
  { key: 'time_us', label: 'Time', total: 'sum' },
  { key: 'launches', label: 'Launches', kind: 'count', total: 'sum' },
  { key: 'mean_us', label: 'Mean', value: (r) => r.time_us / r.launches },
  { key: 'min_us', label: 'Min', scaleWith: 'mean_us' },
  { key: 'max_us', label: 'Max', scaleWith: 'mean_us' },
  { key: 'kernels', label: 'Kernels', kind: 'count', value: (r) => r.rows.length, total: 'sum' },
];

export interface StepCategories {
  step: string;
  device: number | 'cpu';
  categories: Map<Category, StepCategory>;
}

export function categoriesByStep(parts: StepCategory[]): StepCategories[] {
  const rows = new Map<string, StepCategories>();
  for (const part of parts) {
    const { step, device } = part;
    const key = `${step} ${device}`;
    if (!rows.has(key)) rows.set(key, { step, device, categories: new Map() });
    rows.get(key)!.categories.set(part.category, part);
  }
  return [...rows.values()];
}

/** A column for each category that occurs, the largest first. */
export function stepColumns(rows: StepCategories[]): Column<StepCategories>[] {
  const totals = new Map<Category, number>();
  for (const row of rows) {
    for (const [category, { time_us }] of row.categories)
      totals.set(category, (totals.get(category) ?? 0) + time_us);
  }
  const categories = [...totals.keys()].sort((a, b) => totals.get(b)! - totals.get(a)!);
  return [
    { key: 'step', label: 'Step', value: (r) => r.step.replace('ProfilerStep', '') },
    { key: 'device', label: 'Device', value: (r) => deviceLabel(r.device), hidden: true },
    ...categories.map((category): Column<StepCategories> => ({
      key: category,
      label: categoryLabel(category),
      kind: 'percent',
      help: categoryHelp(category),
      value: (r) => r.categories.get(category)?.wall_time_percent ?? 0,
    })),
  ];
}

/** The table of kernels that inductor generated. */
export const GENERATED_COLUMNS: Column<GeneratedKernels>[] = [
  { key: 'compile_id', label: 'Compile id', link: toCompilation },
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
