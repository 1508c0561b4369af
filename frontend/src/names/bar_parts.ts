/** What a GPU did while it was busy, as parts of a bar: the same everywhere. */
import type { Gpu } from '../api/types';
import { duration } from '../widgets/format';

type Busy = Pick<Gpu, 'compute_us' | 'exposed_communication_us' | 'exposed_memory_us'>;

export const barPart = (key: string, label: string, value: number, color: string, title: string) => ({
  key,
  label,
  value,
  text: duration(value),
  color,
  title,
});

export const busyParts = ({ compute_us, exposed_communication_us, exposed_memory_us }: Busy) => [
  barPart('compute', 'compute', compute_us, 'var(--measure)', 'Kernels, neither communication nor copies'),
  barPart(
    'communication',
    'exposed communication',
    exposed_communication_us,
    'var(--cat-communication)',
    'Collectives that ran while nothing was computed',
  ),
  barPart(
    'memory',
    'exposed memory',
    exposed_memory_us,
    'var(--cat-memcpy)',
    'Copies and fills that ran beside no kernel',
  ),
];
