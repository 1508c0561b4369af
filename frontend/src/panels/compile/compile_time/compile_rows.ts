/** The table of compilations and their phases. */
import type { Compilation } from '../../../api/types';
import type { Column } from '../../../table/table';
import {
  ATTEMPTS,
  CACHE,
  DIRECTION,
  DURATION,
  FUNCTION,
  GRAPH_OPS,
  GUARDS,
  ID,
  LINE,
} from '../../../table/compilation_columns';
import { codeKey } from '../../../names/compile_ids';
import { phaseHelp, phaseLabel, phasesOf } from '../../../names/phases';

/** The row that was being compiled at a time (Unix seconds); the first one of the compile id where none says so. */
export function rowAt(rows: Compilation[], key: string, at: number): Compilation | null {
  const own = rows.filter((row) => codeKey(row) === key);
  const during = own.findLast(
    ({ start_s, duration_s }) =>
      start_s !== null && duration_s !== null && start_s - 0.001 <= at && at <= start_s + duration_s,
  );
  return during ?? own[0] ?? null;
}

/** One column for each phase that took any time; together they are the compile time. */
export function phaseColumns(rows: Compilation[]): Column<Compilation>[] {
  return phasesOf(rows).map((phase) => ({
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
export function compilationColumns(rows: Compilation[]): Column<Compilation>[] {
  return [ID, DIRECTION, DURATION, FUNCTION, ...phaseColumns(rows), ...HIDDEN];
}

const HIDDEN: Column<Compilation>[] = [
  ...[LINE, ATTEMPTS, GRAPH_OPS, GUARDS].map(
    (column) => ({ ...column, hidden: true }) as Column<Compilation>,
  ),
  CACHE,
  {
    key: 'failure',
    label: 'Failure',
    value: (r) => r.failure?.type ?? '',
    title: (r) => r.failure?.reason ?? '',
    hidden: true,
  },
];
