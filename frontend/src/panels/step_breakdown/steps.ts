/** Steps as parts of a bar. */
import type { SlowStep, StepBreakdown, StepPart, StepReport } from '../../api/types';
import { looks, partKey } from '../../names/step_parts';
import { duration } from '../../widgets/format';

/** The mean of the steps as parts of a bar: kernels first, the largest in front. */
export function meanParts(steps: StepBreakdown[]) {
  const sums = new Map<string, StepPart>();
  for (const part of steps.flatMap((step) => step.parts)) {
    const key = partKey(part);
    sums.set(key, { ...part, time_us: part.time_us + (sums.get(key)?.time_us ?? 0) });
  }
  return [...sums]
    .sort(([, a], [, b]) => Number(b.kind === 'gpu') - Number(a.kind === 'gpu') || b.time_us - a.time_us)
    .map(([key, part]) => {
      const [label, color, title] = looks(part);
      const value = part.time_us / steps.length;
      return { key, label, value, text: duration(value), color, title };
    });
}

export const slowStep = ({ slow, steps }: StepReport, step: StepBreakdown): SlowStep | undefined =>
  slow.find(({ row }) => steps[row] === step);
