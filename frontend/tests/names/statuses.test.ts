import { expect, it } from 'vitest';
import { countedStatus, statusesInOrder } from '../../src/names/statuses';

it('counts what came of compilations, the worst first', () => {
  const counts = { ok: 1, break: 1, failed: 1, limit: 1 };
  expect(statusesInOrder(counts).map(([status, n]) => countedStatus(status, n))).toEqual([
    '1 failed',
    '1 hit the recompile limit',
    '1 with a graph break',
    '1 compiled',
  ]);
});
