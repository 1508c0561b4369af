/** Lays out whatever is compared row by row, as the server says, so that one table shows it all. */
import type { ComparedTables, Comparison, Pair, TableLayout } from '../../api/types';
import { categoryLabel, isCategory } from '../../names/categories';
import type { Column, ColumnKind } from '../../table/table';

type RowsOf<Answer> = Answer[keyof Answer & TableLayout['rows']] extends (infer ComparedRow)[]
  ? ComparedRow
  : never;
export type ComparedRow = RowsOf<Comparison> | RowsOf<ComparedTables>;
export type TableOf = TableLayout & { all: ComparedRow[] };

const SIDES: [keyof Pair, string][] = [
  ['a', ' A'],
  ['b', ' B'],
  ['delta', ' change'],
];

/** Those with rows. */
export function tables(comparison: Comparison, more: ComparedTables): TableOf[] {
  const rows = { ...comparison, ...more };
  return more.layout.map((one) => ({ ...one, all: rows[one.rows] })).filter(({ all }) => all.length > 0);
}

const field = <T>(row: ComparedRow, name: string) => (row as unknown as Record<string, T>)[name]!;
const kindOf = (name: string): ColumnKind =>
  name.endsWith('_us') ? 'us' : name.endsWith('_s') ? 's' : 'count';

/** As a tree is written. */
const indented = (path: string) => path.replace(/[^/]*\//g, '\u2003');

export function textOf(row: ComparedRow, name: string): string {
  const text = field<string>(row, name);
  return name === 'category' && isCategory(text) ? categoryLabel(text) : text;
}

/** The kernels behind a row on a side. */
export const kernelsOf = (row: ComparedRow, side: 'a' | 'b') => ('places' in row ? row[side].kernels : []);

/** Each number as A, B and the change from A to B. */
export function columns({ texts, numbers, all }: TableOf): Column<ComparedRow>[] {
  const words = Object.entries(texts).map(([key, label], i): Column<ComparedRow> => ({
    ...{ key, label, grow: i === 0 ? 2 : undefined },
    value: (row) => textOf(row, key),
    show: key === 'path' ? (row) => indented(field(row, key)) : undefined,
    title: i === 0 ? (row) => titleOf(row, textOf(row, key)) : undefined,
  }));
  const change: Column<ComparedRow> = { key: 'outcome', label: 'Change' };
  const code: Column<ComparedRow> = {
    ...{ key: 'code', label: 'Code', unknown: 'Only one side has it' },
    value: (row) => ('compile_ids' in row && row.a && row.b ? 'Compare code' : null),
  };
  const sides = Object.entries(numbers).flatMap(([key, label], i) =>
    SIDES.map(([side, word]): Column<ComparedRow> => ({
      ...{ key: `${key}_${side}`, label: label + word, kind: kindOf(key), scaleWith: `${key}_a` },
      value: (row) => field<Pair>(row, key)[side],
      unknown: 'Not recorded on a side',
      hidden: (i > 0 && side === 'delta') || all.every((row) => field<Pair>(row, key)[side] === null),
      // What modules took holds what those inside of them took.
      total: /^(time|self)/.test(key) ? 'sum' : undefined,
    })),
  );
  return [...words, change, ...('direction' in texts ? [code] : []), ...sides];
}

const titleOf = (row: ComparedRow, name: string) =>
  [name, ...kernelsOf(row, 'a'), ...kernelsOf(row, 'b')].join('\n');
