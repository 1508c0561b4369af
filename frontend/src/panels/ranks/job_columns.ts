/** The tables of a job. */
import type { CollectiveRow, JobReport, LateReason, RankRow } from '../../api/types';
import { graphName } from '../../names/kernel_names';
import { hostHelp, LATE_CAUSES } from '../../names/causes';
import { JOB_PARTS, type JobPart } from '../../names/job_parts';
import { barPart } from '../../names/parts';
import type { Column } from '../../table/table';
import { significant } from '../../widgets/format';

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
  { key: 'typical_us', label: 'Usual', scaleWith: 'excess_us' },
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

export const spaced = (text: string) => text.replaceAll('_', ' ');

export const COLLECTIVE_COLUMNS: Column<CollectiveRow>[] = [
  { key: 'op', label: 'Collective', show: ({ op }) => spaced(op) },
  {
    key: 'group',
    label: 'Group',
    title: ({ ranks }) => (ranks.length > 0 ? `ranks ${ranks.join(', ')}` : ''),
  },
  { key: 'group_size', label: 'Ranks', kind: 'count' },
  { key: 'dtype', label: 'Type' },
  { key: 'message_bytes', label: 'Size', unknown: NO_SIZE },
  { key: 'instances', label: 'Times', kind: 'count', total: 'sum' },
  { key: 'transfer_us', label: 'Transfer', total: 'sum', scaleWith: 'wait_us' },
  { key: 'wait_us', label: 'Wait', total: 'sum' },
  {
    ...{ key: 'unknown_us', label: 'Not known which', total: 'sum', scaleWith: 'wait_us', hidden: true },
  },
  { key: 'wait_percent', label: 'Waiting', bar: true },
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

type Communication = Pick<RankRow, 'wait_us' | 'unknown_us' | 'transfer_us'>;

/** How long a rank waited and transferred in collectives. Each picture has its own order. */
export const communicationParts = ({ wait_us, unknown_us, transfer_us }: Communication) => {
  const part = (key: string, label: string, time_us: number, look: JobPart, title: string) =>
    barPart(key, label, time_us, JOB_PARTS[look][1], title);
  return {
    wait: part('wait', 'wait', wait_us, 'exposed_wait_us', 'Another rank is waited for'),
    unknown: part(
      'unknown',
      'not known which',
      unknown_us,
      'exposed_unknown_us',
      'Either waits or transfers',
    ),
    transfer: part('transfer', 'transfer', transfer_us, 'exposed_transfer_us', 'No rank is waited for'),
  };
};
