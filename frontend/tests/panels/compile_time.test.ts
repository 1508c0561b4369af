import { describe, expect, it } from 'vitest';
import type { Compilation } from '../../src/api/types';
import { phaseColumns, directionLabel } from '../../src/table/compilation_columns';
import { cellOf } from '../../src/table/table';
import { toCompilation } from '../../src/links/addresses';

describe('compile time', () => {
  const row = (compile_id: string, direction: string, start_s: number | null, phases: object | null = null) =>
    ({
      compile_id,
      epoch: 0,
      direction,
      start_s,
      duration_s: 2,
      phases_s: phases,
      phases_percent: phases ?? {},
      cache: [],
    }) as unknown as Compilation;
  const rows = [
    row('0/0', 'forward', 10, { inductor: 1, other: 0.5, dynamo: 0.5 }),
    row('0/0', 'backward', 20, { triton: 2 }),
    row('1/0', 'forward', null),
  ];

  it('has a column for each phase, in the order of the pipeline, the rest last', () => {
    const columns = phaseColumns(rows);
    expect(columns.map((c) => c.label)).toEqual(['Dynamo', 'Inductor', 'Triton, C++', 'Other']);
    expect(columns.map((c) => cellOf(rows[0]!, c))).toEqual([0.5, 1, 0, 0.5]);
    expect(columns.map((c) => cellOf(rows[2]!, c))).toEqual([null, null, null, null]);
  });

  it('tells several backwards of one frame apart, and links to each', () => {
    const ddp = [0, 1].map(
      (part) =>
        ({ key: '4/0,0,backward~2', direction: 'backward', part, parts: 2 }) as unknown as Compilation,
    );
    expect(ddp.map(directionLabel)).toEqual(['backward 1 of 2', 'backward 2 of 2']);
    expect(toCompilation(ddp[1]!).row).toBe('compilation:4/0,0,backward~2');
  });
});
