/** Tables of the GPU utilization panel. */
import type {
  DeviceInStep,
  GapBin,
  HostKind,
  IdleGap,
  LaunchCall,
  StepUtilization,
  Stream,
  IdleReason,
  GpuUtilization,
  IdleCauses,
  Verdict,
} from '../../api/types';
import { count, duration, THIN, location, shortPath, percent } from '../../widgets/format';
import { isInsufficient } from '../../api/findings.svelte';
import { meaningOf } from '../../api/meanings.svelte';
import type { Column } from '../../table/table';
import { shortKernel } from '../../names/kernel_names';
import {
  idleReasonName,
  HOST_CAUSES,
  HOST_KINDS,
  hostHelp,
  hostKindHelp,
  hostKindLabel,
} from '../../names/causes';
import { barPart, busyParts, idlePart } from '../../names/parts';

export const gapKey = (gap: IdleGap) => `${gap.device},${gap.start_us}`;

export const GAP_COLUMNS: Column<IdleGap>[] = [
  { key: 'start_us', label: 'Start' },
  { key: 'device', label: 'Device', kind: 'count', hidden: true },
  { key: 'idle_us', label: 'Idle', bar: true },
  {
    key: 'cause',
    label: 'Mostly',
    show: (r) => hostKindLabel(r.cause),
    meaning: (r) => hostKindHelp(r.cause),
  },
  { key: 'step', label: 'Step' },
  { key: 'after', label: 'After', show: (r) => shortKernel(r.after!), grow: 1, title: (r) => r.after ?? '' },
  { key: 'before', label: 'Before', show: (r) => shortKernel(r.before), grow: 1, title: (r) => r.before },
];

export interface DeviceStep extends DeviceInStep {
  step: StepUtilization;
  name: string;
}

/** One row per step and device. */
export function deviceSteps(steps: StepUtilization[]): DeviceStep[] {
  return steps.flatMap((step) =>
    step.devices.map((device) => ({ ...device, step, name: step.step ?? 'the whole span' })),
  );
}

export const STEP_COLUMNS: Column<DeviceStep>[] = [
  { key: 'step', label: 'Step', value: (r) => r.name },
  { key: 'device', label: 'Device', kind: 'count' },
  { key: 'wall_us', label: 'Wall', value: (r) => r.step.wall_us },
  { key: 'busy_us', label: 'Busy', scaleWith: 'wall_us' },
  { key: 'busy_percent', label: 'Busy %', bar: true },
  { key: 'idle_us', label: 'Idle', scaleWith: 'wall_us' },
  {
    key: 'bound',
    label: 'Bound by',
    value: (r) => r.step.verdict.bound,
    meaning: (r) => meaningOf('bounds', r.step.verdict.bound),
  },
  { key: 'launches', label: 'Launches', kind: 'count', value: (r) => r.step.launches },
  { key: 'kernel_launch_us', label: 'Launch calls', value: (r) => r.step.kernel_launch_us },
  { key: 'graph_replays', label: 'Graph replays', kind: 'count', value: (r) => r.step.graph_replays },
];

export const STREAM_COLUMNS: Column<Stream>[] = [
  { key: 'device', label: 'Device', kind: 'count' },
  { key: 'stream', label: 'Stream', kind: 'count' },
  { key: 'events', label: 'Kernels and copies', kind: 'count', total: 'sum' },
  { key: 'busy_us', label: 'Busy' },
  { key: 'busy_percent', label: 'Busy %', bar: true },
];

export const CALL_COLUMNS: Column<LaunchCall>[] = [
  { key: 'name', label: 'Call' },
  { key: 'calls', label: 'Calls', kind: 'count', total: 'sum' },
  { key: 'gpu_events', label: 'Launched', kind: 'count', total: 'sum' },
  { key: 'time_us', label: 'Time', bar: true, total: 'sum' },
  { key: 'median_us', label: 'Median' },
  { key: 'max_us', label: 'Max', scaleWith: 'median_us' },
];

/** Columns of the histogram: the height is idle time, the title shows the number of gaps. */
export function binItems(bins: GapBin[]) {
  return bins.map((bin) => {
    const range =
      bin.to_us === null ? `≥ ${duration(bin.from_us)}` : `${duration(bin.from_us)} – ${duration(bin.to_us)}`;
    return {
      key: String(bin.from_us),
      label: bin.from_us < 1000 ? `${bin.from_us || '<1'}${THIN}µs` : `${bin.from_us / 1000}${THIN}ms`,
      value: bin.idle_us,
      part: bin.idle_us,
      title: `${range}: ${count(bin.gaps)} gaps, ${duration(bin.idle_us)} in all`,
    };
  });
}

/** The table of what held a GPU up. */
export const IDLE_REASON_COLUMNS: Column<IdleReason>[] = [
  {
    key: 'name',
    label: 'Culprit',
    value: (r) => r.name || HOST_CAUSES[r.cause][0],
    show: idleReasonName,
    title: (r) => `${HOST_CAUSES[r.cause][0]}: ${hostHelp(r.cause)}`,
    grow: 2,
  },
  { key: 'device', label: 'Device', kind: 'count', hidden: true },
  { key: 'idle_us', label: 'Idle', total: 'sum' },
  {
    key: 'share_percent',
    label: '% of idle',
    bar: true,
    total: 'sum',
  },
  {
    key: 'cause',
    label: 'What',
    show: (r) => HOST_CAUSES[r.cause][0],
    meaning: (r) => hostHelp(r.cause),
  },
  {
    key: 'line',
    label: 'Your line',
    value: (r) => (r.file ? location(shortPath(r.file, 1), r.line) : null),
    title: (r) => (r.file ? location(r.file, r.line) : ''),
  },
  { key: 'calls', label: 'Calls', kind: 'count' },
  { key: 'pattern', label: 'When', value: (r) => r.pattern || null },
  { key: 'longest_us', label: 'Longest', scaleWith: 'idle_us' },
];

type DevicePart = ReturnType<typeof barPart> & { idle?: boolean };

const KINDS = Object.keys(HOST_KINDS) as HostKind[];

/** Idle time by cause, without what did not occur. */
export function causeParts(idle: IdleCauses): DevicePart[] {
  const parts = KINDS.map((kind) => {
    const [label, color] = HOST_KINDS[kind];
    return { ...barPart(kind, label, idle[`${kind}_us`], color, hostKindHelp(kind)), idle: true };
  });
  return parts.filter(({ value }) => value > 0);
}

/** What one device did in a step: these sum to its wall time. */
export function deviceParts(device: DeviceInStep): DevicePart[] {
  return [
    ...busyParts(device).filter(({ value }) => value > 0),
    ...(isInsufficient()
      ? [idlePart(device.idle_us)]
      : causeParts(device.idle).map((p) => ({ ...p, title: `Idle. ${p.title}` }))),
  ];
}

export const windows = (used: GpuUtilization): StepUtilization[] =>
  used.window ? [used.window] : used.steps;

/** "Launch bound for 92.3 %" */
export const bound = ({ bound, share_percent }: Verdict): string =>
  `${bound[0]!.toUpperCase()}${bound.slice(1)} bound for ${percent(share_percent)}`;
