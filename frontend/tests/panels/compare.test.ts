import { describe, expect, it, test } from 'vitest';
import type { ComparedTables, Comparison, Runs } from '../../src/api/types';
import { changeOf, columns, figureRows, tables } from '../../src/panels/compare/compared_rows';
import { choices, resolve, sideKey, usual } from '../../src/panels/compare/sides';
import { waterfall } from '../../src/panels/compare/waterfall';

const span = (id: string, modified_s: number) => ({ span: id, trace_file: id, size_bytes: 1, modified_s });
const worker = (name: string, rank: number | null, times: number[], has_compile = true) => ({
  ...{ worker: name, rank, has_compile },
  spans: times.map((time) => span(`${name}${time}`, time)),
});
const logdir = (runs: Runs['runs']): Runs => ({
  ...{ schema_version: 1, plugin_version: '', warnings: [], runs },
});
const from = (runs: Runs, key: string) => {
  const all = choices(runs);
  return usual(
    all,
    all.find((side) => side.span === key)!,
  )?.span;
};

describe('what a span is compared with', () => {
  const before = { run: 'before', workers: [worker('r0_', 0, [10, 20]), worker('r1_', 1, [21])] };
  const after = { run: 'after', workers: [worker('s0_', 0, [40]), worker('s1_', 1, [41])] };
  const later = { run: 'later', workers: [worker('t0_', 0, [90])] };

  it('is the same rank of the run before, or of the next one', () => {
    expect(from(logdir([before, after, later]), 's1_41')).toBe('r1_21');
    expect(from(logdir([before, after, later]), 's0_40')).toBe('r0_20');
    expect(from(logdir([before, after, later]), 'r0_10')).toBe('s0_40');
  });

  it('is the span before where there is one run, else another worker', () => {
    expect(from(logdir([before]), 'r0_20')).toBe('r0_10');
    expect(from(logdir([after]), 's0_40')).toBe('s1_41');
    expect(from(logdir([later]), 't0_90')).toBe(undefined);
  });

  it('is what the address says, as far as it says it', () => {
    const all = choices(logdir([before]));
    expect(resolve(all, { run: 'before', worker: 'r0_', span: 'r0_10' })).toMatchObject({ span: 'r0_10' });
    expect(resolve(all, { run: 'before', worker: 'r0_', span: '' })).toMatchObject({ span: 'r0_20' });
    expect(resolve(all, { run: 'before', worker: '', span: '' })).toMatchObject({ span: 'r1_21' });
    expect(resolve(all, { run: 'gone', worker: 'w', span: '' })).toEqual({
      run: 'gone',
      worker: 'w',
      span: '',
    });
  });

  it('may be a worker without a trace, but only one that compiled', () => {
    const logs = logdir([
      { run: '.', workers: [worker('log', null, []), worker('nothing', null, [], false)] },
    ]);
    expect(choices(logs).map((side) => [side.text, side.span])).toEqual([['log · no trace', '']]);
    expect(sideKey({ run: 'a', worker: 'b', span: '' })).not.toBe(
      sideKey({ run: 'a', worker: '', span: 'b' }),
    );
  });
});

test('bars lead from one number to the other', () => {
  const part = (key: string, value: number) => ({ key, label: key, value, color: '', title: '' });
  const { bars, least } = waterfall(1000, [part('x', -300), part('equal', 0), part('y', 100)]);
  expect(bars.map(({ key, value, text }) => [key, value, text])).toEqual([
    ['A', 1000, '1.00\u202fms'],
    ['x', 700, '−300\u202fµs'],
    ['y', 800, '+100\u202fµs'],
    ['B', 800, '800\u202fµs'],
  ]);
  expect(bars[2]).toMatchObject({ from: 700 });
  expect(least).toBe(600); // a third of the changes left of the smallest
  expect(waterfall(1000, [part('x', -900)]).least).toBe(0);
});

const pair = (a: number | null, b: number | null) => ({
  ...{ a, b },
  delta: a === null || b === null ? null : b - a,
});
const work = (operators: string[], kernels: string[], time_us: number) => ({
  ...{ operators, kernels, time_us },
  launches: 1,
});
const times = (mean_us: number, deviation_us: number | null) => ({
  ...{ steps: 3, mean_us, median_us: mean_us, min_us: mean_us, max_us: mean_us, deviation_us },
});
const comparison: Comparison = {
  step_time: {
    a: times(2000, 50),
    b: times(1000, null),
    delta_us: -1000,
    noise_us: null,
    within_noise: null,
  },
  figures: [
    { name: 'step_us', value: pair(2000, 1000) },
    { name: 'gpu_busy_percent', value: pair(10, 12.5) },
    { name: 'graph_breaks', value: pair(null, 2) },
  ],
  ...{ parts: [], kernel_categories: [], compilations: [], notes: [] },
};
const more: ComparedTables = {
  kernels: [
    {
      category: 'gemm',
      change: 'changed',
      places: 1,
      a: work(['mm'], ['k'], 5),
      b: work(['mm'], ['l'], 4),
      delta_us: -1,
    },
    {
      category: 'aten',
      change: 'vanished',
      places: 1,
      a: work([], ['copy'], 5),
      b: work([], [], 0),
      delta_us: -5,
    },
  ],
  operators: [],
  modules: [{ path: 'Net_0/Linear_0', calls: pair(1, 1), host_us: pair(3, 9), device_us: pair(null, null) }],
  memory: [{ device: 0, peak_bytes: pair(1e6, 3e6), reserved_bytes: pair(null, null) }],
};

test('figures in words', () => {
  const plain = figureRows(comparison, more.memory).map((row) =>
    row.map((cell) => cell.replaceAll('\u202f', ' ')),
  );
  expect(plain).toEqual([
    ['Step time', '2.00 ms ± 50.0 µs', '1.00 ms', '−1.00 ms (−50.0 %)'],
    ['GPU busy, of that time', '10.0 %', '12.5 %', '+2.50 points'],
    ['Graph breaks', '–', '2', '–'],
    ['Peak memory, GPU 0', '1.00 MB', '3.00 MB', '+2.00 MB (+200 %)'],
  ]);
});

test('one table for all that is compared row by row', () => {
  const shown = tables(comparison, more);
  const kernels = shown.find(({ key }) => key === 'kernels')!;
  expect(kernels.rows.map(({ name, change }) => [name, change])).toEqual([
    ['mm', 'faster'],
    ['copy', 'vanished'],
  ]);
  const modules = shown.find(({ key }) => key === 'modules')!;
  const visible = columns(modules).filter((column) => !column.hidden);
  expect(visible.map((column) => column.key)).toEqual(
    ['name', 'change', 'host_us_a', 'host_us_b', 'host_us_delta', 'calls_a', 'calls_b'], // no GPU
  );
  expect(visible[0]!.show!(modules.rows[0]!)).toBe('\u2003Linear_0');
});

test('a change is told by what is there', () => {
  expect([pair(0, 3), pair(3, null), pair(3, 3), pair(3, 4), pair(null, null)].map(changeOf)).toEqual([
    ...['appeared', 'vanished', 'equal', 'slower', 'equal'],
  ]);
});
