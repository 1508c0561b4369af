/**
 * The server's data of the lanes, in tiles: 1024 buckets of 2^level ns each, so that a bucket is about a pixel.
 * Tiles begin at multiples of their length: what was fetched once serves every view of its level.
 */
import type { View } from '../canvas/view';

type Numbers = ArrayLike<number>;

/** One answer. Columns by (lane, line, time); the plots of lanes that are no slices have their own. */
export interface Window {
  bucket: number;
  names: string[];
  start: Float64Array;
  dur: Float64Array;
  name: Numbers;
  color: Numbers;
  count: Numbers;
  busy: Numbers;
  row: Numbers;
  at: Float64Array;
  greatest: Numbers;
  last: Numbers;
}

/** One lane of a tile: line i is lines[i] … lines[i + 1] of the columns; the plot is first … end of its own. */
export interface LaneTile {
  window: Window;
  lines: number[];
  first: number;
  end: number;
}

export interface Slice {
  lane: number;
  line: number;
  row: number;
  name: string;
  start: number;
  dur: number;
  color: number;
  /** More than one: slices too short to be drawn apart; `row` and `name` are those of the longest. */
  count: number;
  busy: number;
}

const BUCKETS = 1024;
/** What a full share is sent as. */
const BUSY = 65535;
/** Tiles that are kept: each is at most about 400 kB. */
const KEPT = 48;
/** Browsers ask one server six things at a time; others want to ask too. */
const AT_ONCE = 3;
/** After a failure. */
const PAUSE_MS = 4000;

const TYPES: Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => Numbers> = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
};

/** Reads an answer; each lane that was asked for has a part, also when nothing is in it, and so has any other in it. */
export function decode(buffer: ArrayBuffer, lanes: number[]): Map<number, LaneTile> {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))) as {
    aligned: [number, number];
    bucket_ns: number;
    names: string[];
    columns: Record<string, { dtype: string; offset: number; length: number }>;
  };
  const column = (name: string) => {
    const { dtype, offset, length } = header.columns[name]!;
    const at = 4 + size + offset;
    if (dtype !== 'i5') return new TYPES[dtype]!(buffer, at, length);
    const high = new Int8Array(buffer, at + 4 * length, length);
    return new Float64Array(new Uint32Array(buffer, at, length)).map((low, i) => low + high[i]! * 2 ** 32);
  };
  const times = (name: string) => new Float64Array(column(name)).map((time) => time + header.aligned[0]);
  const window: Window = {
    bucket: header.bucket_ns,
    names: header.names,
    start: times('start'),
    dur: new Float64Array(column('dur')),
    name: column('name'),
    color: column('color'),
    count: column('count'),
    busy: new Float32Array(column('busy')).map((share) => share / BUSY),
    row: column('row'),
    at: times('counter_start'),
    greatest: column('counter_max'),
    last: column('counter_last'),
  };
  const parts = new Map(lanes.map((id) => [id, { window, lines: [] as number[], first: 0, end: 0 }]));
  const lane = column('lane');
  const line = column('depth');
  const partOf = (id: number) => {
    if (!parts.has(id)) parts.set(id, { window, lines: [], first: 0, end: 0 });
    return parts.get(id)!;
  };
  for (let i = 0; i < lane.length;) {
    const id = lane[i]!;
    const part = partOf(id);
    for (; lane[i] === id; i++) while (part.lines.length <= line[i]!) part.lines.push(i);
    part.lines.push(i);
  }
  const plot = column('counter_lane');
  for (let i = 0; i < plot.length; i++) {
    const part = partOf(plot[i]!);
    if (part.end === 0) part.first = i;
    part.end = i + 1;
  }
  return parts;
}

