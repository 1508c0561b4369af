/** The parts of a step, the same everywhere: kernels by category, then idle time by cause. */
import type { Category, StepPart } from '../api/types';
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
