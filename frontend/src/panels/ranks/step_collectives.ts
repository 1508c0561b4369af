/** The table of what is joined in one step. */
import type { JoinedCollective } from '../../api/types';
import type { Column } from '../../table/table';
import { OPERATION, SIZE } from './job_columns';

export const STEP_TABLE = 'step_collectives';

const UNMATCHED = 'Of no known instance';

export const JOINED_COLUMNS: Column<JoinedCollective>[] = [
  { key: 'start_us', label: 'At', help: 'From the begin of the step' },
  OPERATION,
  { key: 'group', label: 'Group', value: ({ group }) => group || null, unknown: UNMATCHED },
  SIZE,
  { key: 'last_rank', label: 'Last rank', kind: 'count', unknown: 'Nobody is known to have come last' },
  { key: 'wait_us', label: 'Wait', bar: true, total: 'sum', unknown: UNMATCHED },
  { key: 'transfer_us', label: 'Transfer', total: 'sum', scaleWith: 'wait_us', unknown: UNMATCHED },
  {
    ...{
      key: 'unknown_us',
      label: 'Not known which',
      total: 'sum',
      scaleWith: 'wait_us',
      unknown: UNMATCHED,
    },
    hidden: true,
  },
];

/** One call of it tells it from all others. */
export const joinedKey = ({ calls }: JoinedCollective) => `${calls[0]!.rank} ${calls[0]!.row}`;