/** The first of low … high in ascending order that is greater than the value. */
export function after(values: ArrayLike<number>, value: number, low: number, high: number): number {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function sliceOf({ window }: LaneTile, i: number, lane: number, line: number): Slice {
  return {
    lane,
    line,
    row: window.row[i]!,
    name: window.names[window.name[i]!]!,
    start: window.start[i]!,
    dur: window.dur[i]!,
    color: window.color[i]!,
    count: window.count[i]!,
    busy: window.busy[i]!,
  };
}

export const lengthOf = (level: number) => BUCKETS * 2 ** level;

/** The level at which a bucket is nearest to one of `width` pixels. */
export function levelFor({ from, to }: View, width: number): number {
  return Math.max(0, Math.round(Math.log2((to - from) / Math.max(1, width))));
}

const keyOf = (level: number, index: number) => level * 2 ** 46 + index;

export type Fetch = (
  from: number,
  to: number,
  width: number,
  lanes: number[],
  signal: AbortSignal,
) => Promise<ArrayBuffer>;

/** Fetches tiles as they are wanted, nearest first, and forgets those that were not looked at for long. */
export class Tiles {
  readonly root: number;
  /** What the strip shows. */
  strip: View;
  #kept = new Map<number, Map<number, LaneTile>>();
  #coming = new Map<number, AbortController>();
  #ends = new Map<number, View>();
  #paused = 0;

  constructor(
    readonly all: View,
    private fetch: Fetch,
    private changed: () => void,
    private failed: (error: unknown) => void,
    /** Lanes that are asked for when all others are there. */
    private later: ReadonlySet<number> = new Set(),
  ) {
    this.strip = all;
    this.root = Math.max(0, Math.ceil(Math.log2((all.to - all.from) / BUCKETS)));
  }

  get(level: number, index: number, lane: number): LaneTile | undefined {
    return this.#kept.get(keyOf(level, index))?.get(lane);
  }

  /** The tile, or a coarser one around it. */
  nearest(level: number, index: number, lane: number): LaneTile | undefined {
    for (; level <= this.root; level++, index = Math.floor(index / 2)) {
      const part = this.get(level, index, lane);
      if (part) return part;
    }
    return undefined;
  }

  /** The coarsest tiles of a lane, all of the time together. */
  whole(lane: number): LaneTile[] {
    return this.#between(this.root, this.all)
      .map((index) => this.get(this.root, index, lane))
      .filter((part) => part !== undefined);
  }

  /** The tiles of a lane over a stretch, as fine as the strip shows it, or as they have come. */
  over(lane: number, view: View, width: number): LaneTile[] {
    const level = Math.min(this.root, levelFor(view, width));
    const parts = this.#between(level, view).map((index) => this.nearest(level, index, lane));
    return [...new Set(parts)].filter((part) => part !== undefined);
  }

  /** The greatest value of a plot. */
  greatest(lane: number): number {
    let most = 0;
    for (const { first, end, window } of this.whole(lane))
      for (let i = first; i < end; i++) most = Math.max(most, window.greatest[i]!);
    return most;
  }

  /** From the first slice of a lane to the end of its last one. */
  ends(lane: number): View | null {
    let extent = this.#ends.get(lane);
    if (extent !== undefined) return extent;
    const parts = this.whole(lane);
    if (parts.length < this.#between(this.root, this.all).length) return null;
    extent = { from: Infinity, to: -Infinity };
    for (const { lines, window } of parts)
      for (let i = lines[0] ?? 0; i < (lines.at(-1) ?? 0); i++) {
        extent.from = Math.min(extent.from, window.start[i]!);
        extent.to = Math.max(extent.to, window.start[i]! + window.dur[i]!);
      }
    this.#ends.set(lane, extent);
    return extent;
  }

  /** Whether all that the view shows is there as fine as it can be, but for lanes that come later. */
  complete(view: View, width: number, lanes: number[]): boolean {
    const level = Math.min(this.root, levelFor(view, width));
    const soon = lanes.filter((lane) => !this.later.has(lane));
    return this.#between(level, view).every((i) => soon.every((lane) => this.get(level, i, lane)));
  }

  /** Fetch the tiles of the view and next to it; cancel requests for tiles that are no longer needed. */
  want(view: View, width: number, lanes: number[]): void {
    if (Date.now() < this.#paused || lanes.length === 0) return;
    const wanted = this.#wanted(view, width);
    for (const [key, abort] of this.#coming) if (!wanted.has(key)) this.#drop(key, abort);
    for (const [key, [level, index]] of wanted) {
      const cached = this.#kept.get(key);
      if (cached) this.#touch(key, cached);
      if (this.#coming.size >= AT_ONCE || this.#coming.has(key)) continue;
      const missing = lanes.filter((lane) => !cached?.has(lane));
      const soon = missing.filter((lane) => !this.later.has(lane));
      const next = soon.length > 0 ? soon : missing;
      if (next.length > 0) void this.#ask(key, level, index, next);
    }
  }

  stop(): void {
    for (const [key, abort] of this.#coming) this.#drop(key, abort);
  }

  #between(level: number, { from, to }: View): number[] {
    const length = lengthOf(level);
    const first = Math.floor(Math.max(from, this.all.from) / length);
    const last = Math.floor(Math.min(to, this.all.to) / length);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
  }

  #wanted(view: View, width: number): Map<number, [number, number]> {
    const level = Math.min(this.root, levelFor(view, width));
    const more = view.to - view.from;
    const wanted = new Map<number, [number, number]>();
    const add = (at: number, stretch: View) =>
      this.#between(at, stretch).forEach((index) => wanted.set(keyOf(at, index), [at, index]));
    add(level, view);
    // What is shown for a moment where nothing finer has come yet.
    add(this.root, this.all);
    add(Math.min(this.root, levelFor(this.strip, width)), this.strip);
    add(level, { from: view.from - more, to: view.to + more });
    return wanted;
  }

  async #ask(key: number, level: number, index: number, lanes: number[]): Promise<void> {
    const abort = new AbortController();
    this.#coming.set(key, abort);
    const from = index * lengthOf(level);
    try {
      const answer = await this.fetch(from, from + lengthOf(level), BUCKETS, lanes, abort.signal);
      if (abort.signal.aborted) return;
      const parts = decode(answer, lanes);
      const cached = this.#kept.get(key) ?? new Map<number, LaneTile>();
      for (const [lane, part] of parts) cached.set(lane, part);
      this.#touch(key, cached);
      this.#forget();
      if (this.#paused) this.failed(null);
      this.#paused = 0;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#paused = Date.now() + PAUSE_MS;
      this.failed(error);
      setTimeout(this.changed, PAUSE_MS + 1);
    }
    this.#coming.delete(key);
    this.changed();
  }

  #drop(key: number, abort: AbortController): void {
    abort.abort();
    this.#coming.delete(key);
  }

  #touch(key: number, parts: Map<number, LaneTile>): void {
    this.#kept.delete(key);
    this.#kept.set(key, parts);
  }

  #forget(): void {
    for (const key of this.#kept.keys()) {
      if (this.#kept.size <= KEPT) return;
      this.#kept.delete(key);
    }
  }
}
