import type { CompilationRow } from '../../api/types';
import { location, shortPath } from '../../widgets/format';
import type { Column } from '../../widgets/table';
import { cacheWord } from '../compile_time/rows';
import { compilationKey, idLabel } from '../shared/places';
import { statusHelp, statusWord } from './status';

export function compilationRowKey(row: CompilationRow): string {
  return compilationKey(row, row.direction);
}

const NOT_TOLD = 'torch did not report it';

export const LIST_COLUMNS: Column<CompilationRow>[] = [
  {
    key: 'compile_id',
    label: 'Compile id',
    help: 'Frame / how many times this frame was compiled before',
    value: (r) => r.compile_id,
    show: idLabel,
  },
  {
    key: 'status',
    label: 'Status',
    value: (r) => statusWord(r.status),
    title: (r) => statusHelp(r.status),
  },
  { key: 'direction', label: 'Direction', value: (r) => r.direction },
  { key: 'function', label: 'Function', value: (r) => r.function || null, grow: 1, unknown: NOT_TOLD },
  {
    key: 'file',
    label: 'Line',
    value: (r) => (r.file ? location(r.file, r.line) : null),
    show: (r) => location(shortPath(r.file, 1), r.line),
    title: (r) => location(r.file, r.line),
    unknown: NOT_TOLD,
  },
  {
    key: 'duration_s',
    label: 'Compile time',
    kind: 's',
    value: (r) => r.duration_s,
    bar: true,
    total: 'sum',
    unknown: NOT_TOLD,
  },
  {
    key: 'attempts',
    label: 'Attempts',
    kind: 'count',
    help: 'Dynamo starts a frame over when it finds a graph break or a new assumption',
    value: (r) => r.attempts,
    unknown: NOT_TOLD,
  },
  {
    key: 'graph_ops',
    label: 'Ops',
    kind: 'count',
    help: 'Operations in the graph',
    value: (r) => r.graph_ops,
  },
  { key: 'graph_nodes', label: 'Nodes', kind: 'count', value: (r) => r.graph_nodes, hidden: true },
  { key: 'graph_inputs', label: 'Inputs', kind: 'count', value: (r) => r.graph_inputs },
  { key: 'guards', label: 'Guards', kind: 'count', value: (r) => r.guards },
  { key: 'breaks', label: 'Breaks', kind: 'count', help: 'Distinct graph breaks', value: (r) => r.breaks },
  {
    key: 'cache',
    label: 'Cache',
    value: (r) => cacheWord(r.cache),
    unknown: 'No cache lookup was reported',
    hidden: true,
  },
  {
    key: 'recompile_reasons',
    label: 'Recompiled because',
    value: (r) => r.recompile_reasons.join('\n') || null,
    unknown: 'Not a recompile',
    hidden: true,
  },
  {
    key: 'failure',
    label: 'Failure',
    value: (r) => (r.failure ? `${r.failure.type}: ${r.failure.reason}` : null),
    unknown: 'None',
    hidden: true,
  },
];
