import { describe, expect, it } from 'vitest';
import { layOut, minimumWidth } from '../../src/table/layout';
import {
  columnScale,
  formatSort,
  haystack,
  nextSort,
  parseSort,
  sortRows,
  toCsv,
  totalOf,
  toTsv,
  type Column,
} from '../../src/table/table';
import { uniqueKeys } from '../../src/table/keys';
import { searchIndices } from '../../src/widgets/search';

interface Row {
  name: string;
  time: number | null;
}

const name: Column<Row> = { key: 'name', label: 'Name', value: (r) => r.name };
const time: Column<Row> = { key: 'time_us', label: 'Time', kind: 'us', value: (r) => r.time, total: 'sum' };
const columns = [name, time];
const rows: Row[] = [
  { name: 'kernel_10', time: 5 },
  { name: 'kernel_9', time: null },
  { name: 'Kernel_1', time: 70 },
  { name: 'copy', time: 5 },
];
const names = (sorted: Row[]) => sorted.map((r) => r.name);

describe('sort', () => {
  it('orders numbers, keeps ties in place and puts unknown last both ways', () => {
    const ascending = sortRows(rows, columns, parseSort('time_us'));
    expect(names(ascending)).toEqual(['kernel_10', 'copy', 'Kernel_1', 'kernel_9']);
    const descending = sortRows(rows, columns, parseSort('-time_us'));
    expect(names(descending)).toEqual(['Kernel_1', 'kernel_10', 'copy', 'kernel_9']);
  });

  it('orders words as people count', () => {
    expect(names(sortRows(rows, columns, parseSort('name')))).toEqual([
      'copy',
      'Kernel_1',
      'kernel_9',
      'kernel_10',
    ]);
  });

  it('ignores a column that does not exist', () => {
    expect(sortRows(rows, columns, parseSort('gone'))).toBe(rows);
  });

  it('starts numbers with the largest and turns on the second click', () => {
    expect(formatSort(nextSort(null, time))).toBe('-time_us');
    expect(formatSort(nextSort(parseSort('-time_us'), time))).toBe('time_us');
    expect(formatSort(nextSort(parseSort('-time_us'), name))).toBe('name');
  });
});

describe('search', () => {
  it('wants every word, in any column, in any case', () => {
    const shown = { ...time, show: (r: Row) => r.time!.toFixed(1) }; // never asked of what is not known
    const stacks = rows.map((row) => haystack(row, [name, shown]));
    expect(searchIndices(stacks, 'KERNEL')).toEqual([0, 1, 2]);
    expect(searchIndices(stacks, '5 kernel')).toEqual([0]);
    expect(searchIndices(stacks, '  ')).toEqual([0, 1, 2, 3]);
  });

  it('is fast enough for 10,000 rows', () => {
    const many = Array.from({ length: 10_000 }, (_, i) => ({ name: `triton_poi_fused_${i}`, time: i % 977 }));
    const start = performance.now();
    const stacks = many.map((row) => haystack(row, columns));
    expect(searchIndices(stacks, 'fused_99').length).toBe(111);
    sortRows(many, columns, parseSort('-time_us'));
    layOut(many, columns);
    expect(performance.now() - start).toBeLessThan(1000);
  });
});

describe('totals and units', () => {
  it('sums what is known', () => {
    expect(totalOf(rows, time)).toBe(80);
    expect(totalOf(rows, name)).toBeNull();
    expect(totalOf([rows[1]!], time)).toBeNull();
  });

  it('keeps one unit and one number of decimals in a column', () => {
    const scale = columnScale('us', [7086.66, 5595.65, 152.1]);
    expect([scale.unit, scale.text(7086.66), scale.text(152.1)]).toEqual(['ms', '7.09', '0.15']);
    const seconds = columnScale('s', [2.4127, 0.284, 0.003]);
    expect([seconds.unit, seconds.text(2.4127), seconds.text(-0.003)]).toEqual(['s', '2.413', '−0.003']);
  });

  it('gives each cell its unit where values differ too much', () => {
    const scale = columnScale('us', [7970, 7, 6, 4, 36]);
    expect([scale.unit, scale.text(7970), scale.text(-7)]).toEqual(['', '7.97\u202fms', '−7.00\u202fµs']);
  });

  it('shares the unit of another column', () => {
    const scale = columnScale('us', [152, 151], [7086]);
    expect([scale.unit, scale.text(152)]).toEqual(['ms', '0.152']);
  });

  it('has no unit where nothing is known', () => {
    expect(columnScale('us', []).unit).toBe('');
    expect(layOut([{ name: 'a', time: null }], columns).map((laid) => laid.head)).toEqual(['Name', 'Time']);
  });

  it('puts the unit into the header once', () => {
    expect(layOut(rows, columns).map((laid) => laid.head)).toEqual(['Name', 'Time, µs']);
  });
});

describe('export', () => {
  const hostile = [{ name: '=cmd|"x",\n1', time: -2.5 }];

  it('quotes CSV, keeps raw numbers, leaves unknown empty', () => {
    expect(toCsv(rows.slice(0, 2), columns)).toBe('name,time_us\r\nkernel_10,5\r\nkernel_9,\r\n');
    expect(toCsv(hostile, columns)).toBe('name,time_us\r\n"\'=cmd|""x"",\n1",-2.5\r\n');
  });

  it('keeps one line a row for the clipboard', () => {
    expect(toTsv(hostile, columns)).toBe('name\ttime_us\n\'=cmd|"x", 1\t-2.5\n');
  });
});

it('tells rows apart that share a key', () => {
  const twice = [{ id: 'a' }, { id: 'b' }, { id: 'a' }];
  expect([...uniqueKeys(twice, (row) => row.id).values()]).toEqual(['a', 'b', 'a~2']);
});

it('leaves room for the head of a column that grows', () => {
  const long: Column<Row> = { ...name, label: 'A head of very many words, longer than most', grow: 1 };
  expect(minimumWidth(layOut(rows, [long]))).toBeGreaterThan(
    minimumWidth(layOut(rows, [{ ...name, grow: 1 }])),
  );
});
