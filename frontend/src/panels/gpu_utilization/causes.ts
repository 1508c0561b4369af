/** Why a GPU idles, and what bounds a step: words and colours, the same everywhere. */
import type { DeviceInStep, GpuUtilization, IdleCauses, StepUtilization, Verdict } from '../../api/types';
import { duration, percent } from '../../widgets/format';

type Cause = keyof IdleCauses;

/** In the order in which a moment is told: the first that holds. */
export const CAUSES: Record<Cause, [label: string, color: string, help: string]> = {
  compile_us: ['compile', 'var(--phase-inductor)', 'torch.compile was compiling or autotuning'],
  communication_wait_us: [
    'communication wait',
    'var(--cat-communication)',
    'Inside a call of c10d, NCCL, Gloo …',
  ],
  synchronise_us: ['synchronise', 'var(--phase-aot_autograd)', 'Waiting for the device: .item(), a copy, …'],
  data_loading_us: ['data loading', 'var(--phase-triton)', 'Waiting for the next batch of a DataLoader'],
  guards_wrapper_us: [
    'guards and wrapper',
    'var(--phase-dynamo)',
    'Cache lookup (guards), pregraph bytecode and runtime wrapper of a compiled region',
  ],
  break_eager_us: [
    'break or eager op',
    'var(--warn-line)',
    'Between the graphs of a broken frame, or in an operator that no graph holds',
  ],
  launch_call_us: [
    'launch call',
    'var(--phase-autotune)',
    'Launching: calls into the runtime or driver, and the launchers around them in compiled graphs',
  ],
  python_us: ['Python', 'var(--phase-cache)', 'Whatever else was recorded: Python between operators'],
  nothing_launched_us: [
    'nothing launched',
    'var(--idle)',
    'Nothing was recorded on the thread that launched next, or its launch is not in the trace',
  ],
};

const CAUSE_KEYS = Object.keys(CAUSES) as Cause[];

/** "guards_wrapper" → "guards and wrapper" */
export const causeLabel = (cause: string): string => CAUSES[`${cause}_us` as Cause]?.[0] ?? cause;

const part = (key: string, label: string, value: number, color: string, title: string) => ({
  key,
  label,
  value,
  text: duration(value),
  color,
  title,
});
export type Part = ReturnType<typeof part>;

/** Idle time by cause, without what did not occur. */
export function causeParts(idle: IdleCauses): Part[] {
  return CAUSE_KEYS.filter((key) => idle[key] > 0).map((key) => {
    const [label, color, help] = CAUSES[key];
    return part(key, label, idle[key], color, help);
  });
}

/** What one device did in a step: these sum to its wall time. */
export function deviceParts(device: DeviceInStep): Part[] {
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
export function meanParts(all: Part[][]): Part[] {
  const sums = new Map<string, Part>();
  for (const p of all.flat()) sums.set(p.key, { ...p, value: p.value + (sums.get(p.key)?.value ?? 0) });
  const order = [...deviceOrder, ...CAUSE_KEYS];
  return [...sums.values()]
    .sort((a, b) => order.indexOf(a.key) - order.indexOf(b.key))
    .map((p) => ({ ...p, text: duration(p.value / all.length) }));
}
const deviceOrder = ['compute', 'communication', 'memory'];

export const windows = (found: GpuUtilization): StepUtilization[] =>
  found.window ? [found.window] : found.steps;

/** The device that its verdict is about. */
export const busiest = (step: StepUtilization): DeviceInStep =>
  step.devices.find((d) => d.device === step.verdict.device) ?? step.devices[0]!;

export const BOUND: Record<Verdict['bound'], string> = {
  compute: 'The device computes for the largest part of the time.',
  communication: 'Most of the time only communication runs, or the host waits for it.',
  input: 'The device waits for data.',
  compile: 'The device waits for torch.compile.',
  launch: 'The device waits for the host to launch work.',
};

/** "Launch bound: 92.3 % of a step of 2.58 ms …" */
export function bound({ bound, share_percent }: Verdict): string {
  return `${bound[0]!.toUpperCase()}${bound.slice(1)} bound${share_percent === null ? '' : ` for ${percent(share_percent)}`}`;
}

/** What CUDA graphs could bring, or that they are in use; "" where launching is not what bounds. */
export function graphsWords({ verdict, launch_side, steps }: GpuUtilization): string {
  const each = Math.max(1, steps.length);
  if (verdict && verdict.share_percent === null && verdict.wall_us > 0) {
    return `Each launches work for ${duration(verdict.least_us / each)}: the host is ahead of the device.`;
  }
  if (verdict?.bound !== 'launch' || !launch_side) return '';
  const { replays, gpu_time_percent } = launch_side.cuda_graphs;
  if (replays > 0) return `CUDA graphs already run ${percent(gpu_time_percent)} of the GPU time.`;
  const [from, to] = [verdict.wall_us / each, verdict.least_us / each];
  return `With CUDA graphs ${steps.length > 0 ? 'this step' : 'this'} could drop from ${duration(from)} to at least ${duration(to)}.`;
}
