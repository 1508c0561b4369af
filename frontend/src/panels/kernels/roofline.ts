/** Where kernels and roofs stand in the roofline chart: both axes are logarithmic. */
import type { DevicePeak, Kernel } from '../../api/types';

export const WIDTH = 640;
export const HEIGHT = 260;
export const LEFT = 46;
const BOTTOM = HEIGHT - 34;
const TOP = 14;
/** Kernels whose operations nobody counted stand here: their height shows their bandwidth alone. */
export const STRIP = 0.1;

export interface Dot {
  row: Kernel;
  x: number;
  y: number;
  r: number;
  counted: boolean;
}
export interface Roof {
  path: string;
  label: string;
  x: number;
  y: number;
}
export interface Tick {
  at: number;
  label: string;
}
export interface Chart {
  dots: Dot[];
  roofs: Roof[];
  xs: Tick[];
  ys: Tick[];
}

const NAMES = { fp32: 'FP32', tf32: 'TF32', bf16: 'BF16' } as const;

export function roofline(rows: Kernel[], peak: DevicePeak | null): Chart {
  const points = rows.flatMap((row) => {
    const { flop_per_byte: ratio, tflop_s, bandwidth_gb_s: gb_s, bandwidth_from } = row.achieved;
    if (ratio !== null && ratio > 0 && tflop_s) return [{ row, ratio, height: tflop_s, counted: true }];
    if (!gb_s || bandwidth_from === 'copy' || tflop_s !== null) return [];
    return [{ row, ratio: STRIP, height: (gb_s * STRIP) / 1000, counted: false }];
  });
  const used = (['fp32', 'tf32', 'bf16'] as const).filter((name) =>
    points.some(({ row }) => row.achieved.precision === name),
  );
  const limits = used.map((name) => ({ name, value: peak?.[`${name}_tflop_s`] ?? null }));
  const memory = peak?.bandwidth_gb_s ?? null;
  const right = Math.max(1000, ...points.map((point) => point.ratio * 2));
  const tops = [...points.map((point) => point.height), ...limits.map((limit) => limit.value ?? 0)];
  const most = Math.max(...points.map((point) => point.row.time_us));
  // What is far below the roofs stands at the edge: it would leave little room for the rest.
  const lowest = Math.max(
    Math.min(...points.map((point) => point.height)) / 2,
    ((memory ?? 0) * STRIP) / 1e6,
  );
  if (memory && used.length === 0) tops.push((memory * right) / 1000);
  const x = scale(STRIP / 2, right, LEFT, WIDTH - 10);
  const y = scale(lowest, Math.max(...tops) * 2, BOTTOM, TOP);
  return {
    dots: points.map(({ row, ratio, height, counted }) => ({
      row,
      x: x.of(ratio),
      y: y.of(Math.max(height, lowest)),
      r: 2.5 + 6 * Math.sqrt(row.time_us / most),
      counted,
    })),
    roofs: memory ? roofs(memory, limits, x, y, right) : [],
    xs: x.ticks,
    ys: y.ticks,
  };
}

interface Axis {
  of: (value: number) => number;
  ticks: Tick[];
}

function scale(low: number, high: number, from: number, to: number): Axis {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const of = (value: number) => from + ((Math.log10(value) - a) / (b - a)) * (to - from);
  const ticks: Tick[] = [];
  for (let power = Math.ceil(a); power <= b; power++) {
    ticks.push({ at: of(10 ** power), label: power < -3 || power > 4 ? `1e${power}` : String(10 ** power) });
  }
  return { of, ticks };
}

/** Up along the memory's roof to where arithmetic is the limit, then level. */
function roofs(
  gb_s: number,
  limits: { name: keyof typeof NAMES; value: number | null }[],
  x: Axis,
  y: Axis,
  right: number,
): Roof[] {
  const start = `M${x.of(STRIP / 2)} ${y.of((gb_s * STRIP) / 2000)}`;
  const known = limits.filter((limit) => limit.value !== null);
  if (known.length === 0) {
    const end = { x: x.of(right), y: y.of((gb_s * right) / 1000) };
    return [{ path: `${start}L${end.x} ${end.y}`, label: '', ...end }];
  }
  return known.map(({ name, value }) => {
    const ridge = (1000 * value!) / gb_s;
    return {
      path: `${start}L${x.of(ridge)} ${y.of(value!)}H${WIDTH - 10}`,
      label: `${NAMES[name]} ${value} TFLOP/s`,
      x: x.of(ridge) - 6,
      y: y.of(value!) + 4,
    };
  });
}
