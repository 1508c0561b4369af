/** Why a GPU idles: words and colours, the same everywhere. */
import type { Cause } from '../api/types';

export type Look = [label: string, color: string, help: string];

/** In the order in which a moment is told: the first that holds. */
export const CAUSES: Record<Cause, Look> = {
  compile: ['compile', 'var(--phase-inductor)', 'torch.compile was compiling or autotuning'],
  communication_wait: [
    'communication wait',
    'var(--cat-communication)',
    'Inside a call of c10d, NCCL, Gloo …',
  ],
  synchronise: ['synchronise', 'var(--phase-aot_autograd)', 'Waiting for the device: .item(), a copy, …'],
  data_loading: ['data loading', 'var(--phase-triton)', 'Waiting for the next batch of a DataLoader'],
  guards_wrapper: [
    'guards and wrapper',
    'var(--phase-dynamo)',
    'Cache lookup (guards), pregraph bytecode and runtime wrapper of a compiled region',
  ],
  break_eager: [
    'break or eager op',
    'var(--warn-line)',
    'Between the graphs of a broken frame, or in an operator that no graph holds',
  ],
  launch_call: [
    'operators, launching',
    'var(--phase-autotune)',
    'Calls into the runtime or driver, in compiled graphs with the operators and launchers around them',
  ],
  python: ['Python', 'var(--phase-cache)', 'Whatever else was recorded: Python between operators'],
  nothing_launched: [
    'nothing launched',
    'var(--idle)',
    'Nothing was recorded on the thread that launched next, or its launch is not in the trace',
  ],
};

export const causeLabel = (cause: Cause): string => CAUSES[cause][0];
