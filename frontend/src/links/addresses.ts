import type { Compilation, Finding, Panel, Phase, HostCause, HostKind } from '../api/types';
import type { HashChange } from '../host/nav.svelte';
import { codeKey, compilationKey, type CompileKey } from '../names/compile_ids';
import { isCategory } from '../names/categories';
import { isHostKind } from '../names/causes';

/** What a finding is about. */
export function toFinding(finding: Finding): HashChange {
  return { ...toPanel(finding.panel, finding.section), row: finding.row };
}

/** section: a section, a tab or a table of it. */
export function toPanel(panel: Panel, section = ''): HashChange {
  return { panel: panel === 'overview' ? null : panel, row: null, section: section || null };
}

/** Where the panels of version 0.1 are now: their addresses still lead there. */
const MOVED: Record<string, [panel: Panel, section?: string]> = {
  runs: ['all_runs'],
  step_breakdown: ['step'],
  gpu_utilization: ['step', 'idle'],
  source: ['your_code'],
  modules: ['your_code', 'modules'],
  python: ['your_code', 'functions'],
  compiled_regions: ['compilations', 'regions'],
  cuda_graphs: ['compilations', 'cuda_graphs'],
  exports: ['compilations', 'exports'],
  dynamic_shapes: ['recompiles', 'shapes'],
  what_if: ['findings', 'what_if'],
  pays: ['compare', 'payback'],
  code: ['generated_code'],
  startup: ['compile_time', 'startup'],
};

/** The address of what an old one shows; null where it is not old. */
export function movedTo(panel: string): HashChange | null {
  const [now, section] = (Object.hasOwn(MOVED, panel) && MOVED[panel]) || [];
  return now ? { panel: now, section: section ?? null } : null;
}

/** Another rank of the job, by its worker and span. */
export function toRank(rank: { worker: string; span: string }, panel: Panel): HashChange {
  return { ...toPanel(panel), worker: rank.worker, span: rank.span, ...NO_TIMELINE };
}

/** The step with these fixes applied. */
export function toWhatIf(fixes: string[]): HashChange {
  return { ...toPanel('findings', 'what_if'), fixes: fixes.join('\n') };
}

/** Everything that is known about one compilation. */
export function toCompilation(row: CompileKey | Compilation): HashChange {
  return { panel: 'compilations', row: `${COMPILATION_TABLE}:${compilationKey(row)}` };
}

export const COMPILATION_TABLE = 'compilation';

/** The row of the compile time table. */
export function toCompileTime(row: CompileKey | Compilation): HashChange {
  return { panel: 'compile_time', row: `compilations:${compilationKey(row)}` };
}

/** What is shown of an artifact: a line, occurrences of a word, or the difference to another one. */
interface CodeTarget {
  /** Artifact id; without one the output code is shown, or the closest text. */
  artifact?: number | null;
  line?: number | null;
  find?: string;
  direction?: string;
  /** The other side of a comparison. elsewhere: of the run and worker that this one is compared with. */
  other?: { key: CompileKey; artifact: number | null; elsewhere?: boolean } | null;
}

export function toCode(key: CompileKey, target: CodeTarget = {}): HashChange {
  const { artifact = null, line = null, find = '', direction = '', other = null } = target;
  return {
    panel: 'generated_code',
    row: null,
    code: codeKey(key),
    artifact: artifact === null ? null : String(artifact),
    line: line === null ? null : String(line),
    find,
    // Typed words are searched for in one text; a kernel that a link names, in all output codes.
    seek: find && artifact === null ? '1' : null,
    direction: artifact === null ? direction : null,
    code2: other && codeKey(other.key),
    side2: other?.elsewhere ? 'b' : null,
    artifact2: other && other.artifact !== null ? String(other.artifact) : null,
  };
}

/** The kernels table, narrowed to one category. */
export function toCategory(category: string | null): HashChange {
  return { panel: 'kernels', category, row: null };
}

/** Enough of a name to search for: that of a C++ template may have a thousand characters. */
export const NAME_IN_ADDRESS = 100;

/** A generated kernel in the kernels table: names are unique within a compilation only. */
export function toKernel(name: string, compile_id: string): HashChange {
  return {
    panel: 'kernels',
    row: null,
    category: null,
    'search.kernels': `${name.slice(0, NAME_IN_ADDRESS)} ${compile_id}`.trim(),
  };
}

/** A row of the kernels table by its key. */
export function toKernelRow(key: string): HashChange {
  return { panel: 'kernels', row: `kernels:${key}`, category: null, by: null, 'search.kernels': null };
}

/** A stretch of the timeline and a slice that is chosen on it. Times: integer ns from the trace's first event. */
interface TimelineTarget {
  /** Without both ends: around the slice, or where the timeline opens by itself. */
  from?: number;
  to?: number;
  /** A slice by its row of the trace. */
  row?: number | null;
  /** What is measured, from and to. */
  range?: [number, number];
}

