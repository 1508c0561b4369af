/** Two charts of what kernels reach, each with its ceiling; all axes are logarithmic. */
import type { DevicePeak, Kernel } from '../../api/types';
import { bytes } from '../../widgets/format';

export const WIDTH = 480;
export const HEIGHT = 240;
export const LEFT = 46;
const [TOP, RIGHT, BOTTOM] = [16, WIDTH - 12, HEIGHT - 34];

interface Dot {
  row: Kernel;
  x: number;
  y: number;
  r: number;
}
interface Ceiling {
  path: string;
  label: string;
  y: number;
}
export interface Tick {
  at: number;
  label: string;
}
export interface Chart {
  title: string;
  across: string;
  dots: Dot[];
  ceilings: Ceiling[];
  xs: Tick[];
  ys: Tick[];
}

interface Point {
  row: Kernel;
  x: number;
  y: number;
}

const NAMES = { fp32: 'FP32', tf32: 'TF32', bf16: 'BF16' } as const;
const PRECISIONS = ['fp32', 'tf32', 'bf16'] as const;

/** GB/s over what a launch moves: small launches cannot reach the ceiling. */
export function memoryChart(rows: Kernel[], peak: DevicePeak): Chart {
  const points = rows.flatMap((row) => {
    const { bandwidth_gb_s: y, bytes_per_launch: x, bandwidth_from } = row;
    return y && x && bandwidth_from !== 'copy' ? [{ row, x, y }] : [];
  });
  const ceiling = peak.bandwidth_gb_s;
  const axes = axesOf(points, ceiling ? [ceiling] : [], bytes);
  return {
    ...axes,
    title: 'GB/s',
    across: 'bytes per launch',
    ceilings: ceiling ? [level(ceiling, `${ceiling} GB/s`, axes.y)] : [],
  };
}

/** TFLOP/s over operations a byte, where both are known: the slope is that of memory, the level that of arithmetic. */
export function arithmeticChart(rows: Kernel[], peak: DevicePeak): Chart {
  const points = rows.flatMap((row) => {
    const { flop_per_byte: x, tflop_s: y } = row;
    return x && y ? [{ row, x, y }] : [];
  });
  const used = PRECISIONS.filter((name) => points.some(({ row }) => row.precision === name));
  const limits = (used.length ? used : PRECISIONS).flatMap((name) => {
    const most = peak[`${name}_tflop_s`];
    return most ? [{ name, most }] : [];
  });
  const axes = axesOf(
    points,
    limits.map(({ most }) => most),
    String,
  );
  return {
    ...axes,
    title: 'TFLOP/s',
    across: 'FLOP per byte',
    ceilings: limits.map(({ name, most }) => {
      const text = `${NAMES[name]} ${most} TFLOP/s`;
      return roof(most, text, peak.bandwidth_gb_s, axes);
    }),
  };
}

interface Axis {
  low: number;
  of: (value: number) => number;
  ticks: Tick[];
}

function axesOf(points: Point[], ceilings: number[], name: (value: number) => string) {
  const [xs, ys] = [points.map(({ x }) => x), [...points.map(({ y }) => y), ...ceilings]];
  const x = axis(Math.min(...xs) / 2, Math.max(...xs) * 2, LEFT, RIGHT, name);
  const y = axis(Math.min(...ys) / 2, Math.max(...ys) * 1.6, BOTTOM, TOP, String);
  const longest = Math.max(...points.map(({ row }) => row.time_us));
  const dots = points.map(({ row, x: at, y: height }) => ({
    row,
    x: x.of(at),
    y: y.of(height),
    r: 3 + 6 * Math.sqrt(row.time_us / longest),
  }));
  return { dots, x, y, xs: x.ticks, ys: y.ticks };
}

function axis(low: number, high: number, from: number, to: number, name: (value: number) => string): Axis {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const of = (value: number) => from + ((Math.log10(value) - a) / (b - a)) * (to - from);
  const ticks: Tick[] = [];
  for (let power = Math.ceil(a); power <= b; power++)
    ticks.push({ at: of(10 ** power), label: name(10 ** power) });
  return { low, of, ticks };
}

function level(value: number, label: string, y: Axis): Ceiling {
  return { path: `M${LEFT} ${y.of(value)}H${RIGHT}`, label, y: y.of(value) };
}

/** Up along the memory's slope to where arithmetic is the limit, then level. */
function roof(most: number, label: string, gb_s: number | null, { x, y }: { x: Axis; y: Axis }): Ceiling {
  const flat = level(most, label, y);
  const ridge = gb_s ? x.of((1000 * most) / gb_s) : LEFT;
  if (!gb_s || ridge <= LEFT) return flat;
  const low = Math.max(y.low, (gb_s * x.low) / 1000);
  const start = x.of((1000 * low) / gb_s);
  if (ridge <= RIGHT) return { ...flat, path: `M${start} ${y.of(low)}L${ridge} ${flat.y}H${RIGHT}` };
  const share = (RIGHT - start) / (ridge - start);
  const end = y.of(low) + share * (flat.y - y.of(low));
  return { path: `M${start} ${y.of(low)}L${RIGHT} ${end}`, label, y: end };
}
