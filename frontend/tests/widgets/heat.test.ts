import { describe, expect, it } from 'vitest';
import { cellsIn, heatScale, lettersOn, mixed, movedBy, shareOf } from '../../src/widgets/charts/heat';

describe('a heat map', () => {
  it('begins at 0, or at the least where all are far from it', () => {
    expect(heatScale([1, 5, null])).toEqual({ least: 0, most: 5 });
    expect(heatScale([9, 10])).toEqual({ least: 9, most: 10 });
    expect(heatScale([7, 7])).toEqual({ least: 0, most: 7 });
    expect(heatScale([null])).toEqual({ least: 0, most: 0 });
  });

  it('keeps noise pale', () => {
    const scale = heatScale([0.1, 0.2], 10);
    expect(shareOf(0.2, scale)).toBeCloseTo(0.02);
    expect(shareOf(3, { least: 0, most: 0 })).toBe(0);
  });

  it('has room for 2 and for 512 columns', () => {
    expect(cellsIn(1200, 2, 3)).toEqual({ width: 110, height: 26, columnStep: 1, rowStep: 1 });
    expect(cellsIn(1200, 512, 100)).toEqual({ width: 2, height: 5, columnStep: 17, rowStep: 4 });
  });

  it('mixes its colours, and writes on them what is legible', () => {
    const stops = [
      [0, 0, 0],
      [100, 100, 100],
      [200, 0, 200],
    ] as [number, number, number][];
    expect([0, 0.25, 0.5, 1].map((share) => mixed(stops, share))).toEqual([
      [0, 0, 0],
      [50, 50, 50],
      [100, 100, 100],
      [200, 0, 200],
    ]);
    expect([lettersOn([255, 255, 255]), lettersOn([12, 47, 92])]).toEqual(['#000', '#fff']);
  });

  it('is walked through by keys and left by none', () => {
    expect(movedBy('ArrowRight', null, 3, 2)).toEqual({ column: 0, row: 0 });
    expect(movedBy('ArrowRight', { column: 2, row: 0 }, 3, 2)).toEqual({ column: 2, row: 0 });
    expect(movedBy('End', { column: 0, row: 1 }, 3, 2)).toEqual({ column: 2, row: 1 });
    expect(movedBy('x', null, 3, 2)).toBeNull();
  });
});
