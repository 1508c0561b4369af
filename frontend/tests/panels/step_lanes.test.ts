import { describe, expect, it } from 'vitest';
import type { LanePieces, RankLanes, StepSideBySide } from '../../src/api/types';
import {
  boxAt,
  boxesOf,
  callWords,
  stepHeight,
  rankRows,
  laneRowAt,
  viewOf,
} from '../../src/panels/ranks/step_lanes';
import { longestOf, toOwnPart } from '../../src/panels/ranks/step_collectives';

const NONE: LanePieces = { start_ns: [], dur_ns: [], busy: [], name: [], kind: [] };
const rank = (number: number, late: boolean): RankLanes => ({
  rank: number,
  worker: `rank${number}`,
  span: '1',
  own_ns: 0,
  late,
  wait_us: 0,
  host_step_ns: null,
  gpu_step_ns: null,
  host: { start_ns: [0], dur_ns: [900], busy: [0.5], name: [0], kind: ['operator'] },
  gpu: NONE,
});
const call = (number: number, start_ns: number, wait_ns: number, line = 0) => ({
  rank: number,
  row: 7,
  start_ns,
  dur_ns: wait_ns + 100,
  wait_ns,
  unknown_ns: 0,
  transfer_ns: 100,
  for_rank: wait_ns > 0 ? 1 : null,
  last: wait_ns === 0,
  line,
});
const STEP: StepSideBySide = {
  headline: '',
  step: '#1',
  steps: ['#1'],
  length_ns: 1000,
  from_ns: 0,
  to_ns: 1000,
  ranks: [rank(0, false), rank(1, true)],
  collectives: [
    {
      op: 'all_reduce',
      group: '0',
      dtype: 'Float',
      message_bytes: 4096,
      calls: [call(0, 300, 400), call(1, 700, 0, 1)],
    },
  ],
  names: ['aten::mm'],
  notes: [],
};

describe('one step of all ranks', () => {
  const rows = rankRows(STEP);
  const boxes = boxesOf(STEP, rows);

  it('has a place for each rank and each line of collectives', () => {
    const [first, second] = rows;
    expect(second!.top).toBeGreaterThan(first!.bottom);
    expect(second!.bottom - second!.calls).toBe(2 * (first!.bottom - first!.calls));
    expect(stepHeight(rows)).toBeGreaterThan(second!.bottom);
    expect(laneRowAt(rows, second!.gpu)).toBe(second);
    expect(laneRowAt(rows, 0)).toBeNull();
  });

  it('tells waiting from transferring, to the nanosecond', () => {
    const parts = boxes.filter(({ call }) => call?.rank === 0);
    expect(parts.map(({ from, to, hatched }) => [from, to, hatched])).toEqual([
      [300, 700, true],
      [700, 800, false],
    ]);
    expect(boxes.filter(({ call }) => call?.rank === 1)).toHaveLength(1);
  });

  it('shows apart what nothing tells of', () => {
    const collective = STEP.collectives[0]!;
    const untold = { ...collective.calls[0]!, unknown_ns: 60, transfer_ns: 40 };
    const parts = boxesOf({ ...STEP, collectives: [{ ...collective, calls: [untold] }] }, rows);
    const drawn = parts.filter(({ call }) => call === untold);
    expect(drawn.map(({ from, to, hatched }) => [from, to, hatched])).toEqual([
      [300, 700, true],
      [700, 760, false],
      [760, 800, false],
    ]);
    expect(drawn[1]!.color).not.toBe(drawn[2]!.color);
    expect(callWords(collective, untold).join(' ')).toMatch(/not known which/);
  });

  it('says what is under the pointer', () => {
    const at = boxAt(boxes, 310, rows[0]!.calls + 2, 1)!;
    expect(at.words()).toEqual([
      'Rank 0',
      ...callWords(STEP.collectives[0]!, STEP.collectives[0]!.calls[0]!),
    ]);
    expect(at.words().join(' ')).toMatch(
      /all reduce 4.10\skB of Float in group 0 .*wait .* for rank 1, transfer/,
    );
    expect(boxAt(boxes, 310, rows[0]!.host + 2, 1)!.words()).toContain('aten::mm');
    expect(boxAt(boxes, 990, rows[1]!.gpu + 2, 1)).toBeNull();
  });

  it('shows what the address says, where that is a stretch of time', () => {
    expect(viewOf('10', '20', 1000)).toEqual({ from: 10, to: 20 });
    for (const [from, to] of [
      ['', ''],
      ['20', '10'],
      ['x', '9'],
    ])
      expect(viewOf(from!, to!, 1000)).toEqual({ from: 0, to: 1000 });
  });
});

describe('the parts of a rank’s step', () => {
  it('that are calls lead to the call that has most of them', () => {
    expect(longestOf(STEP, 0, 'exposed_wait_us')).toBe(STEP.collectives[0]!.calls[0]);
    expect(longestOf(STEP, 1, 'exposed_wait_us')).toBeNull();
    expect(longestOf(STEP, 1, 'exposed_transfer_us')).toBe(STEP.collectives[0]!.calls[1]);
    expect(longestOf(STEP, 0, 'idle_us')).toBeNull();
  });

  it('that are not lead into the rank’s own panels', () => {
    const place = toOwnPart(STEP.ranks[1]!, 'idle_us', new Event('click'));
    expect(place).toMatchObject({ worker: 'rank1', panel: 'gpu_utilization' });
    expect(toOwnPart(STEP.ranks[0]!, 'compute_us', new Event('click'))).toMatchObject({ panel: 'kernels' });
  });
});