/** Parameters of the address that belong to the timeline of one span. */
export const NO_TIMELINE: HashChange = {
  from: null,
  to: null,
  slice: null,
  range: null,
  lanes: null,
  stretch: null,
  pins: null,
};

/** In the address: `from`, `to` and `slice`. */
export function toTimeline({ from, to, row, range }: TimelineTarget = {}): HashChange {
  const text = (value: number | null | undefined) =>
    value === null || value === undefined ? null : String(Math.round(value));
  return {
    panel: 'timeline',
    row: null,
    from: text(from),
    to: text(to),
    slice: text(row),
    range: range ? range.map(text).join() : null,
  };
}

/** Parameters of the address that belong to one step of a job. */
export const NO_JOB_STEP: HashChange = { job_step: null };

/** An interval in µs, measured and with some room around it; row: the slice that took it. */
export function toStretch(from_us: number, to_us: number, row: number | null = null): HashChange {
  const [from, to] = [from_us * 1000, to_us * 1000];
  const room = (to - from) / 8;
  // Time before the recording stays out of view, unless the interval begins there.
  return toTimeline({
    from: Math.max(Math.min(0, from), from - room),
    to: to + room,
    row,
    range: [from, to],
  });
}

/** The first slice that a name or a compile id finds there, with all others counted. */
export function toSlices(query: string): HashChange {
  return { ...toTimeline(), 'search.timeline': query };
}

/** A part of a picture links to the rows that it is the sum of; with Shift, kernels lead to the timeline. */
export const withShift = (event: Event): boolean => 'shiftKey' in event && event.shiftKey === true;

const LISTS: Record<string, HashChange> = {
  busy: toCategory(null),
  compute: toCategory(null),
  communication: toCategory('communication'),
  memory: toCategory('memcpy'),
  idle: toPanel('step', 'idle'),
  compiled_graph: toPanel('compilations', 'regions'),
  not_recorded: { row: 'warnings' },
  profiler_overhead: toPanel('step'),
};

/** The lines and operators on whose time a step waits for this. */
export const toIdle = (kind: string): HashChange => ({
  ...toPanel('step', 'ledger'),
  'search.ledger': kind.replaceAll('_', ' '),
});

/** key: of a part ("gpu gemm", "idle python", "compute"). */
export function toPart(key: string, event: Event): HashChange {
  const [, kind, part] = /^(?:(\w+) )?(\w+)$/.exec(key)!;
  if (kind === 'host')
    return part === 'compiled_graph' ? toPanel('compilations', 'regions') : toPanel('operators');
  if (part !== 'compiled_graph' && isHostKind(part!)) return toIdle(part);
  const then = withShift(event) ? 'timeline' : null;
  return { ...(isCategory(part!) ? toCategory(part) : LISTS[part!]), then };
}

/** The compilations by what they took in a phase. */
export const toPhase = (phase: Phase): HashChange => ({
  ...toPanel('compile_time', 'compilations'),
  'sort.compilations': `-${phase}_s`,
});

/** The panels that list host time by cause, and their tables. Other causes are found on the timeline by name. */
const HOST_LISTS: Partial<Record<HostCause, [panel: Panel, table?: string]>> = {
  python: ['your_code', 'functions'],
  library: ['your_code', 'functions'],
  operator: ['operators', 'operators'],
  optimizer: ['operators', 'operators'],
  graph: ['compilations', 'regions'],
  guards: ['compilations', 'regions'],
  wrappers: ['compilations', 'regions'],
  compile: ['compile_time'],
  autotuning: ['compile_time'],
  gpu_clock: ['step'],
  slower_kernels: ['kernels', 'kernels'],
  more_work: ['kernels', 'kernels'],
};
const IDLE: Partial<Record<HostCause, HostKind>> = {
  waiting: 'waiting_for_gpu',
  synchronise: 'waiting_for_gpu',
  nothing: 'unaccounted',
  launch: 'kernel_launches',
  data_loading: 'data_loading',
  communication: 'waiting_for_ranks',
};

/** What the host did, by its cause and, where it is known, its name. */
export function toHostCause(cause: HostCause, name: string, event: Event): HashChange {
  const [panel, table] = HOST_LISTS[cause] ?? [];
  if (name && (!panel || withShift(event))) return toSlices(name.slice(0, NAME_IN_ADDRESS));
  if (!panel) return toIdle(IDLE[cause] ?? 'python');
  return {
    ...toPanel(panel, table),
    ...(table && name ? { [`search.${table}`]: name.slice(0, NAME_IN_ADDRESS) } : {}),
  };
}
