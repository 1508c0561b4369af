/** Measures of a rank's steps, and the order of ranks. */
import type { JobMap, JobStep, Measure, RankRow } from '../../api/types';
import { barPart } from '../../names/parts';
import { JOB_PARTS, jobPartHelp, type JobPart } from '../../names/job_parts';
import { median } from '../../widgets/format';

/** In the order in which they are offered. */
export const MEASURES = {
  late_us: 'late',
  span_us: 'span',
  ...Object.fromEntries(Object.entries(JOB_PARTS).map(([part, [label]]) => [part, label])),
  compile_us: 'compile',
} as Record<Measure, string>;

/** What the address names, or what the job is looked at by. */
export const measureOf = (text: string, usual: Measure): Measure =>
  Object.hasOwn(MEASURES, text) ? (text as Measure) : usual;

/** With more ranks, the map has one cell per rank, in rows of this many. */
export const MOST_COLUMNS = 64;

/** What a map shows: indices of ranks in `JobMap`, in order, and the values of each row. */
interface Shown {
  indices: number[];
  /** Of each step, or of the one that is looked at. */
  rows: (number | null)[][];
}

/** step: the one that is looked at, where not all are; "" for their mean. */
export function shownOf(map: JobMap, step: string, outliers: boolean): Shown {
  const of = map.us[map.steps.indexOf(step)];
  const rows = map.ranks.length > MOST_COLUMNS ? [of ?? map.mean_us] : map.us;
  const indices = map.ranks.map((_, index) => index);
  return { indices: outliers ? outliersFirst(indices, rows) : indices, rows };
}

/** Whose files a rank of the job is. */
export function filesOf({ ranks, workers, spans }: JobMap, rank: number) {
  const index = ranks.indexOf(rank);
  return index < 0 ? null : { worker: workers[index]!, span: spans[index]! };
}

export const stepLabel = (step: string) => step.replace('ProfilerStep', '');

/** By how far the farthest value of each is from the middle of its row, farthest first. */
function outliersFirst(indices: number[], rows: (number | null)[][]): number[] {
  const far = indices.map(() => 0);
  for (const row of rows) {
    const middle = median(row.filter((value) => value !== null)) ?? 0;
    row.forEach((value, index) => {
      far[index] = Math.max(far[index]!, Math.abs((value ?? middle) - middle));
    });
  }
  return [...indices].sort((a, b) => far[b]! - far[a]! || a - b);
}

type Communication = Pick<RankRow, 'wait_us' | 'unknown_us' | 'transfer_us'>;

/** How long a rank waits and transfers in collectives. */
export const communicationParts = ({ wait_us, unknown_us, transfer_us }: Communication) => [
  barPart('wait', 'wait', wait_us, JOB_PARTS.exposed_wait_us[1], 'Waiting for another rank'),
  barPart(
    'unknown',
    'wait or transfer',
    unknown_us,
    JOB_PARTS.exposed_unknown_us[1],
    'Waiting or transferring: which one is unknown',
  ),
  barPart('transfer', 'transfer', transfer_us, JOB_PARTS.exposed_transfer_us[1], 'All ranks have arrived'),
];

/** The parts of a step as those of a bar. */
export function stepParts(step: JobStep) {
  return (Object.keys(JOB_PARTS) as JobPart[]).map((key) => {
    const [label, color] = JOB_PARTS[key];
    return barPart(key, label, step[key], color, jobPartHelp(key));
  });
}
