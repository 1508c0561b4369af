import { describe, expect, it } from 'vitest';
import type { JobMap, JobStep } from '../../src/api/types';
import { measureOf, filesOf, shownOf, stepParts } from '../../src/panels/ranks/measures';

const row = (rank: number, step: string, wait: number): JobStep => ({
  step,
  rank,
  span_us: 100,
  compute_us: 60,
  overlapped_us: 10,
  exposed_transfer_us: 5,
  exposed_wait_us: wait,
  exposed_unknown_us: 0,
  exposed_memory_us: 1,
  idle_us: 24 - wait,
  compile_us: 0,
});

const mapOf = (ranks: number, us: (number | null)[][]): JobMap => {
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  return {
    measure: 'late_us',
    ranks: all,
    workers: all.map((rank) => `w${rank}`),
    spans: all.map((rank) => `s${rank}`),
    hosts: all.map(() => null),
    mean_us: all.map(() => 7),
    steps: us.map((_, step) => `#${step}`),
    us,
    steps_left_out: 0,
  };
};

describe('measures', () => {
  it('put the ranks first that are far from the others', () => {
    expect(
      shownOf(
        mapOf(3, [
          [8, 9, 0],
          [8, 8, null],
        ]),
        '',
        true,
      ).indices,
    ).toEqual([2, 1, 0]);
    expect(shownOf(mapOf(3, [[8, 9, 0]]), '', false).indices).toEqual([0, 1, 2]);
    expect(shownOf(mapOf(2, []), '', true).indices).toEqual([0, 1]);
  });

  it('show one value of each of very many ranks: the mean, or that of a step', () => {
    const us = Array.from({ length: 100 }, (_, rank) => rank);
    expect(shownOf(mapOf(100, [us]), '', false).rows).toEqual([us.map(() => 7)]);
    expect(shownOf(mapOf(100, [us]), '#0', false).rows).toEqual([us]);
    expect(shownOf(mapOf(3, [[1, 2, 3]]), '#0', false).rows).toEqual([[1, 2, 3]]);
  });

  it('are what the address names, or the usual one', () => {
    expect(measureOf('idle_us', 'late_us')).toBe('idle_us');
    expect(measureOf('toString', 'late_us')).toBe('late_us');
  });

  it('know whose files a rank is', () => {
    expect(filesOf(mapOf(3, []), 2)).toEqual({ worker: 'w2', span: 's2' });
    expect(filesOf(mapOf(3, []), 9)).toBeNull();
  });

  it('have parts that sum to the span', () => {
    expect(stepParts(row(0, '#1', 8)).reduce((sum, part) => sum + part.value, 0)).toBe(100);
  });
});
