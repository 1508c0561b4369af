/** What a device did as parts of a bar, and what bounds it in words. */
import type {
  Cause,
  DeviceInStep,
  GpuUtilization,
  IdleCauses,
  StepUtilization,
  Verdict,
} from '../../api/types';
import { barPart, busyParts } from '../../names/bar_parts';
import { CAUSES } from '../../names/idle_causes';
import { duration, percent } from '../../widgets/format';

export type DevicePart = ReturnType<typeof barPart>;

const ORDER = Object.keys(CAUSES) as Cause[];

/** Idle time by cause, without what did not occur. */
export function causeParts(idle: IdleCauses): DevicePart[] {
  const parts = ORDER.map((cause) => {
    const [label, color, help] = CAUSES[cause];
    return barPart(cause, label, idle[`${cause}_us`], color, help);
  });
  return parts.filter(({ value }) => value > 0);
}

/** What one device did in a step: these sum to its wall time. */
export function deviceParts(device: DeviceInStep): DevicePart[] {
  return [
    ...busyParts(device).filter(({ value }) => value > 0),
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
