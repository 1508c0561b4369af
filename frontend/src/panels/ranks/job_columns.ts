/** The tables of a job. */
import type {
  CollectiveRow,
  JobReport,
  LateReason,
  Operation,
  OutlierKind,
  OutlierRow,
  RankRow,
  WaitRow,
  OverlapRow,
} from '../../api/types';
import { graphName, shortKernel } from '../../names/kernel_names';
import { hostHelp, LATE_CAUSES } from '../../names/causes';
import type { Column } from '../../table/table';
import { duration, significant } from '../../widgets/format';

export function rankColumns(job: JobReport): Column<RankRow>[] {
  return [
    { key: 'rank', label: 'Rank', kind: 'count', inset: 8 },
    { key: 'worker', label: 'Worker', hidden: true },
    { key: 'host', label: 'Host', hidden: job.by_rank.every(({ host }) => host === null) },
    {
      key: 'step_us',
      label: 'Step',
    },
    {
      key: 'communication_us',
      label: 'Communication',
      bar: true,
    },
    { key: 'transfer_us', label: 'Transfer', scaleWith: 'communication_us' },
    {
      key: 'wait_us',
      label: 'Wait',
      scaleWith: 'communication_us',
    },
    {
      key: 'unknown_us',
      label: 'Not known which',
      scaleWith: 'communication_us',
      hidden: job.by_rank.every(({ unknown_us }) => unknown_us === 0),
    },
    {
      key: 'unmatched_us',
      label: 'Unmatched',
      scaleWith: 'communication_us',
      hidden: job.unmatched === 0,
    },
    { key: 'last', label: 'Last', kind: 'count' },
    {
      key: 'late_us',
      label: 'Others waited',
      bar: true,
    },
  ];
}

const KINDS: Record<OutlierKind, string> = {
  rank: 'slow rank',
  host: 'slow host',
  link: 'slow link',
  compiled: 'compiled otherwise',
};
const NO_GAIN = 'What compiled otherwise need not be slow';

export const OUTLIER_COLUMNS: Column<OutlierRow>[] = [
  { key: 'name', label: 'Which' },
  { key: 'kind', label: 'What', show: ({ kind }) => KINDS[kind] },
  { key: 'count', label: 'Ranks', kind: 'count' },
  { key: 'longer_us', label: 'Longer', help: 'Than its peers, in a step', unknown: NO_GAIN },
  { key: 'gain_us', label: 'A step is shorter', help: 'With this mended', bar: true, unknown: NO_GAIN },
  { key: 'words', label: 'Why', grow: 3, title: ({ words }) => words },
];

export const WAIT_COLUMNS: Column<WaitRow>[] = [
  { key: 'rank', label: 'Rank', kind: 'count' },
  { key: 'for_rank', label: 'Waits for', kind: 'count' },
  { key: 'wait_us', label: 'Wait', bar: true, total: 'sum' },
];

/** A cause with its rank. */
export interface LateRow extends LateReason {
  rank: number;
}

export const lateRows = (job: JobReport): LateRow[] =>
  job.late.flatMap(({ rank, causes }) => causes.map((cause) => ({ ...cause, rank })));

export const lateLabel = ({ cause, name }: LateReason) => (name ? graphName(name) : LATE_CAUSES[cause][0]);
export const lateKey = (row: LateRow) => [row.rank, row.cause, row.name, row.where].join(',');

export const LATE_COLUMNS: Column<LateRow>[] = [
  { key: 'rank', label: 'Rank', kind: 'count' },
  { key: 'name', label: 'Culprit', value: lateLabel, title: (row) => row.name || lateLabel(row), grow: 2 },
  {
    key: 'cause',
    label: 'What',
    show: ({ cause }) => LATE_CAUSES[cause][0],
    meaning: ({ cause }) => hostHelp(cause),
  },
  { key: 'where', label: 'Your line' },
  { key: 'excess_us', label: 'Longer' },
  { key: 'usual_us', label: 'Usual', scaleWith: 'excess_us' },
];

const NO_SIZE = 'The trace does not tell how much it moves';
const rate = (key: 'algbw_gb_s' | 'busbw_gb_s', label: string, help: string): Column<CollectiveRow> => ({
  key,
  label,
  kind: 'count',
  help,
  show: (row) => significant(row[key]!),
  unknown: NO_SIZE,
});

