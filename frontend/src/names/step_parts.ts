/** The parts of a step, the same everywhere: kernels by category, then idle time by cause. */
import type { Category, StepPart } from '../api/types';
import { categoryColor, categoryHelp, categoryLabel, isCategory } from './categories';
import { CAUSES, causeHelp, type Look } from './idle_causes';
import { meaningOf } from '../api/meanings.svelte';

type PartName = Pick<StepPart, 'kind' | 'part'>;
export const partKey = ({ kind, part }: PartName) => `${kind} ${part}`;

const EXPOSED: Category[] = ['communication', 'memcpy', 'memset'];
const HOST: Record<Exclude<StepPart['part'], Category>, Look> = {
  ...CAUSES,
  compiled_graph: ['compiled graph', categoryColor('cpp')],
};

export function looks({ kind, part }: PartName): [...Look, help: string] {
  if (isCategory(part)) {
    const label = categoryLabel(part);
    const exposed = EXPOSED.includes(part) ? `exposed ${label.toLowerCase()}` : label;
    return [exposed, categoryColor(part), categoryHelp(part)];
  }
  const [label, color] = HOST[part];
  const help = part === 'compiled_graph' ? meaningOf('device_parts', part) : causeHelp(part);
  return [kind === 'idle' ? `idle: ${label}` : label, color, help];
}
