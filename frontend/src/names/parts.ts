/** Parts of bars, the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { Category, HostKind, StepPart } from '../api/types';
import { duration } from '../widgets/format';
import { categoryColor, categoryHelp, categoryLabel, isCategory } from './categories';
import { HOST_KINDS, isHostKind, hostKindHelp, type Look } from './causes';

/** An unknown value is drawn as nothing and labelled as unknown. */
export const barPart = (key: string, label: string, value: number | null, color: string, title: string) => ({
  key,
  label,
  value: value ?? 0,
  text: duration(value),
  color,
  title,
});

/** Without its causes. */
export const idlePart = (value: number) => ({
  ...barPart('idle', 'idle', value, 'var(--idle)', meaningOf('device_parts', 'idle')),
  idle: true,
});

/** A part of a step: kernels by category, then idle time by cause. */
type PartName = Pick<StepPart, 'kind' | 'part'>;
export const partKey = ({ kind, part }: PartName) => `${kind} ${part}`;

const EXPOSED: Category[] = ['communication', 'memcpy', 'memset'];
const OTHERS: Record<Exclude<StepPart['part'], Category | HostKind>, Look> = {
  not_recorded: ['GPU records are missing', 'var(--idle)'],
  profiler_overhead: ['profiler overhead', 'var(--line-strong)'],
};

export function styleOf({ kind, part }: PartName): [...Look, help: string] {
  if (isCategory(part)) {
    const label = categoryLabel(part);
    const exposed = EXPOSED.includes(part) ? `exposed ${label.toLowerCase()}` : label;
    return [exposed, categoryColor(part), categoryHelp(part)];
  }
  const isKind = isHostKind(part);
  const [label, color] = isKind ? HOST_KINDS[part] : OTHERS[part];
  const help = isKind ? hostKindHelp(part) : meaningOf('device_parts', part);
  return [kind === 'idle' ? `idle: ${label}` : label, color, help];
}
