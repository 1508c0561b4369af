import { describe, expect, it, test } from 'vitest';
import { extent, layIcicle, nextSlice, sliceAt, type IcicleSlice } from '../../src/widgets/icicle/icicle';

const slice = (start: number, end: number, depth = 0): IcicleSlice => ({
  i: 0,
  name: `${start}`,
  start,
  end,
  depth,
  group: '',
  color: '',
});

test('the axis reaches from the first start to the last end', () => {
  expect(extent([slice(5, 20), slice(0, 10), slice(8, 30)])).toEqual({ from: 0, to: 30 });
  expect(extent([])).toEqual({ from: 0, to: 0 });
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
