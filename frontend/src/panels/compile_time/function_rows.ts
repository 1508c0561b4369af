/** What torch's compile_times() counts. */
import type { Column } from '../../table/table';

export interface FunctionRow {
  name: string;
  runs: number[];
  total: number;
  min: number;
  max: number;
}

export function functionRows(times: Record<string, number[]>): FunctionRow[] {
  return Object.entries(times).map(([name, runs]) => ({
    name,
    runs,
    total: runs.reduce((sum, s) => sum + s, 0),
    min: Math.min(...runs),
    max: Math.max(...runs),
  }));
}

export const FUNCTION_COLUMNS: Column<FunctionRow>[] = [
  { key: 'function', label: 'Function', value: (r) => r.name, grow: 2 },
  { key: 'runs', label: 'Runs', kind: 'count', value: (r) => r.runs.length },
  {
    key: 'total_s',
    label: 'Total',
    kind: 's',
    help: 'Functions contain each other: totals of different rows overlap',
    value: (r) => r.total,
    bar: true,
  },
  { key: 'min_s', label: 'Min', kind: 's', value: (r) => r.min, scaleWith: 'total_s' },
  { key: 'max_s', label: 'Max', kind: 's', value: (r) => r.max, scaleWith: 'total_s' },
];
