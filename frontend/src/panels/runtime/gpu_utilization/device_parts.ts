/** What a device did as parts of a bar, and what bounds it in words. */
import type {
  Cause,
  DeviceInStep,
  GpuUtilization,
  IdleCauses,
  StepUtilization,
  Verdict,
} from '../../../api/types';
import { barPart, busyParts } from '../../../names/bar_parts';
import { causeHelp, CAUSES } from '../../../names/idle_causes';
import { percent } from '../../../widgets/format';

export type DevicePart = ReturnType<typeof barPart> & { idle?: boolean };

const ORDER = Object.keys(CAUSES) as Cause[];

/** Idle time by cause, without what did not occur. */
export function causeParts(idle: IdleCauses): DevicePart[] {
  const parts = ORDER.map((cause) => {
    const [label, color] = CAUSES[cause];
    return { ...barPart(cause, label, idle[`${cause}_us`], color, causeHelp(cause)), idle: true };
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

export const windows = (used: GpuUtilization): StepUtilization[] =>
  used.window ? [used.window] : used.steps;

/** "Launch bound: 92.3 % of a step of 2.58 ms …" */
export function bound({ bound, share_percent }: Verdict): string {
  return `${bound[0]!.toUpperCase()}${bound.slice(1)} bound${share_percent === null ? '' : ` for ${percent(share_percent)}`}`;
}
