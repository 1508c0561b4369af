/** Columns of every table whose rows are compilations, or belong to one. */
import type { CacheResult } from '../api/types';
import { idLabel, type CompileKey } from '../names/compile_ids';
import { location, shortPath } from '../widgets/format';
import type { Column } from './table';

const NOT_TOLD = 'torch did not report it';

export const ID: Column<CompileKey> = {
  key: 'compile_id',
  label: 'Compile id',
  help: 'Frame / how many times this frame was compiled before',
  value: (r) => r.compile_id,
  show: idLabel,
};

export const FUNCTION: Column<{ function: string }> = {
  key: 'function',
  label: 'Function',
  value: (r) => r.function || null,
  unknown: NOT_TOLD,
  grow: 1,
};

export const LINE: Column<{ file: string; line: number | null }> = {
  key: 'file',
  label: 'Line',
  value: (r) => (r.file ? location(r.file, r.line) : null),
  show: (r) => location(shortPath(r.file, 1), r.line),
  title: (r) => location(r.file, r.line),
  unknown: NOT_TOLD,
};

export const DURATION: Column<{ duration_s: number | null }> = {
  key: 'duration_s',
  label: 'Compile time',
  kind: 's',
  value: (r) => r.duration_s,
  bar: true,
  total: 'sum',
  unknown: 'torch did not report how long it took',
};

export const GRAPH_OPS: Column<{ graph_ops: number | null }> = {
  key: 'graph_ops',
  label: 'Ops',
  help: 'Operations in the graph',
  kind: 'count',
  value: (r) => r.graph_ops,
  total: 'sum',
};

export const ATTEMPTS: Column<{ attempts: number | null }> = {
  key: 'attempts',
  label: 'Attempts',
  kind: 'count',
  help: 'Dynamo starts a frame over when it finds a graph break or a new assumption',
  value: (r) => r.attempts,
  unknown: NOT_TOLD,
};

export const GUARDS: Column<{ guards: number | null }> = {
  key: 'guards',
  label: 'Guards',
  kind: 'count',
  help: 'What Dynamo asked to be guarded (guard_count). How many checks that became stands in the details',
  value: (r) => r.guards,
};

/** One word for all cache lookups of a compilation; the drawer has each. */
export const CACHE: Column<{ cache: CacheResult[] }> = {
  key: 'cache',
  label: 'Cache',
  value: (r) => [...new Set(r.cache.map(({ result }) => result))].sort().join(', ') || null,
  unknown: 'No cache lookup was reported',
  hidden: true,
};

type OfADirection = CompileKey & { direction: string };

/**
 * "backward", or "backward 2 of 2": under DDP one frame is several graphs, and each has a backward that is compiled on
 * its own. In the order of time, as the rows are.
 */
export function directionLabels<Row extends OfADirection>(rows: Row[]): Map<Row, string> {
  const kin = new Map<string, Row[]>();
  for (const row of rows) {
    const key = [row.compile_id, row.epoch, row.direction].join(',');
    kin.set(key, [...(kin.get(key) ?? []), row]);
  }
  return new Map(
    [...kin.values()].flatMap((own) =>
      own.map((row, i) => [
        row,
        own.length > 1 ? `${row.direction} ${i + 1} of ${own.length}` : row.direction,
      ]),
    ),
  );
}

export function directionColumn<Row extends OfADirection>(rows: Row[]): Column<Row> {
  const labels = directionLabels(rows);
  return {
    key: 'direction',
    label: 'Direction',
    help: 'A backward that is compiled when it first runs has a row of its own; under DDP there are several',
    value: (r) => labels.get(r) ?? r.direction,
  };
}
