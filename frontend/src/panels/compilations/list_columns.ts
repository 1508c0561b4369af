import type { CompilationRow } from '../../api/types';
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
import { compilationKey } from '../../names/compile_ids';
import { statusHelp, statusWord } from '../../names/statuses';

export function compilationRowKey(row: CompilationRow): string {
  return compilationKey(row, row.direction);
}

const STATUS: Column<CompilationRow> = {
  key: 'status',
  label: 'Status',
  value: (r) => statusWord(r.status),
  title: (r) => statusHelp(r.status),
};

export function listColumns(rows: CompilationRow[]): Column<CompilationRow>[] {
  return [ID, STATUS, directionColumn(rows), DURATION, FUNCTION, LINE, ATTEMPTS, GRAPH_OPS, ...REST];
}

const REST: Column<CompilationRow>[] = [
  { key: 'graph_nodes', label: 'Nodes', kind: 'count', value: (r) => r.graph_nodes, hidden: true },
  { key: 'graph_inputs', label: 'Inputs', kind: 'count', value: (r) => r.graph_inputs },
  GUARDS,
  { key: 'breaks', label: 'Breaks', kind: 'count', help: 'Distinct graph breaks', value: (r) => r.breaks },
  CACHE,
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
