/** What a GPU did while it was busy, as parts of a bar: the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { Gpu } from '../api/types';
import { duration } from '../widgets/format';

type Busy = Pick<Gpu, 'compute_us' | 'exposed_communication_us' | 'exposed_memory_us'>;

/** What is not known is drawn as nothing and said to be unknown. */
export const barPart = (key: string, label: string, value: number | null, color: string, title: string) => ({
  key,
  label,
  value: value ?? 0,
  text: duration(value),
  color,
  title,
});

/** In the order in which they are told. */
const BUSY = [
  ['compute', 'compute', 'compute_us', 'var(--measure)'],
  ['communication', 'exposed communication', 'exposed_communication_us', 'var(--cat-communication)'],
  ['memory', 'exposed memory', 'exposed_memory_us', 'var(--cat-memcpy)'],
] as const;

export const busyParts = (busy: Busy) =>
  BUSY.map(([key, label, us, color]) => barPart(key, label, busy[us], color, meaningOf('device_parts', key)));
