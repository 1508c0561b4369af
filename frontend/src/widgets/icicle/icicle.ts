/** Timed slices in lanes: where they are on a squeezed time axis, which one is under the pointer, which one is next. */
import type { ArrowKey } from '../canvas/view';

export interface IcicleSlice {
  /** Position in the data. */
  i: number;
  name: string;
  start: number;
  end: number;
  depth: number;
  /** What it belongs to; slices of one group are chosen together. */
  group: string;
  color: string;
}

export interface IcicleLane {
  key: string;
  label: string;
  slices: IcicleSlice[];
}

export interface IcicleRows {
  label: string;
  /** First row of the lane, counted over the picture. */
  top: number;
  rows: IcicleSlice[][];
}

/** A stretch of time and where it begins on the squeezed axis. `gap` is one in which nothing happened. */
export interface Stretch {
  from: number;
  to: number;
  x: number;
  width: number;
  gap: boolean;
}

/** Rows by depth, each in the order of time; slices that cross instead of nesting get a row of their own. */
export function layIcicle(lanes: IcicleLane[]): IcicleRows[] {
  let top = 0;
  return lanes.map(({ label, slices }) => {
    const rows: IcicleSlice[][] = [];
    for (const slice of [...slices].sort((a, b) => a.start - b.start || b.end - a.end)) {
      let row = slice.depth;
      while (rows[row]?.length && rows[row]!.at(-1)!.end > slice.start) row++;
      while (rows.length <= row) rows.push([]);
      rows[row]!.push(slice);
    }
    const filled = rows.filter((row) => row.length > 0);
    const laid = { label, top, rows: filled };
    top += filled.length;
    return laid;
  });
}

const LONG = 0.04;
const DRAWN = 0.012;

/**
 * The time axis without its long pauses: between compilations minutes can pass in which nothing is compiled. Pauses
 * longer than 4 % of the busy time are drawn as 1.2 % of it.
 */
export function squeeze(slices: { start: number; end: number }[]): Stretch[] {
  const busy = merge(slices);
  const total = busy.reduce((sum, [from, to]) => sum + to - from, 0) || 1;
  const stretches: Stretch[] = [];
  let x = 0;
  const add = (from: number, to: number, gap: boolean) => {
    const last = stretches.at(-1);
    const width = gap ? total * DRAWN : to - from;
    if (!gap && last && !last.gap) {
      last.to = to;
      last.width += width;
    } else stretches.push({ from, to, x, width, gap });
    x += width;
  };
  busy.forEach(([from, to], k) => {
    const before = busy[k - 1]?.[1] ?? from;
    if (from > before) add(before, from, from - before > total * LONG);
    add(from, to, false);
  });
  return stretches;
}

function merge(slices: { start: number; end: number }[]): [number, number][] {
  const merged: [number, number][] = [];
  for (const { start, end } of [...slices].sort((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

export function axisLength(stretches: Stretch[]): number {
  const last = stretches.at(-1);
  return last ? last.x + last.width : 0;
}

/** Time → place on the squeezed axis. */
export function toX(stretches: Stretch[], time: number): number {
  const s = stretches.findLast((stretch) => stretch.from <= time) ?? stretches[0];
  if (!s) return 0;
  const share = s.to > s.from ? (time - s.from) / (s.to - s.from) : 0;
  return s.x + s.width * Math.max(0, Math.min(1, share));
}

/** The slice of a row that holds a time, or is nearest to it within `slack`. */
export function sliceAt(row: IcicleSlice[], time: number, slack = 0): IcicleSlice | null {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle]!.start <= time) low = middle + 1;
    else high = middle;
  }
  const before = row[low - 1];
  if (before && time <= before.end + slack) return before;
  const after = row[low];
  return after && after.start - slack <= time ? after : null;
}

/** The neighbour of a slice: earlier, later, around it, inside it; over the edge of a lane into the next one. */
export function nextSlice(
  lanes: IcicleRows[],
  slice: IcicleSlice | null,
  step: ArrowKey,
): IcicleSlice | null {
  const rows = lanes.flatMap((lane) => lane.rows);
  if (!slice) return rows[0]?.[0] ?? null;
  const r = rows.findIndex((row) => row.includes(slice));
  const row = rows[r]!;
  const k = row.indexOf(slice);
  if (step === 'left') return row[k - 1] ?? slice;
  if (step === 'right') return row[k + 1] ?? slice;
  const next = rows[r + (step === 'up' ? -1 : 1)];
  if (!next) return slice;
  const middle = (slice.start + slice.end) / 2;
  const within = step === 'down' ? next.find((s) => s.start >= slice.start && s.end <= slice.end) : null;
  return within ?? sliceAt(next, middle) ?? nearest(next, middle);
}

function nearest(row: IcicleSlice[], time: number): IcicleSlice {
  const away = (s: IcicleSlice) => Math.max(s.start - time, time - s.end, 0);
  return row.reduce((best, s) => (away(s) < away(best) ? s : best));
}
