/** What a rank's steps are looked at by, and in which order ranks stand. */
import type { JobReport, JobStep, WaitRow } from '../../api/types';
import { barPart } from '../../names/bar_parts';
import { JOB_PARTS, jobPartHelp, type JobPart } from '../../names/job_parts';
import { median } from '../../widgets/charts/buckets';

export type Measure = JobPart | 'span_us' | 'compile_us';

/** In the order in which they are offered. */
export const MEASURES: Record<Measure, string> = {
  span_us: 'span',
  exposed_wait_us: JOB_PARTS.exposed_wait_us[0],
  exposed_transfer_us: JOB_PARTS.exposed_transfer_us[0],
  exposed_unknown_us: JOB_PARTS.exposed_unknown_us[0],
  compute_us: JOB_PARTS.compute_us[0],
  overlapped_us: JOB_PARTS.overlapped_us[0],
  exposed_memory_us: JOB_PARTS.exposed_memory_us[0],
  idle_us: JOB_PARTS.idle_us[0],
  compile_us: 'compile',
};
export const USUAL: Measure = 'exposed_wait_us';
const isMeasure = (text: string): text is Measure => Object.hasOwn(MEASURES, text);

/** What the address names. */
export const measureOf = (text: string): Measure => (isMeasure(text) ? text : USUAL);

export const stepLabel = (step: string) => step.replace('ProfilerStep', '');
export const stepNames = (steps: JobStep[]) => [...new Set(steps.map(({ step }) => step))];

/** (rank, step) → its row. */
export function byPlace(steps: JobStep[]): (rank: number, step: string) => JobStep | undefined {
  const rows = new Map(steps.map((row) => [`${row.rank} ${row.step}`, row]));
  return (rank, step) => rows.get(`${rank} ${step}`);
}

/** Ranks by how far the farthest of their steps is from the middle of the ranks, farthest first. */
export function outliersFirst(ranks: number[], steps: JobStep[], measure: Measure): number[] {
  const middles = new Map(
    stepNames(steps).map((name) => [
      name,
      median(steps.filter(({ step }) => step === name).map((row) => row[measure])) ?? 0,
    ]),
  );
  const far = new Map<number, number>();
  for (const row of steps)
    far.set(row.rank, Math.max(far.get(row.rank) ?? 0, Math.abs(row[measure] - middles.get(row.step)!)));
  return [...ranks].sort((a, b) => (far.get(b) ?? 0) - (far.get(a) ?? 0) || a - b);
}

/** The parts of a step as those of a bar. */
export function stepParts(step: JobStep) {
  return (Object.keys(JOB_PARTS) as JobPart[]).map((key) => {
    const [label, color] = JOB_PARTS[key];
    return barPart(key, label, step[key], color, jobPartHelp(key));
  });
}

/** (who waits, for whom) → how long; 0 where nobody did. */
export function waitedFor(waits: WaitRow[]): (rank: number, other: number) => number {
  const rows = new Map(waits.map((row) => [`${row.rank} ${row.for_rank}`, row.wait_us]));
  return (rank, other) => rows.get(`${rank} ${other}`) ?? 0;
}

/** All that have a row, in order. */
export const ranksOf = (job: JobReport) => job.by_rank.map(({ rank }) => rank);
