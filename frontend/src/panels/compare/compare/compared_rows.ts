/** Lays out everything that is compared row by row as the server defines it, so that one table can show it. */
import type { ComparedTables, Comparison, JobsCompared, Pair, TableLayout } from '../../../api/types';
import { categoryHelp, categoryLabel, isCategory } from '../../../names/categories';
import { hostHelp, LATE_CAUSES } from '../../../names/causes';
import { isJobPart, jobPartHelp } from '../../../names/job_parts';
import type { Cell, Column, ColumnKind } from '../../../table/table';

type RowsOf<Answer> = Answer[keyof Answer & TableLayout['rows']] extends (infer ComparedRow)[]
  ? ComparedRow
  : never;
export type ComparedRow = RowsOf<Comparison> | RowsOf<ComparedTables> | RowsOf<JobsCompared>;
export type TableOf = TableLayout & { all: ComparedRow[] };

const SIDES: [keyof Pair, string][] = [
  ['a', ' A'],
  ['b', ' B'],
  ['delta', ' change'],
];

/** Those with rows, which are in any of the answers. */
export function tables(
  layout: TableLayout[],
  ...answers: (Comparison | ComparedTables | JobsCompared)[]
): TableOf[] {
  const rows = Object.assign({}, ...answers) as Record<TableLayout['rows'], ComparedRow[]>;
  return layout.map((table) => ({ ...table, all: rows[table.rows] })).filter(({ all }) => all.length > 0);
}

const field = <T>(row: ComparedRow, name: string) => (row as unknown as Record<string, T>)[name]!;
const kindOf = (name: string): ColumnKind =>
  name.endsWith('_us') ? 'us' : /(?<!gb)_s$/.test(name) ? 's' : 'count';

const UNKNOWN_TEXTS: Record<string, string> = {
  where: 'No Python stack tells it: record with with_stack=True',
  message_bytes: 'The trace does not tell how much it moves',
};

/** As a tree is written. */
const indented = (path: string) => path.replace(/[^/]*\//g, '\u2003');

/** A word of the server by its label. */
function textOf(row: ComparedRow, name: string): Cell {
  if ('cause' in row && name === 'cause') return LATE_CAUSES[row.cause][0];
  if ('op' in row && name === 'op') return row.op.replaceAll('_', ' ');
  const [text, word] = [field<Cell>(row, name), field<string>(row, name)];
  return name === 'category' && isCategory(word) ? categoryLabel(word) : text;
}

function wordHelp(row: ComparedRow): string {
  if ('cause' in row) return hostHelp(row.cause);
  return 'category' in row && isCategory(row.category) ? categoryHelp(row.category) : '';
}

const textsOf = ({ texts }: TableOf, row: ComparedRow) => Object.keys(texts).map((key) => textOf(row, key));

export const keyOf = (table: TableOf, row: ComparedRow) => [...textsOf(table, row), row.outcome].join();

/** A rank is a number. */
export const headingOf = (table: TableOf, row: ComparedRow) =>
  ('rank' in row ? ['Rank', ...textsOf(table, row)] : textsOf(table, row).slice(0, 1)).join(' ');

export const numbersOf = ({ numbers, more }: TableOf) => Object.entries({ ...numbers, ...more });

/** The kernels behind a row on a side. */
export const kernelsOf = (row: ComparedRow, side: 'a' | 'b') => ('places' in row ? row[side].kernels : []);

/** Each number as A, B and the change from A to B. */
export function columns({ texts, numbers, more, all }: TableOf): Column<ComparedRow>[] {
  const words = Object.entries(texts).map(([key, label], i): Column<ComparedRow> => ({
    ...{ key, label, grow: i === 0 && key !== 'rank' ? 2 : undefined },
    value: (row) => textOf(row, key),
    unknown: UNKNOWN_TEXTS[key],
    show: key === 'path' ? (row) => indented(field(row, key)) : undefined,
    ...(['category', 'cause'].includes(key) ? { meaning: (row) => wordHelp(row) } : {}),
    title: i === 0 ? (row) => titleOf(row, String(textOf(row, key))) : undefined,
  }));
  const change: Column<ComparedRow> = { key: 'outcome', label: 'Change' };
  const code: Column<ComparedRow> = {
    ...{ key: 'code', label: 'Code', unknown: 'Only one side has it' },
    value: (row) => ('compile_ids' in row && row.a && row.b ? 'Compare code' : null),
  };
  const sides = Object.entries({ ...numbers, ...more }).flatMap(([key, label], i) =>
    SIDES.map(([side, word]): Column<ComparedRow> => ({
      ...{ key: `${key}_${side}`, label: label + word, kind: kindOf(key), scaleWith: `${key}_a` },
      value: (row) => field<Pair>(row, key)[side],
      unknown: 'Not recorded on a side',
      help: isJobPart(key) ? jobPartHelp(key) : undefined,
      hidden:
        key in more ||
        (i > 0 && side === 'delta') ||
        all.every((row) => field<Pair>(row, key)[side] === null),
      // What modules took holds what those inside of them took.
      total: /^(time|self)/.test(key) ? 'sum' : undefined,
    })),
  );
  return [...words, change, ...('direction' in texts ? [code] : []), ...sides];
}

const titleOf = (row: ComparedRow, name: string) =>
  [name, ...kernelsOf(row, 'a'), ...kernelsOf(row, 'b')].join('\n');
