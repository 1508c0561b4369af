/** The parts of a step, the same everywhere: kernels by category, then idle time by cause. */
import type { SlowStep, StepBreakdown, StepPart, StepReport } from '../../api/types';
import { duration } from '../../widgets/format';
import { CAUSES } from '../gpu_utilization/causes';
import { categoryColor, categoryHelp, categoryLabel } from '../shared/categories';

type PartName = Pick<StepPart, 'kind' | 'part'>;
export const partKey = ({ kind, part }: PartName) => `${kind} ${part}`;

export function looks({ kind, part }: PartName): [label: string, color: string, help: string] {
  if (kind === 'gpu') {
    const label = categoryLabel(part);
    const exposed = ['communication', 'memcpy', 'memset'].includes(part);
    return [exposed ? `exposed ${label.toLowerCase()}` : label, categoryColor(part), categoryHelp(part)];
  }
  if (part === 'compiled_graph')
    return [
      'compiled graph',
      categoryColor('cpp'),
      'Kernels and library calls of compiled graphs, on the CPU',
    ];
  const [label, color, help] = CAUSES[`${part}_us` as keyof typeof CAUSES] ?? [part, 'var(--idle)', ''];
  return kind === 'host' ? [label, color, help] : [`idle: ${label}`, color, help];
}

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

const REASONS: Record<string, string> = { gc: 'garbage collection', autotune: 'autotuning' };

/** "recompile of 0/1", "garbage collection", "data loading". */
export function reasonWords({ reason, compile_ids }: SlowStep): string {
  if (reason === null) return 'no single cause was recorded';
  if (reason === 'recompile') return `recompile of ${compile_ids.join(', ')}`;
  const cause = CAUSES[`${reason}_us` as keyof typeof CAUSES];
  return REASONS[reason] ?? cause?.[0] ?? categoryLabel(reason);
}
