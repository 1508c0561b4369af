/** Columns of the compilations by compile time. */
import type { CacheResult, Compilation } from '../api/types';
import { functionName, idLabel, type CompileKey } from '../names/compile_ids';
import { location, shortPath } from '../widgets/format';
import type { Column } from './table';
import { phaseHelp, phaseLabel, phasesOf } from '../names/phases';

const NOT_TOLD = 'torch did not report it';

const ID: Column<CompileKey> = {
  key: 'compile_id',
  label: 'Compile id',
  help: 'Frame / how many times this frame was compiled before',
  show: idLabel,
};

const FUNCTION: Column<{ function: string }> = {
  key: 'function',
  label: 'Function',
  value: (r) => r.function || null,
  show: (r) => functionName(r.function),
  title: (r) => r.function,
  unknown: NOT_TOLD,
  grow: 1,
};

const LINE: Column<{ file: string; line: number | null }> = {
  key: 'file',
  label: 'Line',
  value: (r) => (r.file ? location(r.file, r.line) : null),
  show: (r) => location(shortPath(r.file, 1), r.line),
  title: (r) => location(r.file, r.line),
  unknown: NOT_TOLD,
};

const DURATION: Column<{ duration_s: number | null }> = {
  key: 'duration_s',
  label: 'Compile time',
  bar: true,
  total: 'sum',
  unknown: 'torch did not report how long it took',
};

const GRAPH_OPS: Column<{ graph_ops: number | null }> = {
  key: 'graph_ops',
  label: 'Ops',
  help: 'Operations in the graph',
  kind: 'count',
  total: 'sum',
};

const ATTEMPTS: Column<{ attempts: number | null }> = {
  key: 'attempts',
  label: 'Attempts',
  kind: 'count',
  help: 'Dynamo starts a frame over when it finds a graph break or a new assumption',
  unknown: NOT_TOLD,
};

const GUARDS: Column<{ guards: number | null }> = {
  key: 'guards',
  label: 'Guards',
  kind: 'count',
  help: 'What Dynamo asked to be guarded (guard_count)',
};

/** One word for all cache lookups of a compilation; the drawer has each. */
const CACHE: Column<{ cache: CacheResult[] }> = {
  key: 'cache',
  label: 'Cache',
  value: (r) => [...new Set(r.cache.map(({ result }) => result))].sort().join(', ') || null,
  unknown: 'No cache lookup was reported',
  hidden: true,
};

type OfADirection = Pick<Compilation, 'direction' | 'part' | 'parts'>;

/** "backward", or "backward 2 of 2". */
export function directionLabel({ direction, part, parts }: OfADirection): string {
  return parts > 1 ? `${direction} ${part + 1} of ${parts}` : direction;
}

const DIRECTION: Column<OfADirection> = {
  key: 'direction',
  label: 'Direction',
  help: 'A backward that is compiled when it first runs has a row of its own; under DDP there are several',
  value: directionLabel,
};

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

/** The compile time is one of the first columns, so that it stays in view next to an open drawer. */
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