type Part = 'wait' | 'transfer';

/** Columns of how the ranks differ in one part: the maximum and its rank; others are hidden. */
function byRank(part: Part, label: string): Column<CollectiveRow>[] {
  const scaleWith = `${part}_max_us`;
  return [
    { key: `${part}_min_us` as const, label: `${label}, least`, scaleWith, hidden: true },
    { key: `${part}_min_rank` as const, label: `${label} least, rank`, kind: 'count', hidden: true },
    { key: `${part}_median_us` as const, label: `${label}, middle`, scaleWith, hidden: true },
    { key: `${part}_max_us` as const, label: `${label}, most`, help: 'Of one rank', hidden: part !== 'wait' },
    { key: `${part}_max_rank` as const, label: 'Its rank', kind: 'count', hidden: part !== 'wait' },
  ];
}

/** "0 µs (rank 2) … 4.00 ms … 6.00 ms (rank 0)": least, middle and most of its ranks. */
export const spread = (row: CollectiveRow, part: Part) =>
  [
    `${duration(row[`${part}_min_us`])} (rank ${row[`${part}_min_rank`]})`,
    duration(row[`${part}_median_us`]),
    `${duration(row[`${part}_max_us`])} (rank ${row[`${part}_max_rank`]})`,
  ].join(' … ');

export const spaced = (text: string) => text.replaceAll('_', ' ');

/** Of whatever is about collectives. */
export const OPERATION = {
  key: 'op',
  label: 'Collective',
  show: ({ op }: { op: Operation }) => spaced(op),
} as const;
export const SIZE = { key: 'message_bytes', label: 'Size', unknown: NO_SIZE } as const;

export const COLLECTIVE_COLUMNS: Column<CollectiveRow>[] = [
  OPERATION,
  {
    key: 'group',
    label: 'Group',
    title: ({ ranks }) => (ranks.length > 0 ? `ranks ${ranks.join(', ')}` : ''),
  },
  { key: 'group_size', label: 'Ranks', kind: 'count' },
  { key: 'dtype', label: 'Type' },
  SIZE,
  { key: 'instances', label: 'Times', kind: 'count', total: 'sum' },
  { key: 'transfer_us', label: 'Transfer', total: 'sum', scaleWith: 'wait_us' },
  { key: 'wait_us', label: 'Wait', total: 'sum' },
  {
    ...{ key: 'unknown_us', label: 'Not known which', total: 'sum', scaleWith: 'wait_us', hidden: true },
  },
  { key: 'wait_percent', label: 'Waiting', bar: true },
  ...byRank('wait', 'Wait'),
  ...byRank('transfer', 'Transfer'),
  rate('algbw_gb_s', 'Alg. GB/s', 'Size over the shortest transfer among its ranks'),
  rate('busbw_gb_s', 'Bus GB/s', 'What the link carries'),
  {
    key: 'end_skew_us_p95',
    label: 'End skew',
    kind: 'us',
    help: 'How far apart its ranks are done, 95th percentile',
  },
];

export const collectiveKey = (row: CollectiveRow) =>
  [row.group, row.op, row.dtype, row.message_bytes, row.ranks.join(' ')].join(',');

/** The table of kernels that overlap with collectives. */
export const overlapLabel = ({ name }: OverlapRow) => shortKernel(name);
export const overlapKey = (row: OverlapRow) => [row.name, row.compile_id, row.grid].join(',');

export const OVERLAP_COLUMNS: Column<OverlapRow>[] = [
  { key: 'name', label: 'Kernel', value: overlapLabel, title: ({ name }) => name, grow: 2 },
  { key: 'compile_id', label: 'Compile id' },
  { key: 'grid', label: 'Grid', hidden: true },
  { key: 'beside', label: 'Beside', kind: 'count' },
  { key: 'known', label: 'Known', kind: 'count' },
  { key: 'alone_us', label: 'Alone', scaleWith: 'beside_us' },
  { key: 'beside_us', label: 'Beside' },
  { key: 'wait_percent', label: 'Waiting' },
  { key: 'loss_us', label: 'Longer', total: 'sum' },
];
