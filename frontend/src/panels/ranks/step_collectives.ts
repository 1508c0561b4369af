/** The table of what is joined in one step. */
import type { JoinedCollective } from '../../api/types';
import type { Column } from '../../table/table';
import { bytes } from '../../widgets/format';

export const STEP_TABLE = 'step_collectives';

const first = ({ calls }: JoinedCollective) => Math.min(...calls.map(({ start_ns }) => start_ns));
const lastRank = ({ calls }: JoinedCollective) => calls.find(({ last }) => last)?.rank ?? null;

/** What the calls that are known sum to, in µs; null where none is. */
function summed({ matched, calls }: JoinedCollective, key: 'wait_ns' | 'transfer_ns'): number | null {
  return matched ? calls.reduce((sum, call) => sum + (call[key] ?? 0), 0) / 1000 : null;
}

const UNMATCHED = 'Of no known instance';

export const JOINED_COLUMNS: Column<JoinedCollective>[] = [
  {
    key: 'begin',
    label: 'At',
    kind: 'us',
    value: (row) => first(row) / 1000,
    help: 'From the begin of the step',
  },
  { key: 'op', label: 'Collective', show: ({ op }) => op.replaceAll('_', ' ') },
  { key: 'group', label: 'Group' },
  {
    key: 'message_bytes',
    label: 'Size',
    show: (row) => bytes(row.message_bytes!),
    unknown: 'The trace does not tell how much it moves',
  },
  {
    key: 'last',
    label: 'Last rank',
    kind: 'count',
    value: lastRank,
    unknown: 'Nobody is known to have come last',
  },
  {
    key: 'wait',
    label: 'Wait',
    kind: 'us',
    value: (row) => summed(row, 'wait_ns'),
    bar: true,
    total: 'sum',
    unknown: UNMATCHED,
  },
  {
    key: 'transfer',
    label: 'Transfer',
    kind: 'us',
    value: (row) => summed(row, 'transfer_ns'),
    total: 'sum',
    scaleWith: 'wait',
    unknown: UNMATCHED,
  },
];

/** One call of it tells it from all others. */
export const joinedKey = ({ calls }: JoinedCollective) => `${calls[0]!.rank} ${calls[0]!.row}`;
