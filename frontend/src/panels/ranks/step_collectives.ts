/** The table of what is joined in one step. */
import type { JoinedCall, JoinedCollective, RankLanes, StepSideBySide } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';
import { toPart, toRank, toTimeline } from '../../links/addresses';
import type { JobPart } from '../../names/job_parts';
import type { Column } from '../../table/table';
import { OPERATION, SIZE } from './job_columns';

export const STEP_TABLE = 'step_collectives';

export const JOINED_COLUMNS: Column<JoinedCollective>[] = [
  { key: 'start_us', label: 'At' },
  OPERATION,
  { key: 'group', label: 'Group', value: ({ group }) => group || null },
  SIZE,
  { key: 'last_rank', label: 'Last rank', kind: 'count' },
  { key: 'wait_us', label: 'Wait', bar: true, total: 'sum' },
  { key: 'transfer_us', label: 'Transfer', total: 'sum', scaleWith: 'wait_us' },
  {
    ...{
      key: 'unknown_us',
      label: 'Not known which',
      total: 'sum',
      scaleWith: 'wait_us',
    },
    hidden: true,
  },
];

/** Its first call identifies it. */
export const joinedKey = ({ calls }: JoinedCollective) => `${calls[0]!.rank} ${calls[0]!.row}`;

/** A call on its rank's own timeline. */
export function toCall(rank: RankLanes, { start_ns, dur_ns, row }: JoinedCall): HashChange {
  const [from, to] = [start_ns - dur_ns, start_ns + 2 * dur_ns].map((ns) => ns + rank.own_ns);
  return { ...toRank(rank, 'timeline'), ...toTimeline({ from: from!, to: to!, row }) };
}

const OF_CALLS: Partial<Record<JobPart, 'wait_ns' | 'transfer_ns' | 'unknown_ns'>> = {
  exposed_wait_us: 'wait_ns',
  exposed_transfer_us: 'transfer_ns',
  exposed_unknown_us: 'unknown_ns',
};

/** Find the call of a rank with most of a part; null if no call has any of it. */
export function longestOf({ collectives }: StepSideBySide, rank: number, part: JobPart) {
  const key = OF_CALLS[part];
  const calls = collectives.flatMap((collective) =>
    collective.calls
      .filter((call) => call.rank === rank && key && call[key])
      .map((call) => ({ collective, call, ns: call[key!]! })),
  );
  return calls.length > 0
    ? calls.reduce((longest, entry) => (entry.ns > longest.ns ? entry : longest))
    : null;
}

const OWN: Partial<Record<JobPart, string>> = {
  exposed_memory_us: 'memory',
  idle_us: 'idle',
  compute_us: 'compute',
};

/** A part that is no call's, in the rank's own panels. */
export function toOwnPart(rank: RankLanes, part: JobPart, event: Event): HashChange {
  return { ...toRank(rank, 'kernels'), ...toPart(OWN[part] ?? 'communication', event) };
}
