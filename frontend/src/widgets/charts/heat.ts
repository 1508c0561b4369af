/** A heat map's logic without its looks. */
import { luminance, type Rgb } from '../timeline/ink';

interface HeatScale {
  least: number;
  most: number;
}

/** From 0, or from the minimum if all values are far from 0. `enough`: the top is at least this, so noise stays pale. */
export function heatScale(values: (number | null)[], enough = 0): HeatScale {
  const numbers = values.filter((value) => value !== null);
  const most = numbers.reduce((a, b) => Math.max(a, b), 0);
  const least = numbers.reduce((a, b) => Math.min(a, b), most);
  return { least: least > most / 2 && least < most ? least : 0, most: Math.max(most, enough) };
}

export function shareOf(value: number, { least, most }: HeatScale): number {
  return most > least ? Math.min(1, Math.max(0, (value - least) / (most - least))) : 0;
}

interface Cells {
  width: number;
  height: number;
  /** Every n-th column has its name, and every n-th row. */
  columnStep: number;
  rowStep: number;
}

const WIDEST = 110;
const LABEL = { width: 34, height: 16 };

/** As large as there is room for, whole pixels; of very many columns the map is wider than the room. */
export function cellsIn(room: number, columns: number, rows: number): Cells {
  const width = Math.min(WIDEST, Math.max(2, Math.floor(room / Math.max(1, columns))));
  const height = Math.min(26, Math.max(5, Math.floor(330 / Math.max(1, rows))));
  const every = (size: number, cell: number) => Math.max(1, Math.ceil(size / cell));
  return { width, height, columnStep: every(LABEL.width, width), rowStep: every(LABEL.height, height) };
}

/** Of the stops, `share` of the way. */
export function mixed(stops: Rgb[], share: number): Rgb {
  const at = share * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  const [from, to] = [stops[i]!, stops[i + 1]!];
  const part = (n: 0 | 1 | 2) => Math.round(from[n] + (at - i) * (to[n] - from[n]));
  return [part(0), part(1), part(2)];
}

/** Letters that are legible on it. */
export const lettersOn = (color: Rgb) => (luminance(color) > 0.179 ? '#000' : '#fff');

const MOVES: Record<string, [columns: number, rows: number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  Home: [-Infinity, 0],
  End: [Infinity, 0],
};

export interface Spot {
  column: number;
  row: number;
}

/** Where a key leads to; null for one that means nothing here. */
export function movedBy(key: string, from: Spot | null, columns: number, rows: number): Spot | null {
  const move = MOVES[key];
  if (!move) return null;
  if (!from) return { column: 0, row: 0 };
  const within = (value: number, size: number) => Math.min(size - 1, Math.max(0, value));
  return { column: within(from.column + move[0], columns), row: within(from.row + move[1], rows) };
}
