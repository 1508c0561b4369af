/** Compiled regions: what a call costs beside its graph. */
import type { CallOverhead, Compile, CompiledRegion, FrameTime, Span } from '../../api/types';
import { duration, percent, plural, significant } from '../../widgets/format';
import type { Column } from '../../table/table';

export interface RegionRow extends CompiledRegion {
  epoch: number;
  function: string | null;
  guards: number | null;
}

/** The regions of the trace with what the log knows of them: the latest of each compile id. */
export function regionRows(compile: Compile | null, span: Span): RegionRow[] {
  const known = new Map(
    compile?.compilations.filter((c) => c.direction === 'forward').map((c) => [c.compile_id, c]),
  );
  return span.compiled_regions.map((region) => ({
    ...region,
    epoch: known.get(region.compile_id)?.epoch ?? 0,
    function: known.get(region.compile_id)?.function ?? null,
    guards: known.get(region.compile_id)?.guards ?? null,
  }));
}

const calls = (n: number) => (Number.isInteger(n) ? plural(n, 'call') : `${significant(n)} calls`);

/** "Guards and wrappers take 275 µs a step, 4.56 % of it; …" */
export function verdict(overhead: CallOverhead | null): { strong: string; rest: string } {
  if (!overhead) return { strong: '', rest: '' };
  const { steps, guard_us, overhead_us, graph_us, backward_us } = overhead;
  const each = steps || 1;
  const per = (us: number) => duration(us / each);
  const where = steps > 0 ? ' a step' : ' in this span';
  const beside = guard_us + (overhead_us ?? 0);
  const share = percent((100 * beside) / overhead.window_us);
  const [what, parts] =
    overhead_us === null
      ? ['Guards take', '']
      : ['Guards and wrappers take', `: guards ${per(guard_us)}, wrappers ${per(overhead_us)}`];
  const backward = backward_us > 0 ? ` and backward for ${per(backward_us)}` : '';
  const useful =
    graph_us === null
      ? 'The trace does not mark all of their graphs.'
      : `Their graphs run for ${per(graph_us)}${backward}; ${percent(overhead.beside_percent)} of all this is overhead of the calls.`;
  return {
    strong: `${what} ${per(beside)}${where}`,
    rest: `, ${share} of it${parts}, for ${calls(overhead.calls / each)}. ${useful}`,
  };
}

/** The parts of a frame's time, which sum to it. */
export function frameParts(frame: FrameTime): { label: string; value: number | null; help: string }[] {
  return [
    { label: 'graphs', value: frame.graphs_us, help: 'Graph execution' },
    { label: 'guards', value: frame.guards_us, help: 'Cache lookups: evaluating guards' },
    { label: 'overhead', value: frame.overhead_us, help: 'Pregraph bytecode and runtime wrapper prologue' },
    { label: 'breaks', value: frame.breaks_us, help: 'Between graphs, without guards and overhead' },
    { label: 'called frames', value: frame.called_us, help: 'Other compiled frames called from this one' },
    { label: 'other', value: frame.other_us, help: 'The rest, up to the end of the region' },
  ];
}

const NO_GPU = 'There are no GPU events';
const UNMARKED =
  'The trace does not mark when its graph ran: torch before 2.11, or another back end than inductor';
const NO_WRAPPER = 'torch before 2.8 does not mark it';
const NO_LOG = 'There is no compile log';
const perCall = (us: number, r: RegionRow) => us / r.calls;

export function regionColumns(span: Span): Column<RegionRow>[] {
  const steps = span.steps.length;
  const inSteps = new Map(span.call_overhead?.regions.map((region) => [region.compile_id, region]));
  const guards = (r: RegionRow) => (steps > 0 ? (inSteps.get(r.compile_id)?.guard_us ?? 0) / steps : null);
  const at = COLUMNS.findIndex(({ key }) => key === 'guard_us_per_call') + 1;
  return COLUMNS.toSpliced(at, 0, {
    key: 'guard_us_per_step',
    label: 'Guards a step',
    kind: 'us',
    value: guards,
    total: 'sum',
    unknown: 'No steps were marked',
    scaleWith: 'guard_us_per_call',
  });
}

const COLUMNS: Column<RegionRow>[] = [
  { key: 'compile_id', label: 'Compile id', value: (r) => r.compile_id },
  {
    key: 'function',
    label: 'Function',
    value: (r) => r.function,
    show: (r) => r.function!.replace(/^torch_dynamo_resume_in_(.*)_at_(\d+)$/, 'rest of $1, from line $2'),
    title: (r) => r.function ?? '',
    unknown: NO_LOG,
    grow: 1,
  },
  { key: 'calls', label: 'Calls', kind: 'count', value: (r) => r.calls, total: 'sum' },
  {
    key: 'guard_us_per_call',
    label: 'Guards a call',
    kind: 'us',
    help: 'Evaluating the guards of the cached versions until one holds',
    value: (r) => perCall(r.guard_us, r),
    bar: true,
  },
  {
    key: 'overhead_us_per_call',
    label: 'Wrapper a call',
    kind: 'us',
    help: 'Pregraph bytecode and AOTDispatcher runtime wrapper prologue',
    value: (r) => r.overhead_us && perCall(r.overhead_us, r),
    unknown: NO_WRAPPER,
    scaleWith: 'guard_us_per_call',
  },
  {
    key: 'graph_us_per_call',
    label: 'Graph a call',
    kind: 'us',
    help: 'Host time of graph execution, forward',
    value: (r) => r.graph_us && perCall(r.graph_us, r),
    unknown: UNMARKED,
  },
  {
    key: 'beside_percent',
    label: '% beside it',
    kind: 'percent',
    help: 'Guards and wrapper, as a share of guards, wrapper and graph',
    value: (r) => {
      const beside = r.guard_us + (r.overhead_us ?? 0);
      return r.graph_us === null || beside === 0 ? null : (100 * beside) / (beside + r.graph_us);
    },
    unknown: UNMARKED,
  },
  {
    key: 'guards',
    label: 'Guards',
    kind: 'count',
    help: 'Number of guards of this version',
    value: (r) => r.guards,
    unknown: NO_LOG,
  },
  { key: 'cpu_us', label: 'Host', kind: 'us', value: (r) => r.cpu_us, total: 'sum', hidden: true },
  {
    key: 'backward_cpu_us',
    label: 'Backward host',
    kind: 'us',
    help: 'Host time of the backward graphs of this forward',
    value: (r) => (r.backward_calls > 0 ? r.backward_cpu_us : null),
    total: 'sum',
    unknown: 'No backward graph of it ran',
  },
  {
    key: 'gpu_us',
    label: 'GPU',
    kind: 'us',
    help: 'GPU events that it launched, backward too',
    value: (r) => r.gpu_us,
    total: 'sum',
    unknown: NO_GPU,
  },
  {
    key: 'backward_gpu_us',
    label: 'of it backward',
    kind: 'us',
    value: (r) => r.backward_gpu_us,
    total: 'sum',
    unknown: NO_GPU,
  },
];
