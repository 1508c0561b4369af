/** A step in pictures: now, and after what was picked. */
import type { GpuPart, HostPart, Predicted } from '../../api/types';
import { HOST_CAUSES } from '../../names/host_causes';
import { graphName } from '../../names/kernel_names';
import { duration, location, predictedRange, shortPath } from '../../widgets/format';

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

export function rangeOf(predicted: Predicted): string {
  const range = predictedRange(predicted);
  return range && ` (${range})`;
}

/** Ids of fixes as the address has them. */
export const idsOf = (text: string) => text.split('\n').filter((id) => id !== '');
