/** Timed slices in lanes: which one is under the pointer, and which one is next. */
import type { ArrowKey, View } from '../canvas/view';

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

/** From the first start to the last end. */
export const extent = (slices: { start: number; end: number }[]): View =>
  slices.reduce((all, { start, end }) => ({ from: Math.min(all.from, start), to: Math.max(all.to, end) }), {
    from: slices[0]?.start ?? 0,
    to: slices[0]?.end ?? 0,
  });

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
