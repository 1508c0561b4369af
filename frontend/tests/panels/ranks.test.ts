import { describe, expect, it } from 'vitest';
import type { JobStep } from '../../src/api/types';
import { byPlace, outliersFirst, stepNames, stepParts, waitedFor } from '../../src/panels/ranks/measures';

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
const STEPS = [row(0, '#1', 8), row(1, '#1', 9), row(2, '#1', 0), row(0, '#2', 8), row(1, '#2', 8)];

describe('measures', () => {
  it('put the ranks first that are far from the others', () => {
    expect(outliersFirst([0, 1, 2], STEPS, 'exposed_wait_us')).toEqual([2, 1, 0]);
    expect(outliersFirst([0, 1, 2], STEPS, 'span_us')).toEqual([0, 1, 2]);
    expect(outliersFirst([3, 4], [], 'span_us')).toEqual([3, 4]);
  });

  it('find the row of a rank and step, where there is one', () => {
    expect(stepNames(STEPS)).toEqual(['#1', '#2']);
    expect(byPlace(STEPS)(1, '#1')).toBe(STEPS[1]);
    expect(byPlace(STEPS)(2, '#2')).toBeUndefined();
  });

  it('have parts that sum to the span', () => {
    expect(stepParts(STEPS[0]!).reduce((sum, part) => sum + part.value, 0)).toBe(100);
  });

  it('say who waited for whom', () => {
    const waited = waitedFor([{ rank: 0, for_rank: 2, wait_us: 7 }]);
    expect([waited(0, 2), waited(2, 0)]).toEqual([7, 0]);
  });
});
