import { describe, expect, it } from 'vitest';
import {
  axisLength,
  layIcicle,
  nextSlice,
  sliceAt,
  squeeze,
  toX,
  type IcicleSlice,
} from '../../src/widgets/icicle/icicle';

const slice = (start: number, end: number, depth = 0): IcicleSlice => ({
  i: 0,
  name: `${start}`,
  start,
  end,
  depth,
  group: '',
  color: '',
});

describe('the time axis', () => {
  it('cuts long pauses short and keeps short ones', () => {
    const stretches = squeeze([slice(0, 100), slice(101, 200), slice(10_000, 10_100)]);
    expect(stretches.map(({ from, to, gap }) => [from, to, gap])).toEqual([
      [0, 200, false],
      [200, 10_000, true],
      [10_000, 10_100, false],
    ]);
    expect(axisLength(stretches)).toBeLessThan(310);
    expect(toX(stretches, 150)).toBe(150);
    expect(toX(stretches, 10_100)).toBe(axisLength(stretches));
    expect(toX(stretches, -5)).toBe(0);
    expect(squeeze([])).toEqual([]);
    expect(toX([], 5)).toBe(0);
  });
});

describe('lanes', () => {
  const root = slice(0, 100);
  const inner = slice(10, 40, 1);
  const later = slice(50, 90, 1);
  const worker = slice(20, 30);
  const laid = layIcicle([
    { key: 'a', label: 'a', slices: [later, inner, root] },
    { key: 'b', label: 'b', slices: [worker] },
  ]);

  it('finds the slice under the pointer', () => {
    const [, row] = laid[0]!.rows;
    expect(sliceAt(row!, 20)).toBe(inner);
    expect(sliceAt(row!, 45)).toBeNull();
    expect(sliceAt(row!, 45, 6)).toBe(inner);
    expect(sliceAt(row!, 49, 1)).toBe(later);
  });

  it('gives slices that cross a row of their own', () => {
    const crossing = layIcicle([{ key: 'a', label: 'a', slices: [slice(0, 10), slice(5, 15)] }]);
    expect(crossing[0]!.rows.map((row) => row.length)).toEqual([1, 1]);
  });

  it('goes where the arrow keys point', () => {
    expect(nextSlice(laid, null, 'down')).toBe(root);
    expect(nextSlice(laid, root, 'down')).toBe(inner);
    expect(nextSlice(laid, inner, 'right')).toBe(later);
    expect(nextSlice(laid, later, 'right')).toBe(later);
    expect(nextSlice(laid, later, 'up')).toBe(root);
    expect(nextSlice(laid, inner, 'down')).toBe(worker);
    expect(nextSlice(laid, worker, 'down')).toBe(worker);
  });
});
