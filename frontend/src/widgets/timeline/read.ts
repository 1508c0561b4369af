/** What is on the lanes, at the detail that is there. */
import type { LaidLane } from './lanes';
import { after, lengthOf, levelFor, sliceOf, type LaneTile, type Slice, type Tiles } from './tiles';
import type { ArrowKey, View } from '../canvas/view';

interface Tally {
  slices: number;
  /** A few names, outermost and earliest first. */
  names: string[];
}

const FEW = 3;

/** What is on one lane in view, at the detail that is there. */
export class Reader {
  constructor(
    readonly tiles: Tiles,
    readonly view: View,
    readonly width: number,
  ) {}

  get level(): number {
    return Math.min(this.tiles.root, levelFor(this.view, this.width));
  }

  get slack(): number {
    return (this.view.to - this.view.from) / this.width;
  }

  part(lane: number, time: number): LaneTile | undefined {
    return this.tiles.nearest(this.level, Math.floor(time / lengthOf(this.level)), lane);
  }

  /** The slice of a line that holds a time, or is nearest to it within some pixels. */
  at(lane: number, line: number, time: number, pixels = 2): Slice | null {
    const part = this.part(lane, time);
    if (!part) return null;
    const { start, dur } = part.window;
    const [low, high] = [part.lines[line] ?? 0, part.lines[line + 1] ?? 0];
    const i = after(start, time, low, high);
    const far = pixels * this.slack;
    const before = i > low ? time - (start[i - 1]! + dur[i - 1]!) : Infinity;
    const next = i < high ? start[i]! - time : Infinity;
    if (Math.min(before, next) > far) return null;
    return sliceOf(part, before <= next ? i - 1 : i, lane, line);
  }

  /** The line that a row is drawn on; the first one if that is unknown. */
  lineOf(lane: number, row: number, start: number): number {
    const part = this.part(lane, start);
    for (let line = 0; part && line < part.lines.length - 1; line++) {
      const high = part.lines[line + 1]!;
      const i = after(part.window.start, start, part.lines[line]!, high) - 1;
      if (i >= part.lines[line]! && part.window.row[i] === row) return line;
    }
    return 0;
  }

  /** The slice of a line that begins next after a time (or last before it), in view or just outside. */
  next(lane: number, line: number, time: number, by: 1 | -1): Slice | null {
    const length = lengthOf(this.level);
    let index = Math.floor(time / length);
    for (let n = 0; n < 4; n++, index += by) {
      const part = this.tiles.nearest(this.level, index, lane);
      if (!part) return null;
      const { start } = part.window;
      const [low, high] = [part.lines[line] ?? 0, part.lines[line + 1] ?? 0];
      const i = by > 0 ? after(start, time, low, high) : after(start, time - 0.5, low, high) - 1;
      if (i >= low && i < high) return sliceOf(part, i, lane, line);
    }
    return null;
  }

  /** Calls for each slice of a lane in view, tile by tile, by line and time, until it returns false. */
  each(lane: number, visit: (part: LaneTile, i: number, line: number) => boolean | void): void {
    const { from, to } = this.view;
    const length = lengthOf(this.level);
    for (let left = from; left < to; left = (Math.floor(left / length) + 1) * length) {
      const part = this.part(lane, left);
      if (!part) continue;
      const { start, dur } = part.window;
      const end = Math.min(to, (Math.floor(left / length) + 1) * length);
      for (let line = 0; line < part.lines.length - 1; line++) {
        const [low, high] = [part.lines[line]!, part.lines[line + 1]!];
        let i = after(start, left, low, high);
        // What began before the view; what began in a tile before this one was met there.
        if (left === from && i > low && start[i - 1]! + dur[i - 1]! > from) i--;
        for (; i < high && start[i]! < end; i++) if (visit(part, i, line) === false) return;
      }
    }
  }

  /** Null: nothing has been fetched, it is not on screen. */
  tally(lane: number, colors: Set<number>): Tally | null {
    if (!this.part(lane, this.view.from)) return null;
    const names = new Set<string>();
    let slices = 0;
    this.each(lane, ({ window }, i) => {
      slices += window.count[i]!;
      colors.add(window.color[i]!);
      if (names.size < FEW) names.add(window.names[window.name[i]!]!);
    });
    return { slices, names: [...names] };
  }

  /** The slices of a lane in view, at most so many. */
  all(lane: number, most: number): Slice[] {
    const slices: Slice[] = [];
    this.each(lane, (part, i, line) => {
      if (slices.length < most) slices.push(sliceOf(part, i, lane, line));
      return slices.length < most;
    });
    return slices;
  }
}

/** The neighbour of a slice: earlier, later, around it, inside it; over the edge of a lane into the next one. */
export function neighbour(read: Reader, laid: LaidLane[], slice: Slice | null, step: ArrowKey): Slice | null {
  const lanes = laid.filter((lane) => lane.look !== 'plot');
  const { from, to } = read.view;
  if (!slice) return firstOf(read, lanes, (from + to) / 2);
  if (step === 'left') return read.next(slice.lane, slice.line, slice.start, -1);
  if (step === 'right') return read.next(slice.lane, slice.line, slice.start, 1);
  const middle = Math.max(from, Math.min(to, slice.start + slice.dur / 2));
  const by = step === 'up' ? -1 : 1;
  let k = lanes.findIndex((lane) => lane.id === slice.lane);
  let line = slice.line + by;
  while (k >= 0 && k < lanes.length) {
    for (; line >= 0 && line < lanes[k]!.lines; line += by) {
      const hit = near(read, lanes[k]!.id, line, middle, slice, step);
      if (hit) return hit;
    }
    k += by;
    line = by > 0 ? 0 : (lanes[k]?.lines ?? 0) - 1;
  }
  return slice;
}

/** Below a slice the first one inside it, otherwise the nearest in view. */
function near(
  read: Reader,
  lane: number,
  line: number,
  time: number,
  slice: Slice,
  step: ArrowKey,
): Slice | null {
  const inside = step === 'down' && lane === slice.lane ? read.next(lane, line, slice.start - 1, 1) : null;
  if (inside && inside.start + inside.dur <= slice.start + slice.dur) return inside;
  return read.at(lane, line, time, read.width);
}

function firstOf(read: Reader, lanes: LaidLane[], time: number): Slice | null {
  for (const lane of lanes) {
    const hit = read.at(lane.id, 0, time, read.width);
    if (hit) return hit;
  }
  return null;
}
