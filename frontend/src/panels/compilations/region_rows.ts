/** Compiled regions: what a call costs in addition to its graph. */
import { meaningOf } from '../../api/meanings.svelte';
import type { CompiledRegion, FrameTime } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';
import { withShift, toPanel, toSlices } from '../../links/addresses';
import { barPart } from '../../names/parts';
import { functionName } from '../../names/compile_ids';
import type { Look } from '../../names/causes';
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

/** The first region of the frame, in the table sorted by this part. With Shift: its calls on the timeline. */
export function toFramePart(compile_id: string, key: string, event: Event): HashChange {
  if (withShift(event)) return toSlices(`Region: ${compile_id}`);
  if (key === 'breaks') return toPanel('graph_breaks');
  return { row: `compiled_regions:${compile_id}`, 'sort.compiled_regions': SORTS[key as FramePart] ?? null };
}

const SORTS: Partial<Record<FramePart, string>> = {
  graphs: '-graph_us_per_call',
  guards: '-guard_us_per_call',
  overhead: '-overhead_us_per_call',
};

export const REGION_COLUMNS: Column<CompiledRegion>[] = [
  { key: 'compile_id', label: 'Compile id' },
  {
    key: 'function',
    label: 'Function',
    show: (r) => functionName(r.function!),
    title: (r) => r.function ?? '',
    grow: 1.4,
  },
  { key: 'calls', label: 'Calls', kind: 'count', total: 'sum' },
  {
    key: 'guard_us_per_call',
    label: 'Guards a call',
    bar: true,
  },
  {
    key: 'guard_us_per_step',
    label: 'Guards a step',
    total: 'sum',
    scaleWith: 'guard_us_per_call',
  },
  {
    key: 'overhead_us_per_call',
    label: 'Wrapper a call',
    scaleWith: 'guard_us_per_call',
  },
  {
    key: 'graph_us_per_call',
    label: 'Graph a call',
  },
  {
    key: 'overhead_percent',
    label: '% beside it',
  },
  {
    key: 'guards',
    label: 'Guards',
    kind: 'count',
    hidden: true,
  },
  { key: 'cpu_us', label: 'Host', total: 'sum', hidden: true },
  {
    key: 'backward_cpu_us',
    label: 'Backward host',
    value: (r) => (r.backward_calls > 0 ? r.backward_cpu_us : null),
    total: 'sum',
  },
  {
    key: 'gpu_us',
    label: 'GPU',
    total: 'sum',
  },
  { key: 'backward_gpu_us', label: 'of it backward', total: 'sum', hidden: true },
];
