import { describe, expect, it } from 'vitest';
import type { CompilationRow, Status } from '../../src/api/types';
import { countedStatus, countStatuses } from '../../src/names/statuses';

describe('statuses', () => {
  it('are words, and counted once a compile id', () => {
    const row = (status: Status, direction = 'forward') => ({ status, direction }) as CompilationRow;
    const rows = [row('ok'), row('break'), row('failed'), row('ok', 'backward'), row('limit')];
    expect(countStatuses(rows).map(([status, n]) => countedStatus(status, n))).toEqual([
      '1 failed',
      '1 hit the recompile limit',
      '1 with a graph break',
      '1 compiled',
    ]);
  });
});
