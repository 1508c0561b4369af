/** Steps as parts of a bar. */
import type { SlowStep, StepBreakdown, StepPart, StepReport } from '../../../api/types';
import { barPart, styleOf, partKey } from '../../../names/parts';
import { uniqueKeys } from '../../../table/table';
import type { HashChange } from '../../../host/nav.svelte';
import { withShift, toStretch } from '../../../links/addresses';
import { duration } from '../../../widgets/format';

/** As parts of a bar: kernels first, the largest in front. */
export function barParts(parts: StepPart[]) {
  return parts
    .toSorted((a, b) => Number(b.kind === 'gpu') - Number(a.kind === 'gpu') || b.time_us - a.time_us)
    .map((part) => {
      const [label, color, title] = styleOf(part);
      return { ...barPart(partKey(part), label, part.time_us, color, title), idle: part.kind === 'idle' };
    });
}

/** key: of a column. */
export function toStep(report: StepReport, key: string, event: Event): HashChange {
  const step = report.steps.find((row) => uniqueKeys(report.steps, stepKey).get(row) === key);
  return withShift(event) && step
    ? toStretch(step.start_us, step.start_us + step.wall_us)
    : { panel: 'step_breakdown', row: `steps:${key}` };
}

const stepKey = (row: StepBreakdown) => row.step ?? '';

/** One column a step, stacked like the bar of the mean one. */
export function stackedSteps(report: StepReport) {
  const rank = new Map(barParts(report.mean_parts).map(({ key }, i) => [key, i]));
  const keys = uniqueKeys(report.steps, stepKey);
  return report.steps.map((row) => {
    const slow = slowStep(report, row);
    return {
      key: keys.get(row)!,
      label: row.step?.replace('ProfilerStep', '') ?? '',
      value: row.wall_us,
      parts: barParts(row.parts).sort((a, b) => rank.get(a.key)! - rank.get(b.key)!),
      marked: !!slow,
      title: `${row.step}: ${duration(row.wall_us)}${slow ? `, slow: ${slow.why}` : ''}`,
    };
  });
}

export const slowStep = ({ slow, steps }: StepReport, step: StepBreakdown): SlowStep | undefined =>
  slow.find(({ row }) => steps[row] === step);
