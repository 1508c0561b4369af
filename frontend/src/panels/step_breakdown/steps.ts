/** Steps as parts of a bar. */
import type { SlowStep, StepBreakdown, StepPart, StepReport } from '../../api/types';
import { barPart } from '../../names/bar_parts';
import { looks, partKey } from '../../names/step_parts';

/** As parts of a bar: kernels first, the largest in front. */
export function barParts(parts: StepPart[]) {
  return parts
    .toSorted((a, b) => Number(b.kind === 'gpu') - Number(a.kind === 'gpu') || b.time_us - a.time_us)
    .map((part) => {
      const [label, color, title] = looks(part);
      return barPart(partKey(part), label, part.time_us, color, title);
    });
}

export const slowStep = ({ slow, steps }: StepReport, step: StepBreakdown): SlowStep | undefined =>
  slow.find(({ row }) => steps[row] === step);
