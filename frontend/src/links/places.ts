import type { Compilation, Finding, Panel } from '../api/types';
import type { HashChange } from '../host/nav.svelte';
import { codeKey, compilationKey, type CompileKey } from '../names/compile_ids';

/** What a finding is about. */
export function toFinding(finding: Finding): HashChange {
  return { ...toPanel(finding.panel), row: finding.row };
}

export function toPanel(panel: Panel): HashChange {
  return { panel: panel === 'overview' ? null : panel, row: null };
}

/** Another rank of the job, by its worker and span. */
export function toRank(rank: { worker: string; span: string }, panel: Panel): HashChange {
  return { ...toPanel(panel), worker: rank.worker, span: rank.span, ...NO_TIMELINE };
}

/** The step with these fixes made. */
export function toWhatIf(fixes: string[]): HashChange {
  return { ...toPanel('what_if'), fixes: fixes.join('\n') };
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

/** What of an artifact is shown: a line, places of a word, or the difference to another one. */
export interface CodeTarget {
  /** Artifact id; without one the output code is shown, or what comes nearest to it. */
  artifact?: number | null;
  line?: number | null;
  find?: string;
  direction?: string;
  /** The other side of a comparison. elsewhere: of the run and worker that this one is compared with. */
  other?: { key: CompileKey; artifact: number | null; elsewhere?: boolean } | null;
}

export function toCode(key: CompileKey, place: CodeTarget = {}): HashChange {
  const { artifact = null, line = null, find = '', direction = '', other = null } = place;
  return {
    panel: 'code',
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
export interface TimelinePlace {
  /** Without both ends: around the slice, or where the timeline opens by itself. */
  from?: number;
  to?: number;
  /** A slice by its row of the trace. */
  row?: number | null;
  /** What is measured, from and to. */
  range?: [number, number];
}

/** What the address says of the timeline of one span, and of no other. */
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
export function toTimeline({ from, to, row, range }: TimelinePlace = {}): HashChange {
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

/** What the address says of one step of a job. */
export const NO_JOB_STEP: HashChange = { job_step: null, job_from: null, job_to: null };

/** A stretch in µs, as the server's tables tell it, measured and with what is around it; row: what took it. */
export function toStretch(from_us: number, to_us: number, row: number | null = null): HashChange {
  const [from, to] = [from_us * 1000, to_us * 1000];
  const room = (to - from) / 8;
  // What is before the recording stays out of view, as far as the stretch does.
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
