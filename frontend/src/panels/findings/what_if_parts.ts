/** A step in pictures: now, and after what was selected. */
import { meaningOf } from '../../api/meanings.svelte';
import type { GpuPart, HostPart } from '../../api/types';
import { barPart, idlePart } from '../../names/parts';
import { HOST_CAUSES, hostHelp } from '../../names/causes';
import { graphName } from '../../names/compile_ids';
import { location, shortPath } from '../../widgets/format';

export const hostKey = ({ cause, name, file, line }: HostPart) => [cause, name, file, line].join(' ');

/** Parts of the host as parts of a bar. */
export function hostParts(parts: HostPart[]) {
  const named = new Set(parts.filter(({ name }) => name).map(({ cause }) => cause));
  return parts.map((part) => {
    const { cause, name, file, line, time_us } = part;
    const [label, color] = HOST_CAUSES[cause];
    const where = file ? ` at ${location(shortPath(file, 1), line)}` : '';
    const text = name ? short(name) + where : named.has(cause) ? `other ${label}` : label;
    const title = name ? `${label}: ${name}${where}` : hostHelp(cause);
    return barPart(hostKey(part), text, time_us, color, title);
  });
}

/** Kernels have names of hundreds of letters. */
function short(name: string): string {
  const text = graphName(name);
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

export function gpuParts({ busy_us, idle_us }: GpuPart) {
  return [
    barPart('busy', 'busy', busy_us, 'var(--measure)', meaningOf('device_parts', 'busy')),
    idlePart(idle_us),
  ];
}

/** Ids of fixes as the address has them. */
export const idsOf = (text: string) => text.split('\n').filter((id) => id !== '');
