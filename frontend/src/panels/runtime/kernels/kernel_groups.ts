/** Kernels put together, and their categories step by step. */
import type { Category, Kernel, StepCategory, GeneratedKernels } from '../../../api/types';
import { categoryHelp, categoryLabel, deviceLabel } from '../../../names/categories';
import { toCompilation } from '../../../links/addresses';
import type { Column } from '../../../table/table';
import { plural } from '../../../widgets/format';

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
