import { describe, expect, it } from 'vitest';
import type { Artifact, Compilation, CompilationDetails } from '../../src/api/types';
import { artifactsOf } from '../../src/panels/compilations/details';

describe('what belongs to a row', () => {
  const timed = (direction: string, part = 0, parts = 1) => ({ direction, part, parts }) as Compilation;
  const text = (id: number, direction: string, graph: number | null) =>
    ({ id, direction, graph }) as Artifact;
  const details = (rows: Compilation[]) =>
    ({
      rows,
      artifacts: [
        text(1, 'forward', null),
        text(2, 'forward', 0),
        text(3, 'backward', null),
        text(4, 'backward', 1),
        text(5, 'backward', 2),
      ],
    }) as unknown as CompilationDetails;
  const own = (rows: Compilation[], row: Compilation) => artifactsOf(details(rows), row).map(({ id }) => id);

  it('is of its direction, and of its bucket where there are several', () => {
    const rows = [timed('forward'), timed('backward', 0, 2), timed('backward', 1, 2)];
    expect(own(rows, rows[0]!)).toEqual([1, 2]);
    expect(own(rows, rows[1]!)).toEqual([3, 4]);
    expect(own(rows, rows[2]!)).toEqual([3, 5]);
  });

  it('is also the backward that was compiled together with the forward', () => {
    const rows = [timed('forward')];
    expect(own(rows, rows[0]!)).toEqual([1, 2, 3, 4, 5]);
  });
});
