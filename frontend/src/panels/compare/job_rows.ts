/** The tables of two jobs: each number as A, B and the change from A to B. */
import { JOB_PARTS, type JobPart } from '../../names/job_parts';
import { LATE_CAUSES } from '../../names/late_causes';
import type { CollectiveCompared, LateCompared, Pair, RankCompared } from '../../api/types';
import type { Column } from '../../table/table';
import { bytes } from '../../widgets/format';

type Side = keyof Pair;
const SIDES: [Side, string][] = [
  ['a', ' A'],
  ['b', ' B'],
  ['delta', ' change'],
];

/** Columns of one number. */
function sides<Row>(
  key: string,
  label: string,
  pair: (row: Row) => Pair,
  more: Partial<Column<Row>> = {},
): Column<Row>[] {
  return SIDES.map(([side, word]) => ({
    ...more,
    key: `${key}_${side}`,
    label: label + word,
    value: (row: Row) => pair(row)[side],
    scaleWith: `${key}_a`,
    unknown: 'Not known on a side',
  })) as Column<Row>[];
}

const part = (key: JobPart): Column<RankCompared>[] =>
  sides<RankCompared>(key, JOB_PARTS[key][0], (row) => row[key], {
    kind: 'us',
    help: JOB_PARTS[key][2],
    hidden: key !== 'exposed_wait_us',
  });

export const RANK_CHANGES: Column<RankCompared>[] = [
  { key: 'rank', label: 'Rank', kind: 'count' },
  ...sides<RankCompared>('step_us', 'Step', (row) => row.step_us, { kind: 'us' }),
  ...sides<RankCompared>('late_us', 'Others waited', (row) => row.late_us, {
    kind: 'us',
    help: 'For it, together, a step',
  }),
  ...(Object.keys(JOB_PARTS) as JobPart[]).flatMap(part),
];

export const LATE_CHANGES: Column<LateCompared>[] = [
  { key: 'rank', label: 'Rank', kind: 'count' },
  { key: 'cause', label: 'What', show: ({ cause }) => LATE_CAUSES[cause][0], grow: 1 },
  { key: 'name', label: 'Culprit', grow: 1 },
  { key: 'where', label: 'Your line', unknown: 'No Python stack tells it: record with with_stack=True' },
  ...sides<LateCompared>('excess_us', 'Longer', (row) => row.excess_us, {
    kind: 'us',
    help: 'Than on its peers, a step',
  }),
];

export const COLLECTIVE_CHANGES: Column<CollectiveCompared>[] = [
  { key: 'op', label: 'Collective', show: ({ op }) => op.replaceAll('_', ' ') },
  { key: 'group', label: 'Group' },
  { key: 'message_bytes', label: 'Size', show: (row) => bytes(row.message_bytes!), unknown: 'Not recorded' },
  ...sides<CollectiveCompared>('transfer_us', 'Transfer', (row) => row.transfer_us, { kind: 'us' }),
  ...sides<CollectiveCompared>('wait_us', 'Wait', (row) => row.wait_us, { kind: 'us' }),
  ...sides<CollectiveCompared>('busbw_gb_s', 'Bus GB/s', (row) => row.busbw_gb_s, { kind: 'count' }),
];

export const rankChangeKey = (row: RankCompared) => String(row.rank);
export const lateChangeKey = (row: LateCompared) => [row.rank, row.cause, row.name, row.where].join();
export const collectiveChangeKey = (row: CollectiveCompared) =>
  [row.group, row.op, row.dtype, row.message_bytes].join();
