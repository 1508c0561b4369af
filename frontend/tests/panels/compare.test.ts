import { describe, expect, it, test } from 'vitest';
import { cellOf } from '../../src/table/table';
import type { BaselineRef, ComparedTables, RunRef, Runs } from '../../src/api/types';
import { columns, factsOf, tables } from '../../src/panels/compare/compared_rows';
import { choices, resolve, sideKey, usual } from '../../src/panels/compare/sides';
import { waterfall } from '../../src/panels/compare/waterfall';

const span = (id: string, modified_s: number) => ({ span: id, trace_file: id, size_bytes: 1, modified_s });
const worker = (name: string, rank: number | null, times: number[], has_compile = true) => ({
  ...{ worker: name, rank, has_compile },
  spans: times.map((time) => span(`${name}${time}`, time)),
});
const logdir = (runs: Pick<RunRef, 'run' | 'workers'>[]): Runs => ({
  ...{ schema_version: 1, plugin_version: '', warnings: [] },
  runs: runs.map((one) => ({ ...one, ranks: 0, job_bytes: 0 })),
});
const from = (runs: Runs, key: string, baseline: BaselineRef | null = null) => {
  const all = choices(runs);
  return usual(
    all,
    all.find((side) => side.span === key)!,
    baseline,
  )?.span;
};

describe('what a span is compared with', () => {
  const before = { run: 'before', workers: [worker('r0_', 0, [10, 20]), worker('r1_', 1, [21])] };
  const after = { run: 'after', workers: [worker('s0_', 0, [40]), worker('s1_', 1, [41])] };
  const later = { run: 'later', workers: [worker('t0_', 0, [90])] };

  it('is its baseline run, and of several runs none where that is unknown', () => {
    const found = { run: 'later', worker: 't0_', span: 't0_90' };
    expect(from(logdir([before, after, later]), 's1_41', found)).toBe('t0_90');
    expect(from(logdir([before, after, later]), 's1_41')).toBe(undefined);
    const none = { run: null, worker: null, span: null };
    expect(from(logdir([before, after, later]), 's0_40', none)).toBe(undefined);
  });

  it('is the same rank of the only other run', () => {
    expect(from(logdir([before, after]), 's1_41')).toBe('r1_21');
    expect(from(logdir([before, after]), 's0_40')).toBe('r0_20');
    expect(from(logdir([before, after]), 'r0_10')).toBe('s0_40');
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
test('tables are laid out as the server says', () => {
  const more: ComparedTables = {
    ...{ kernels: [], operators: [], memory: [] },
    modules: [
      {
        ...{ path: 'Net_0/Linear_0', host_us: pair(3, 9), device_us: pair(null, null), calls: pair(1, 1) },
        outcome: 'slower',
      },
    ],
  };
  const column = (key: string, kind: string, sides = false) => ({
    ...{
      key,
      kind,
      sides,
      label: key,
      bar: false,
      total: false,
      hidden: key === 'calls',
      grow: false,
      wrap: false,
    },
  });
  const change = column('outcome', 'word');
  const layout = [
    { rows: 'kernels', title: 'Kernels', names: [], inner: [], columns: [column('name', 'text'), change] },
    {
      ...{ rows: 'modules', title: 'Modules', names: [], inner: [] },
      columns: [
        column('path', 'text'),
        column('host_us', 'us', true),
        column('device_us', 'us', true),
        column('calls', 'number', true),
        change,
      ],
    },
    { rows: 'figures', title: 'Figures', names: [], inner: [], columns: [column('name', 'text')] },
  ];
  const comparison = { step_time: null, figures: [], parts: [], notes: [] };
  const first = { ...comparison, kernel_categories: [], compilations: [] };
  const [modules, ...others] = tables(layout, first, more);
  expect(others).toEqual([]);
  const visible = columns(modules!).filter((column) => !column.hidden);
  expect(visible.map((column) => column.key)).toEqual(
    ['path', 'outcome', 'host_us_a', 'host_us_b', 'host_us_delta'], // no GPU; calls, if somebody chooses them
  );
  const row = modules!.all[0]!;
  expect(visible[0]!.show!(row)).toBe('\u2003Linear_0');
  expect(visible.map((column) => cellOf(row, column)).slice(1, 5)).toEqual(['slower', 3, 9, 6]);
  expect(factsOf(modules!, row)).toEqual([
    { label: 'host_us', value: '3.00\u202fµs → 9.00\u202fµs, +6.00\u202fµs (+200\u202f%)' },
    { label: 'device_us', value: '– → –, –' },
    { label: 'calls', value: '1 → 1, equal' },
  ]);
});
