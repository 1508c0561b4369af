import { expect, test } from 'vitest';
import type { SheetColumn } from '../../src/api/types';
import {
  innerColumns,
  placesOf,
  sheetColumns,
  sheetKey,
  textOf,
  type SheetRow,
} from '../../src/panels/sheet/sheet_rows';
import { cellOf, haystack, toCsv, totalOf } from '../../src/table/table';

const column = (key: string, kind: string, more: Partial<SheetColumn> = {}): SheetColumn => ({
  ...{
    key,
    kind,
    label: key,
    bar: false,
    total: false,
    hidden: false,
    grow: false,
    wrap: false,
    sides: false,
  },
  ...more,
});
const table = {
  ...{ rows: 'calls', title: 'Calls', names: ['name', 'compile_id'], inner: [] },
  columns: [
    column('name', 'text', { grow: true }),
    column('file', 'text'),
    column('compile_id', 'text'),
    column('time_us', 'us', { total: true }),
    column('self_time_us', 'us'),
    column('cached', 'flag'),
    column('cause', 'word'),
    column('ops', 'text'),
    column('never_us', 'us'),
  ],
};
const row: SheetRow = {
  ...{ depth: 2, name: 'forward', file: '/home/user/model.py', line: 7, compile_id: '0/1', epoch: 1 },
  ...{ time_us: 1500, self_time_us: 20, cached: false, cause: 'host_wait', ops: ['a', 'b'], never_us: null },
  ...{ kernels_of: 'layer1', panel: 'kernels', row: 'kernels:k' },
};
const columns = sheetColumns(table, [row]);
const of = (key: string) => columns.find((one) => one.key === key)!;

test('a row is shown, sorted and searched by what its fields are called', () => {
  expect(of('name').show!(row)).toBe('\u2003\u2003forward');
  expect([of('file').show!(row), cellOf(row, of('file'))]).toEqual(['…/model.py:7', '/home/user/model.py:7']);
  expect(of('cause').show!(row)).toBe('host wait');
  expect(['cached', 'ops'].map((key) => cellOf(row, of(key)))).toEqual(['no', 'a, b']);
  expect(of('self_time_us').scaleWith).toBe('time_us');
  expect(totalOf([row, row], of('time_us'))).toBe(3000);
  expect(columns.filter(({ hidden }) => hidden).map(({ key }) => key)).toEqual(['never_us']);
  expect(haystack(row, columns)).toContain('host wait');
  expect(toCsv([row], columns)).toContain('forward,/home/user/model.py:7,0/1,1500,20,no,host_wait,"a, b",');
});

test('details are read by themselves', () => {
  const texts = table.columns.map((one) => textOf(row, one));
  expect(texts.slice(3)).toEqual(['1.50\u202fms', '20.0\u202fµs', 'no', 'host wait', 'a, b', null]);
});

test('what a row names is a link', () => {
  expect(of('file').link!(row)).toMatchObject({ panel: 'your_code', 'search.your_code': 'model.py:7' });
  expect(of('compile_id').link!(row)).toMatchObject({ row: 'compilation:0/1,1,forward' });
  expect(of('name').link!(row)).toBeNull();
  expect(placesOf(row).map(([text]) => text)).toEqual([
    ...['Show in Your code', 'Compilation 0/1', 'Show its kernels', 'Show the details'],
  ]);
  expect(placesOf(row).at(-1)![1]).toMatchObject({ panel: 'kernels', row: 'kernels:k' });
});

test('a row has the key that the server gives it', () => {
  expect(sheetKey(table, row)).toBe('forward,0/1');
  expect(sheetKey({ ...table, names: [] }, row)).toBe('all');
});

test('rows within a row are counted in the table and listed in the details', () => {
  const breaks = { ...column('breaks', 'rows') };
  const inner = {
    ...{ rows: 'breaks', title: 'Breaks', names: [], inner: [] },
    columns: [
      column('reason', 'text'),
      column('cost_us', 'us'),
      column('note', 'text'),
      column('device', 'word'),
    ],
  };
  const rows = [
    { reason: 'print', cost_us: 20, note: null, device: 0, panel: 'graph_breaks', row: 'graph_breaks:k' },
  ];
  const [count] = sheetColumns({ ...table, columns: [breaks] }, [{ breaks: rows }, { breaks: [] }]);
  expect([cellOf({ breaks: rows }, count!), cellOf({ breaks: [] }, count!)]).toEqual([1, 0]);
  expect([count!.show!({ breaks: rows }), count!.show!({ breaks: [] })]).toEqual(['1', '']);
  const columns = innerColumns(inner, rows, []);
  expect(columns.map(({ text }) => text(rows[0]!))).toEqual(['print', '20.0\u202fµs', 'GPU 0']);
  expect(columns[0]!.link(rows[0]!)).toMatchObject({ panel: 'graph_breaks', row: 'graph_breaks:k' });
  expect(innerColumns(inner, rows, ['reason'])).toHaveLength(2);
});

test('a kernel and places have a short form', () => {
  const columns = [column('kernel', 'text'), column('source_lines', 'text')];
  const named = { kernel: 'void at::native::f<int>(int)', source_lines: ['/a/b.py:1', '/a/b.py:2'] };
  const [kernel, lines] = sheetColumns({ ...table, columns }, [named]);
  expect([kernel!.show!(named), lines!.show!(named)]).toEqual(['f<int>', '…/b.py:1 +1']);
});

test('a number of both sides is three columns, and one fact', () => {
  const times = column('time_us', 'us', { sides: true });
  const calls = column('calls', 'number', { sides: true });
  const row: SheetRow = {
    ...{ path: 'Net', time_us: { baseline: 8, candidate: 4, delta: -4 } },
    calls: { baseline: 1, candidate: null, delta: null },
  };
  const layout = {
    ...{ rows: 'modules', title: '', names: ['path'], inner: [] },
    columns: [column('path', 'text'), times, calls],
  };
  const shown = sheetColumns(layout, [row]).filter(({ hidden }) => !hidden);
  expect(shown.map(({ label }) => label)).toEqual([
    ...['path', 'time_us change', 'time_us baseline', 'time_us candidate', 'calls baseline'],
  ]);
  expect(shown.map((one) => cellOf(row, one))).toEqual(['Net', -4, 8, 4, 1]);
  expect(textOf(row, times)).toBe('8.00\u202fµs → 4.00\u202fµs, −4.00\u202fµs (−50.0\u202f%)');
  expect(textOf(row, calls)).toBe('1 → –, –');
});
