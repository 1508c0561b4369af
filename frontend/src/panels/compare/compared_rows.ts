/** Lays out everything that is compared row by row as the server defines it, so that one table can show it. */
import type {
  ComparedTables,
  Comparison,
  JobsCompared,
  Pair,
  SheetColumn,
  SheetTable,
} from '../../api/types';
import { categoryHelp, categoryLabel, isCategory } from '../../names/categories';
import { isJobPart, jobPartHelp } from '../../names/job_parts';
import { columnKind, type Cell, type Column } from '../../table/table';
import { count, numberText, signed, significant, THIN, UNKNOWN } from '../../widgets/format';

type RowsIn<Answer> = Extract<Answer[keyof Answer], { outcome: string }[]>[number];
export type ComparedRow = RowsIn<Comparison> | RowsIn<ComparedTables> | RowsIn<JobsCompared>;
export type TableOf = SheetTable & { all: ComparedRow[] };

const CHANGE = 'outcome';
const SIDES: [keyof Pair, string][] = [
  ['a', ' A'],
  ['b', ' B'],
  ['delta', ' change'],
];

/** Those with rows of both sides, which are in any of the answers. */
export function tables(
  layout: SheetTable[],
  ...answers: (Comparison | ComparedTables | JobsCompared)[]
): TableOf[] {
  const rows = Object.assign({}, ...answers) as Record<string, ComparedRow[]>;
  return layout
    .filter(({ columns }) => columns.some(({ key }) => key === CHANGE))
    .map((table) => ({ ...table, all: rows[table.rows]! }))
    .filter(({ all }) => all.length > 0);
}

const field = <T>(row: ComparedRow, name: string) => (row as unknown as Record<string, T>)[name]!;

const UNKNOWN_TEXTS: Record<string, string> = {
  message_bytes: 'The trace does not tell how much it moves',
};

/** As a tree is written. */
const indented = (path: string) => path.replace(/[^/]*\//g, '\u2003');

/** A word of the server by its label. */
function wordOf(row: ComparedRow, name: string): Cell {
  if ('op' in row && name === 'op') return row.op.replaceAll('_', ' ');
  const [text, word] = [field<Cell>(row, name), field<string>(row, name)];
  return name === 'category' && isCategory(word) ? categoryLabel(word) : text;
}

const wordHelp = (row: ComparedRow) =>
  'category' in row && isCategory(row.category) ? categoryHelp(row.category) : '';

const textColumns = ({ columns }: TableOf) =>
  columns.filter(({ key, sides, hidden }) => !sides && !hidden && key !== CHANGE);

const wordsOf = (table: TableOf, row: ComparedRow) => textColumns(table).map(({ key }) => wordOf(row, key));

export const keyOf = (table: TableOf, row: ComparedRow) => [...wordsOf(table, row), row.outcome].join();

/** A rank is a number. */
export const headingOf = (table: TableOf, row: ComparedRow) =>
  ('rank' in row ? ['Rank', ...wordsOf(table, row)] : wordsOf(table, row).slice(0, 1)).join(' ');

const numberColumns = ({ columns }: TableOf) => columns.filter(({ sides }) => sides);

/** Each number of a row as "8.00 µs → 4.00 µs, −4.00 µs (−50 %)". */
export const factsOf = (table: TableOf, row: ComparedRow) =>
  numberColumns(table).map((column) => ({
    label: column.label,
    value: changeOf(field<Pair>(row, column.key), column),
  }));

function changeOf({ a, b, delta }: Pair, column: SheetColumn): string {
  const write = (value: number) =>
    column.kind === 'number' && Number.isInteger(value) ? count(value) : numberText(value, column.kind);
  const [before, after] = [a, b].map((value) => (value === null ? UNKNOWN : write(value)));
  const share = a && delta ? ` (${signed((100 * delta) / a, (part) => `${significant(part)}${THIN}%`)})` : '';
  const change = delta === null ? UNKNOWN : delta === 0 ? 'equal' : signed(delta, write) + share;
  return `${before} → ${after}, ${change}`;
}

/** The kernels behind a row on a side. */
export const kernelsOf = (row: ComparedRow, side: 'a' | 'b') => ('places' in row ? row[side].kernels : []);

/** Each number as A, B and the change from A to B. */
export function columns(table: TableOf): Column<ComparedRow>[] {
  const words = textColumns(table).map(({ key, label, kind }, i): Column<ComparedRow> => ({
    ...{ key, label, kind: columnKind(kind), grow: i === 0 && key !== 'rank' ? 2 : undefined },
    value: (row) => wordOf(row, key),
    unknown: UNKNOWN_TEXTS[key],
    show: key === 'path' ? (row) => indented(field(row, key)) : undefined,
    ...(key === 'category' ? { meaning: (row) => wordHelp(row) } : {}),
    title: i === 0 ? (row) => titleOf(row, String(wordOf(row, key))) : undefined,
  }));
  const change: Column<ComparedRow> = { key: CHANGE, label: 'Change' };
  const code: Column<ComparedRow> = {
    ...{ key: 'code', label: 'Code', unknown: 'Only one side has it' },
    value: (row) => ('compile_ids' in row && row.a && row.b ? 'Compare code' : null),
  };
  const sides = numberColumns(table).flatMap(({ key, label, kind, hidden }, i) =>
    SIDES.map(([side, word]): Column<ComparedRow> => ({
      ...{ key: `${key}_${side}`, label: label + word, kind: columnKind(kind), scaleWith: `${key}_a` },
      value: (row) => field<Pair>(row, key)[side],
      unknown: 'Not recorded on a side',
      help: isJobPart(key) ? jobPartHelp(key) : undefined,
      hidden:
        hidden ||
        (i > 0 && side === 'delta') ||
        table.all.every((row) => field<Pair>(row, key)[side] === null),
      // What modules took holds what those inside of them took.
      total: /^(time|self)/.test(key) ? 'sum' : undefined,
    })),
  );
  return [...words, change, ...(table.rows === 'compilations' ? [code] : []), ...sides];
}

const titleOf = (row: ComparedRow, name: string) =>
  [name, ...kernelsOf(row, 'a'), ...kernelsOf(row, 'b')].join('\n');
