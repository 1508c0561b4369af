/** What a device did as parts of a bar, and what bounds it in words. */
import type {
  Cause,
  DeviceInStep,
  GpuUtilization,
  IdleCauses,
  StepUtilization,
  Verdict,
} from '../../api/types';
import { CAUSES } from '../../names/idle_causes';
import { duration, percent } from '../../widgets/format';

const part = (key: string, label: string, value: number, color: string, title: string) => ({
  key,
  label,
  value,
  text: duration(value),
  color,
  title,
});
export type DevicePart = ReturnType<typeof part>;

const ORDER = Object.keys(CAUSES) as Cause[];

/** Idle time by cause, without what did not occur. */
export function causeParts(idle: IdleCauses): DevicePart[] {
  const parts = ORDER.map((cause) => {
    const [label, color, help] = CAUSES[cause];
    return part(cause, label, idle[`${cause}_us`], color, help);
  });
  return parts.filter(({ value }) => value > 0);
}

/** What one device did in a step: these sum to its wall time. */
export function deviceParts(device: DeviceInStep): DevicePart[] {
  const busy = [
    part('compute', 'compute', device.compute_us, 'var(--measure)', 'Kernels that are not communication'),
    part(
      'communication',
      'exposed communication',
      device.exposed_communication_us,
      'var(--cat-communication)',
      'Collectives that ran while nothing was computed',
    ),
    part(
      'memory',
      'exposed memory',
      device.exposed_memory_us,
      'var(--cat-memcpy)',
      'Copies and fills that ran beside no kernel',
    ),
  ];
  return [
    ...busy.filter((p) => p.value > 0),
    ...causeParts(device.idle).map((p) => ({ ...p, title: `Idle. ${p.title}` })),
  ];
}

/** The same for the mean of several steps. */
export function meanParts(all: DevicePart[][]): DevicePart[] {
  const sums = new Map<string, DevicePart>();
  for (const p of all.flat()) sums.set(p.key, { ...p, value: p.value + (sums.get(p.key)?.value ?? 0) });
  const order = ['compute', 'communication', 'memory', ...ORDER];
  return [...sums.values()]
    .sort((a, b) => order.indexOf(a.key) - order.indexOf(b.key))
    .map((p) => ({ ...p, text: duration(p.value / all.length) }));
}

export const windows = (used: GpuUtilization): StepUtilization[] =>
  used.window ? [used.window] : used.steps;

/** The device that its verdict is about. */
export const busiest = (step: StepUtilization): DeviceInStep =>
  step.devices.find((d) => d.device === step.verdict.device) ?? step.devices[0]!;

/** "Launch bound: 92.3 % of a step of 2.58 ms …" */
export function bound({ bound, share_percent }: Verdict): string {
  return `${bound[0]!.toUpperCase()}${bound.slice(1)} bound${share_percent === null ? '' : ` for ${percent(share_percent)}`}`;
}
