import type { Change } from '../../host/nav.svelte';

/** Compile ids restart after torch._dynamo.reset(): the epoch tells them apart, and is silent where it is 0. */
export interface CompileKey {
  compile_id: string;
  epoch?: number;
}

export function idLabel({ compile_id, epoch = 0 }: CompileKey): string {
  return epoch ? `${compile_id} (after reset ${epoch})` : compile_id;
}

/** `part`: which of several rows with this direction, from 0. */
export function compilationKey(key: CompileKey, direction = 'forward', part = 0): string {
  return [key.compile_id, key.epoch ?? 0, direction].join(',') + (part > 0 ? `~${part + 1}` : '');
}

export function toPanel(panel: string): Change {
  return { panel: panel === 'overview' ? null : panel, row: null };
}

/** Everything that is known about one compilation. */
export function toCompilation(key: CompileKey, direction = 'forward', part = 0): Change {
  return { panel: 'compilations', row: `${COMPILATION_TABLE}:${compilationKey(key, direction, part)}` };
}

export const COMPILATION_TABLE = 'compilation';

/** The row of the compile time table. */
export function toCompileTime(key: CompileKey, direction = 'forward', part = 0): Change {
  return { panel: 'compile_time', row: `compilations:${compilationKey(key, direction, part)}` };
}

/** What of an artifact is shown: a line, places of a word, or the difference to another one. */
export interface CodePlace {
  /** Artifact id; without one the output code is shown, or what comes nearest to it. */
  artifact?: number | null;
  line?: number | null;
  find?: string;
  direction?: string;
  /** The other side of a comparison. elsewhere: of the run and worker that this one is compared with. */
  other?: { key: CompileKey; artifact: number | null; elsewhere?: boolean } | null;
}

export function toCode(key: CompileKey, place: CodePlace = {}): Change {
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

/** "0/0", or "0/0,1" after one reset. */
export function codeKey({ compile_id, epoch = 0 }: CompileKey): string {
  return epoch ? `${compile_id},${epoch}` : compile_id;
}

export function parseCodeKey(text: string): Required<CompileKey> | null {
  const found = /^([^,]+)(?:,(\d+))?$/.exec(text);
  return found && { compile_id: found[1]!, epoch: Number(found[2] ?? 0) };
}

/** The kernels table, narrowed to one category. */
export function toCategory(category: string | null): Change {
  return { panel: 'kernels', category, row: null };
}

/** A generated kernel in the kernels table: names are unique within a compilation only. */
export function toKernel(name: string, compile_id: string): Change {
  return { panel: 'kernels', row: null, category: null, 'search.kernels': `${name} ${compile_id}` };
}

/** A stretch of the timeline and a slice that is chosen on it. Times: integer ns from the trace's first event. */
export interface TimelinePlace {
  /** Without both ends: around the slice, or where the timeline opens by itself. */
  from?: number;
  to?: number;
  /** A slice as the server's answers name it: by both, or by its row of the trace alone. */
  row?: number;
  lane?: number;
}

/** What the address says of the timeline of one span, and of no other. */
export const NO_TIMELINE: Change = {
  from: null,
  to: null,
  slice: null,
  range: null,
  lanes: null,
  stretch: null,
};

/** In the address: `from`, `to`, and `slice` = "row,lane" or "row". */
export function toTimeline({ from, to, row, lane }: TimelinePlace = {}): Change {
  const text = (value: number | undefined) => (value === undefined ? null : String(Math.round(value)));
  return {
    panel: 'timeline',
    row: null,
    from: text(from),
    to: text(to),
    slice: row === undefined ? null : [row, lane].filter((part) => part !== undefined).join(),
  };
}

/** The same stretch in µs, as the server's tables tell it. */
export function toStretch(from_us: number, to_us: number): Change {
  return toTimeline({ from: from_us * 1000, to: to_us * 1000 });
}

/** The first slice that a name or a compile id finds there, with all others counted. */
export function toSlices(query: string): Change {
  return { ...toTimeline(), range: null, 'search.timeline': query };
}
