import { describe, expect, it } from 'vitest';
import type { Compilation, Compile } from '../../src/api/types';
import {
  compilationRowKey,
  compilationRows,
  phaseColumns,
  rowAt,
} from '../../src/panels/compile_time/compile_rows';
import { directionLabels } from '../../src/table/compilation_columns';
import { toCompilation } from '../../src/links/places';

describe('compile time', () => {
  const row = (compile_id: string, direction: string, start_s: number | null, phases: object | null = null) =>
    ({
      compile_id,
      epoch: 0,
      direction,
      start_s,
      duration_s: 2,
      phases_s: phases,
      cache: [],
    }) as unknown as Compilation;
  const compile = {
    compilations: [
      row('0/0', 'forward', 10, { inductor: 1, other: 0.5, dynamo: 0.5 }),
      row('0/0', 'backward', 20, { triton: 2 }),
      row('1/0', 'forward', null),
    ],
  } as Compile;
  const rows = compilationRows(compile, null);

  it('has a column for each phase, in the order of the pipeline, the rest last', () => {
    const columns = phaseColumns(rows);
    expect(columns.map((c) => c.label)).toEqual(['Dynamo', 'Inductor', 'Triton, C++', 'Other']);
    expect(columns.map((c) => c.value(rows[0]!))).toEqual([0.5, 1, 0, 0.5]);
    expect(columns.map((c) => c.value(rows[2]!))).toEqual([null, null, null, null]);
  });

  it('tells several backwards of one frame apart, and links to each', () => {
    const ddp = compilationRows(
      { compilations: ['forward', 'backward', 'backward'].map((d, i) => row('4/0', d, i)) } as Compile,
      null,
    );
    expect(ddp.map(compilationRowKey)).toEqual(['4/0,0,forward', '4/0,0,backward', '4/0,0,backward~2']);
    expect([...directionLabels(ddp).values()]).toEqual(['forward', 'backward 1 of 2', 'backward 2 of 2']);
    expect(toCompilation(ddp[2]!, 'backward', 1).row).toBe('compilation:4/0,0,backward~2');
  });

  it('leads from a span to the row that was being compiled then', () => {
    expect(rowAt(rows, '0/0', 11)?.direction).toBe('forward');
    expect(rowAt(rows, '0/0', 21)?.direction).toBe('backward');
    expect(rowAt(rows, '0/0', 99)?.direction).toBe('forward');
    expect(rowAt(rows, '1/0', 1)?.compile_id).toBe('1/0');
    expect(rowAt(rows, '', 1)).toBeNull();
  });
});
