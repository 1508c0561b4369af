import { expect, it } from 'vitest';
import { countedStatus, statusesInOrder } from '../../src/names/statuses';

it('counts what came of compilations, the worst first', () => {
  expect(
    statusesInOrder(['ok', 'break', 'failed', 'limit']).map(([status, n]) => countedStatus(status, n)),
  ).toEqual(['1 failed', '1 hit the recompile limit', '1 with a graph break', '1 compiled']);
});
