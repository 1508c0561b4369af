import { describe, expect, it, test } from 'vitest';
import type { BaselineRef, PartDifference, RunRef, Runs } from '../../src/api/types';
import { choices, resolve, sideKey, usual } from '../../src/panels/compare/sides';
import { waterfall } from '../../src/panels/compare/waterfall';

const span = (id: string, modified_s: number) => ({ span: id, trace_file: id, size_bytes: 1, modified_s });
const worker = (name: string, rank: number | null, times: number[], has_compile = true) => ({
  ...{ worker: name, rank, has_compile },
  spans: times.map((time) => span(`${name}${time}`, time)),
});
const logdir = (runs: Pick<RunRef, 'run' | 'workers'>[]): Runs => ({
  ...{ schema_version: 1, plugin_version: '', warnings: [] },
  runs: runs.map((one) => ({ ...one, ranks: 0, job_bytes: 0, compiling: '' })),
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

  it('is the span before, and otherwise unknown', () => {
    expect(from(logdir([before, after]), 'r0_20')).toBe('r0_10');
    expect(from(logdir([before]), 'r0_10')).toBe(undefined);
    expect(from(logdir([before, after]), 's1_41')).toBe(undefined);
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
  const part = (name: PartDifference['part'], delta: number): PartDifference => ({
    ...{ kind: 'gpu', part: name, time_us: { baseline: 500, candidate: 500 + delta, delta } },
  });
  const { bars, least } = waterfall(1000, [part('gemm', -300), part('aten', 0), part('memcpy', 100)]);
  expect(bars.map(({ key, value, text }) => [key, value, text])).toEqual([
    ['Baseline', 1000, '1.00\u202fms'],
    ['gpu gemm', 700, '−300\u202fµs'],
    ['gpu memcpy', 800, '+100\u202fµs'],
    ['Candidate', 800, '800\u202fµs'],
  ]);
  expect(bars[2]).toMatchObject({ from: 700 });
  expect(least).toBe(600); // a third of the changes left of the smallest
  expect(waterfall(1000, [part('gemm', -900)]).least).toBe(0);
});
