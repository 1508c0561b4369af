/** A step in pictures and words: now, and after what was picked. */
import type { GpuPart, HostPart, Predicted, Scenario, StepLength, StepSource } from '../../api/types';
import { HOST_CAUSES } from '../../names/host_causes';
import { graphName } from '../../names/kernel_names';
import { duration, location, plural, predictedRange, shortPath } from '../../widgets/format';

/** Parts of the host as parts of a bar. */
export function hostParts(parts: HostPart[]) {
  const named = new Set(parts.filter(({ name }) => name).map(({ cause }) => cause));
  return parts.map(({ cause, name, file, line, time_us }) => {
    const [label, color, help] = HOST_CAUSES[cause];
    const where = file ? ` at ${location(shortPath(file, 1), line)}` : '';
    return {
      key: [cause, name, file, line].join(' '),
      label: name ? short(name) + where : named.has(cause) ? `other ${label}` : label,
      value: time_us,
      text: duration(time_us),
      color,
      title: name ? `${label}: ${name}${where}` : help,
    };
  });
}

/** Kernels have names of hundreds of letters. */
function short(name: string): string {
  const text = graphName(name);
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

export function gpuParts({ busy_us, idle_us }: GpuPart) {
  return [
    { key: 'busy', label: 'busy', value: busy_us, text: duration(busy_us), color: 'var(--measure)' },
    { key: 'idle', label: 'idle', value: idle_us, text: duration(idle_us), color: 'var(--idle)' },
  ];
}

/** "A step takes", "The span takes" */
export const subject = ({ steps }: StepLength) => (steps > 0 ? 'A step takes' : 'The span takes');

/** "on the host’s clock", "on GPU 0’s clock" */
export const clock = ({ device }: StepLength) =>
  `on ${device === null ? 'the host' : `GPU ${device}`}’s clock`;

/** "recording slowed it from 9.80 ms to 42.5 ms"; "" where that is not known. */
export function slowed({ recorded_us, unrecorded_us }: StepLength): string {
  if (unrecorded_us === null || recorded_us <= unrecorded_us) return '';
  return `Recording slowed it from ${duration(unrecorded_us)} to ${duration(recorded_us)}; predictions are for the step unrecorded.`;
}

/** Where nobody marked steps, what stands for them; "" where that need not be said. */
export const STEPS_FROM: Record<StepSource, string> = {
  profiler: '',
  optimizer: 'No steps were marked: one lasts from the end of an optimizer’s step to the next.',
  compiled_region:
    'No steps were marked: one lasts from a call of the outermost compiled region to the next.',
  span: 'No steps were marked: the whole span is one.',
};

/** "2.80 ms with 2 fixes (2.75–3.04)" */
export function combinedWords({ combined, picked }: Scenario): [after: string, rest: string] {
  const { after_us } = combined!;
  return [duration(after_us), ` with ${plural(picked.length, 'fix', 'fixes')}${rangeOf(combined!)}.`];
}

export function rangeOf(predicted: Predicted): string {
  const range = predictedRange(predicted);
  return range && ` (${range})`;
}

export const gain = ({ step_us, after_us }: Predicted) => 100 * (1 - after_us / step_us);

/** Ids of fixes as the address has them. */
export const idsOf = (text: string) => text.split('\n').filter((id) => id !== '');

/** The ids with this one more, or without it. */
export const toggled = (ids: string[], id: string) =>
  ids.includes(id) ? ids.filter((other) => other !== id) : [...ids, id];
