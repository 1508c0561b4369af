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
import { statusWord } from '../../../names/statuses';

const STATUS: Column<Compilation> = {
  key: 'status',
  label: 'Status',
  value: (r) => statusWord(r.status),
};

const REST: Column<Compilation>[] = [
  { key: 'graph_nodes', label: 'Nodes', kind: 'count', hidden: true },
  { key: 'graph_inputs', label: 'Inputs', kind: 'count' },
  GUARDS,
  { key: 'breaks', label: 'Breaks', kind: 'count' },
  CACHE,
  {
    key: 'recompile_reasons',
    label: 'Recompiled because',
    value: (r) => r.recompile_reasons.join('\n') || null,
    hidden: true,
  },
  {
    key: 'failure',
    label: 'Failure',
    value: (r) => (r.failure ? `${r.failure.type}: ${r.failure.reason}` : null),
    hidden: true,
  },
];

export const LIST_COLUMNS: Column<Compilation>[] = [
  ID,
  STATUS,
  DIRECTION,
  DURATION,
  FUNCTION,
  LINE,
  ATTEMPTS,
  GRAPH_OPS,
  ...REST,
];
