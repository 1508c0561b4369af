import { describe, expect, it } from 'vitest';
import type { CompileTime } from '../../src/api/types';
import { spanLanes, spanPhases, type PhaseSlice } from '../../src/panels/compile/compile_time/compiler_lanes';
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

describe('phase spans', () => {
  const time = {
    threads: ['thread 1', 'compile workers'],
    names: ['dynamo', 'inner', 'code_gen', 'compile_file'],
    name_phases: ['other', null, 'inductor', 'triton'],
    compile_ids: ['0/0'],
    spans: {
      start_us: [0, 10, 20, 25, 200],
      duration_us: [100, 80, 30, 500, 10],
      name: [0, 1, 2, 3, 1],
      compile_id: [0, 0, 0, -1, 0],
      epoch: [0, 0, 0, 0, 1],
      thread: [0, 0, 0, 1, 0],
      depth: [0, 1, 2, 0, 0],
      worker_process: [false, false, false, true, false],
      unfinished: [false, false, false, false, true],
    },
  } as unknown as CompileTime;

  it('inherits the phase of what is around', () => {
    expect(spanPhases(time)).toEqual(['other', 'other', 'inductor', 'triton', 'other']);
  });

  it('draws compile workers in a lane of their own, for no single compilation', () => {
    const lanes = spanLanes(time);
    expect(lanes.map((lane) => lane.label)).toEqual(['Thread 1', 'Compile workers']);
    expect(lanes[0]!.slices.map((s) => s.group)).toEqual(['0/0', '0/0', '0/0', '0/0,1']);
    expect(lanes[1]!.slices.map((s) => s.group)).toEqual(['']);
    expect((lanes[0]!.slices[3] as PhaseSlice).unfinished).toBe(true);
  });
});
