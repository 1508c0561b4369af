/** Tables of the compile time panel: compilations, and what torch's compile_times() counts. */
import type { CacheResult, Compilation, Compile, CompiledRegion, Span } from '../../api/types';
import type { Column } from '../../widgets/table';
import {
  ATTEMPTS,
  directionColumn,
  DURATION,
  FUNCTION,
  GRAPH_OPS,
  GUARDS,
  ID,
  LINE,
} from '../shared/compilation_columns';
import { codeKey, compilationKey } from '../shared/places';
import { byPipeline, phaseHelp, phaseLabel } from './phases';

export interface CompilationRow extends Compilation {
  /** What the profiled span says about this compilation's region; null without a trace. */
  region: CompiledRegion | null;
  traced: boolean;
  /** Which of several rows of its compile id and direction, from 0. */
  part: number;
}

export function compilationRows(compile: Compile, span: Span | null): CompilationRow[] {
  const regions = new Map(span?.compiled_regions.map((region) => [region.compile_id, region]));
  const seen = new Map<string, number>();
  const next = (key: string) => {
    const part = seen.get(key) ?? 0;
    seen.set(key, part + 1);
    return part;
  };
  return compile.compilations.map((c) => ({
    ...c,
    part: next(compilationKey(c, c.direction)),
    traced: span !== null,
    // Regions are known by compile id only; the backward of a frame is no region of its own.
    region: c.direction === 'forward' && c.epoch === 0 ? (regions.get(c.compile_id) ?? null) : null,
  }));
}

export function compilationRowKey(row: CompilationRow): string {
  return compilationKey(row, row.direction, row.part);
}

/** The row that was being compiled at a time (Unix seconds); the first one of the compile id where none says so. */
export function rowAt(rows: CompilationRow[], key: string, at: number): CompilationRow | null {
  const own = rows.filter((row) => codeKey(row) === key);
  const during = own.findLast(
    ({ start_s, duration_s }) =>
      start_s !== null && duration_s !== null && start_s - 0.001 <= at && at <= start_s + duration_s,
  );
  return during ?? own[0] ?? null;
}

/** One word for all cache lookups of a compilation; the drawer has each. */
export function cacheWord(results: CacheResult[]): string | null {
  if (results.length === 0) return null;
  const kinds = [...new Set(results.map((r) => r.result))];
  return kinds.length === 1 ? kinds[0]! : kinds.sort().join(', ');
}

/** One column for each phase that took any time; together they are the compile time. */
export function phaseColumns(rows: CompilationRow[]): Column<CompilationRow>[] {
  const phases = [...new Set(rows.flatMap((row) => Object.keys(row.phases_s ?? {})))];
  return phases.sort(byPipeline).map((phase) => ({
    key: `${phase}_s`,
    label: phaseLabel(phase),
    kind: 's',
    help: phaseHelp(phase),
    value: (r) => (r.phases_s ? (r.phases_s[phase] ?? 0) : null),
    unknown: 'torch did not report its phases',
    scaleWith: 'duration_s',
    unitless: true,
    total: 'sum',
  }));
}

/** The time stands in front, so that it is in view beside an open drawer too. */
export function compilationColumns(rows: CompilationRow[]): Column<CompilationRow>[] {
  return [ID, directionColumn(rows), DURATION, FUNCTION, ...phaseColumns(rows), ...HIDDEN];
}

const NO_REGION = 'Not seen as a region of the profiled span';

const HIDDEN: Column<CompilationRow>[] = [
  ...[LINE, ATTEMPTS, GRAPH_OPS, GUARDS].map(
    (column) => ({ ...column, hidden: true }) as Column<CompilationRow>,
  ),
  {
    key: 'cache',
    label: 'Cache',
    value: (r) => cacheWord(r.cache),
    unknown: 'No cache lookup was reported',
    hidden: true,
  },
  {
    key: 'calls',
    label: 'Calls in span',
    kind: 'count',
    help: 'How often the profiled span ran this compiled region',
    value: (r) => r.region?.calls ?? null,
    unknown: NO_REGION,
    hidden: true,
  },
  {
    key: 'region_cpu_us',
    label: 'Host time in span',
    kind: 'us',
    value: (r) => r.region?.cpu_us ?? null,
    unknown: NO_REGION,
    hidden: true,
  },
  {
    key: 'region_gpu_us',
    label: 'GPU time in span',
    kind: 'us',
    value: (r) => r.region?.gpu_us ?? null,
    unknown: NO_REGION,
    hidden: true,
  },
  {
    key: 'failure',
    label: 'Failure',
    value: (r) => r.failure?.type ?? '',
    title: (r) => r.failure?.reason ?? '',
    hidden: true,
  },
];

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
