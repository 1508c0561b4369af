/** The parts of a step, the same everywhere: kernels by category, then idle time by cause. */
import type { Category, SlowStep, StepPart } from '../api/types';
import { categoryColor, categoryHelp, categoryLabel, isCategory } from './categories';
import { CAUSES, type Look } from './idle_causes';

type PartName = Pick<StepPart, 'kind' | 'part'>;
export const partKey = ({ kind, part }: PartName) => `${kind} ${part}`;

const EXPOSED: Category[] = ['communication', 'memcpy', 'memset'];
const HOST: Record<Exclude<StepPart['part'], Category>, Look> = {
  ...CAUSES,
  compiled_graph: [
    'compiled graph',
    categoryColor('cpp'),
    'Kernels and library calls of compiled graphs, on the CPU',
  ],
};

export function looks({ kind, part }: PartName): Look {
  if (isCategory(part)) {
    const label = categoryLabel(part);
    const exposed = EXPOSED.includes(part) ? `exposed ${label.toLowerCase()}` : label;
    return [exposed, categoryColor(part), categoryHelp(part)];
  }
  const [label, color, help] = HOST[part];
  return [kind === 'idle' ? `idle: ${label}` : label, color, help];
}

/** "recompile of 0/1", "garbage collection", "data loading". */
export function reasonWords({ reason, compile_ids }: SlowStep): string {
  if (reason === null) return 'no single cause was recorded';
  if (reason === 'recompile') return `recompile of ${compile_ids.join(', ')}`;
  if (reason === 'gc') return 'garbage collection';
  if (reason === 'autotune') return 'autotuning';
  return isCategory(reason) ? categoryLabel(reason) : HOST[reason][0];
}
