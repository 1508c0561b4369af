/** Compiled regions: what a call costs beside its graph. */
import { meaningOf } from '../../api/meanings.svelte';
import type { CompiledRegion, FrameTime } from '../../api/types';
import { barPart } from '../../names/bar_parts';
import type { Look } from '../../names/idle_causes';
import type { Column } from '../../table/table';

type FramePart = 'graphs' | 'guards' | 'overhead' | 'breaks' | 'called' | 'other';
const FRAME_PARTS: Record<FramePart, Look> = {
  graphs: ['graphs', 'var(--measure)'],
  guards: ['guards', 'var(--phase-aot_autograd)'],
  overhead: ['overhead', 'var(--phase-autotune)'],
  breaks: ['breaks', 'var(--warn-line)'],
  called: ['called frames', 'var(--phase-triton)'],
  other: ['other', 'var(--idle)'],
};

/** The parts of a frame's time, which sum to it. */
export const frameParts = (frame: FrameTime) =>
  (Object.entries(FRAME_PARTS) as [FramePart, Look][]).map(([key, [label, color]]) =>
    barPart(key, label, frame[`${key}_us`], color, meaningOf('frame_parts', key)),
  );

const NO_GPU = 'There are no GPU events';
const UNMARKED =
  'The trace does not mark when its graph ran: torch before 2.11, or another back end than inductor';
const NO_WRAPPER = 'torch before 2.8 does not mark it';
const NO_LOG = 'There is no compile log';

export const REGION_COLUMNS: Column<CompiledRegion>[] = [
  { key: 'compile_id', label: 'Compile id' },
  {
    key: 'function',
    label: 'Function',
    show: (r) => r.function!.replace(/^torch_dynamo_resume_in_(.*)_at_(\d+)$/, 'rest of $1, from line $2'),
    title: (r) => r.function ?? '',
    unknown: NO_LOG,
    grow: 1,
  },
  { key: 'calls', label: 'Calls', kind: 'count', total: 'sum' },
  {
    key: 'guard_us_per_call',
    label: 'Guards a call',
    help: 'Evaluating the guards of the cached versions until one holds',
    bar: true,
  },
  {
    key: 'guard_us_per_step',
    label: 'Guards a step',
    total: 'sum',
    unknown: 'No steps were marked',
    scaleWith: 'guard_us_per_call',
  },
  {
    key: 'overhead_us_per_call',
    label: 'Wrapper a call',
    help: 'Pregraph bytecode and AOTDispatcher runtime wrapper prologue',
    unknown: NO_WRAPPER,
    scaleWith: 'guard_us_per_call',
  },
  {
    key: 'graph_us_per_call',
    label: 'Graph a call',
    help: 'Host time of graph execution, forward',
    unknown: UNMARKED,
  },
  {
    key: 'beside_percent',
    label: '% beside it',
    help: 'Guards and wrapper, as a share of guards, wrapper and graph',
    unknown: UNMARKED,
  },
  {
    key: 'guards',
    label: 'Guards',
    kind: 'count',
    help: 'Number of guards of this version',
    unknown: NO_LOG,
  },
  { key: 'cpu_us', label: 'Host', total: 'sum', hidden: true },
  {
    key: 'backward_cpu_us',
    label: 'Backward host',
    help: 'Host time of the backward graphs of this forward',
    value: (r) => (r.backward_calls > 0 ? r.backward_cpu_us : null),
    total: 'sum',
    unknown: 'No backward graph of it ran',
  },
  {
    key: 'gpu_us',
    label: 'GPU',
    help: 'GPU events that it launched, backward too',
    total: 'sum',
    unknown: NO_GPU,
  },
  { key: 'backward_gpu_us', label: 'of it backward', total: 'sum', unknown: NO_GPU },
];
