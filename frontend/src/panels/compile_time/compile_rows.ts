/** The table of compilations and their phases. */
import type { Compilation, Compile, CompiledRegion, Span } from '../../api/types';
import type { Column } from '../../table/table';
import {
  ATTEMPTS,
  CACHE,
  directionColumn,
  DURATION,
  FUNCTION,
  GRAPH_OPS,
  GUARDS,
  ID,
  LINE,
} from '../../table/compilation_columns';
import { codeKey, compilationKey } from '../../names/compile_ids';
import { byPipeline, phaseHelp, phaseLabel, phaseTimes } from '../../names/phases';

export interface TimedCompilation extends Compilation {
  /** What the profiled span says about this compilation's region; null without a trace. */
  region: CompiledRegion | null;
  traced: boolean;
  /** Which of several rows of its compile id and direction, from 0. */
  part: number;
}

export function compilationRows(compile: Compile, span: Span | null): TimedCompilation[] {
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

export function compilationRowKey(row: TimedCompilation): string {
  return compilationKey(row, row.direction, row.part);
}

/** The row that was being compiled at a time (Unix seconds); the first one of the compile id where none says so. */
export function rowAt(rows: TimedCompilation[], key: string, at: number): TimedCompilation | null {
  const own = rows.filter((row) => codeKey(row) === key);
  const during = own.findLast(
    ({ start_s, duration_s }) =>
      start_s !== null && duration_s !== null && start_s - 0.001 <= at && at <= start_s + duration_s,
  );
  return during ?? own[0] ?? null;
}

/** One column for each phase that took any time; together they are the compile time. */
export function phaseColumns(rows: TimedCompilation[]): Column<TimedCompilation>[] {
  const phases = new Set(rows.flatMap((row) => phaseTimes(row.phases_s).map(([phase]) => phase)));
  return [...phases].sort(byPipeline).map((phase) => ({
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
export function compilationColumns(rows: TimedCompilation[]): Column<TimedCompilation>[] {
  return [ID, directionColumn(rows), DURATION, FUNCTION, ...phaseColumns(rows), ...HIDDEN];
}

const NO_REGION = 'Not seen as a region of the profiled span';

const HIDDEN: Column<TimedCompilation>[] = [
  ...[LINE, ATTEMPTS, GRAPH_OPS, GUARDS].map(
    (column) => ({ ...column, hidden: true }) as Column<TimedCompilation>,
  ),
  CACHE,
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
