/** Columns, keys and links of rows whose fields the server defines. */
import { meaningOf } from '../../api/meanings.svelte';
import type { Panel, SheetColumn, SheetTable } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';
import {
  NO_TIMELINE,
  toCategory,
  toCode,
  toCompilation,
  toKernel,
  toKernelRow,
  toPanel,
} from '../../links/addresses';
import { categoryLabel, deviceLabel, isCategory } from '../../names/categories';
import { causeLabel, isHostKind } from '../../names/causes';
import { shortKernel } from '../../names/kernel_names';
import { functionName, graphName, type CompileKey } from '../../names/compile_ids';
import { columnKind, type Cell, type Column } from '../../table/table';
import {
  count,
  dateTime,
  location,
  numberText,
  shortPath,
  signed,
  significant,
  THIN,
  UNKNOWN,
} from '../../widgets/format';

export type SheetRow = Record<string, unknown>;

const DEEPEST = 12;

const SIDES = ['delta', 'baseline', 'candidate'] as const;
type Pair = Record<(typeof SIDES)[number], number | null>;

/** A value of a row as a table sorts and exports it: lists are texts, and a file has its line. */
function valueOf(row: SheetRow, { key, kind }: SheetColumn): Cell {
  const value = row[key] ?? null;
  if (kind === 'rows') return (value as SheetRow[]).length;
  if (Array.isArray(value)) return value.join(', ') || null;
  if (kind === 'flag') return value === null ? null : value ? 'yes' : 'no';
  if (key === 'file') return value ? location(value as string, (row.line as number) ?? null) : null;
  return (value as Cell) === '' ? null : (value as Cell);
}

/** Columns of words that have labels of their own. */
const LABELLED = ['category', 'cause', 'kinds'];
const labelOf = (word: string) => (isCategory(word) ? categoryLabel(word) : causeLabel(word));

/** The words of a cell as people read them. */
function wordOf(words: string, key: string): string {
  if (!LABELLED.includes(key)) return words.replaceAll('_', ' ');
  return words.split(', ').map(labelOf).join(', ');
}

/** Columns whose words the server explains. */
const MEANINGS: Record<string, (word: string) => string> = {
  category: (word) => meaningOf('kernel_categories', word),
  bound: (word) => meaningOf('bounds', word),
  cause: (word) => (isHostKind(word) ? meaningOf('host_kinds', word) : meaningOf('host_causes', word)),
};

/** The same as it is read by itself. */
export function textOf(row: SheetRow, column: SheetColumn): string | null {
  if (column.sides) return changeText(row[column.key] as Pair, column.kind);
  const value = valueOf(row, column);
  if (value === null) return null;
  if (column.key === 'device') return deviceLabel(value as number | 'cpu');
  if (column.kind === 'unix') return dateTime(value as number);
  if (typeof value === 'number') return numberText(value, column.kind);
  return column.kind === 'word' ? wordOf(value, column.key) : value;
}

const amountText = (value: number, kind: string) =>
  kind === 'number' && Number.isInteger(value) ? count(value) : numberText(value, kind);

/** "8.00 µs → 4.00 µs, −4.00 µs (−50 %)". */
function changeText({ baseline, candidate, delta }: Pair, kind: string): string {
  const text = (value: number) => amountText(value, kind);
  const [before, after] = [baseline, candidate].map((value) => (value === null ? UNKNOWN : text(value)));
  const percent = baseline && delta ? (100 * delta) / baseline : 0;
  const share = percent ? ` (${signed(percent, (part) => `${significant(part)}${THIN}%`)})` : '';
  const change = delta === null ? UNKNOWN : delta === 0 ? 'equal' : signed(delta, text) + share;
  return `${before} → ${after}, ${change}`;
}

/** What a row is called: its first column. */
export const sheetHeading = ({ columns }: SheetTable, row: SheetRow): string =>
  textOf(row, columns[0]!) ?? UNKNOWN;

/** Shorter forms of names, whose full text is on hover. */
const SHORT: Record<string, (name: string) => string> = { kernel: shortKernel, operator: graphName };

/** The first of some places, and how many more there are: "…/train.py:27 +2". */
const places = ([first, ...more]: string[]) =>
  shortPath(first ?? '', 1) + (more.length > 0 ? ` +${more.length}` : '');

/** What the first column looks like in a tree, a file, a word and a name that has a short form. */
function showOf(column: SheetColumn, i: number): Column<SheetRow>['show'] {
  const { key, kind } = column;
  const deep = (row: SheetRow) => '\u2003'.repeat(Math.min(Number(row.depth ?? 0), DEEPEST));
  if (kind === 'rows') return (row) => String(valueOf(row, column) || '');
  if (key === 'source_lines') return (row) => places(row.source_lines as string[]);
  if (SHORT[key]) return (row) => SHORT[key]!(String(row[key]));
  if (kind === 'unix') return (row) => dateTime(row[key] as number);
  if (kind === 'number' || kind === 'word') return (row) => textOf(row, column) ?? '';
  if (key === 'function' && i > 0) return (row) => functionName(String(row.function));
  if (key === 'file') return (row) => location(shortPath(String(row.file), 1), row.line as number | null);
  return i === 0 ? (row) => deep(row) + textOf(row, column) : undefined;
}

const isEmpty = (value: Cell, kind: string) => value === null || (kind === 'rows' && value === 0);

/** A number of both sides of a comparison: of the first such number the change, then the baseline and the candidate. */
function sideColumns(column: SheetColumn, rows: SheetRow[], isFirst: boolean): Column<SheetRow>[] {
  const { key, label, kind, total } = column;
  return SIDES.map((side) => {
    const value = (row: SheetRow) => (row[key] as Pair)[side];
    const isEmpty = rows.every((row) => value(row) === null);
    const change = (row: SheetRow) => signed(value(row) ?? 0, (size) => amountText(size, kind));
    return {
      ...(side === 'delta' ? { show: change, unitless: true } : {}),
      ...{ key: `${key}_${side}`, label: `${label} ${side === 'delta' ? 'change' : side}`, value },
      ...{ kind: columnKind(kind), scaleWith: `${key}_baseline`, total: total ? 'sum' : undefined },
      hidden: column.hidden || isEmpty || (side === 'delta' && !isFirst),
    };
  });
}

/** Columns that are empty in all rows are hidden until the user chooses them. */
export function sheetColumns({ columns }: SheetTable, rows: SheetRow[]): Column<SheetRow>[] {
  const pair = columns.find(({ sides }) => sides);
  return columns.flatMap((column, i): Column<SheetRow> | Column<SheetRow>[] => {
    if (column.sides) return sideColumns(column, rows, column === pair);
    const { key, label, kind, bar, total, hidden, grow, wrap } = column;
    const whole = key.replace(/^self_/, '');
    return {
      ...{ key, label, bar, wrap, show: showOf(column, i), value: (row: SheetRow) => valueOf(row, column) },
      link: (row: SheetRow) => linkOf(row, key),
      meaning: MEANINGS[key] && ((row: SheetRow) => MEANINGS[key]!(String(row[key]))),
      kind: columnKind(kind === 'rows' ? 'count' : kind),
      hidden: hidden || (i > 0 && rows.every((row) => isEmpty(valueOf(row, column), kind))),
      total: total ? ('sum' as const) : undefined,
      grow: grow ? (i === 0 ? 2 : 1) : undefined,
      scaleWith: columns.some((other) => other.key === whole) ? whole : undefined,
      title:
        key === 'file' || key === 'source_lines' || SHORT[key] || i === 0
          ? (row: SheetRow) => textOf(row, column) ?? ''
          : undefined,
    };
  });
}

/** Compute the key like the server (`api/sheets.py`). */
export function sheetKey({ names }: SheetTable, row: SheetRow): string {
  const values = names.map((name) => row[name]).filter((value) => value !== null && value !== '');
  return [...new Set(values.map(String))].join() || 'all';
}

const compilation = (id: string, epoch: unknown) =>
  toCompilation({ compile_id: id, epoch: Number(epoch ?? 0) });
const optional = (value: unknown) => (value as string | null | undefined) ?? null;

/** Where what a row names is shown, by the field that names it, and what that is called. */
const LINKS: Record<
  string,
  [text: (value: string) => string, to: (row: SheetRow, value: string) => HashChange | null]
> = {
  file: [
    () => 'Show in Your code',
    (row, file) => ({
      ...toPanel('your_code'),
      file: null,
      'search.your_code': location(file.split('/').at(-1)!, optional(row.line) as number | null),
    }),
  ],
  compile_id: [(id) => `Compilation ${id}`, (row, id) => compilation(id, row.epoch)],
  kernel: [
    () => 'Show the kernel',
    (row, name) =>
      row.kernel_row ? toKernelRow(String(row.kernel_row)) : toKernel(name, optional(row.compile_id) ?? ''),
  ],
  kernels_of: [() => 'Show its kernels', (_, module) => ({ ...toCategory(null), 'search.kernels': module })],
  artifact: [
    () => 'Show the generated code',
    (row, id) =>
      toCode(
        { compile_id: String(row.compile_id), epoch: Number(row.epoch ?? 0) },
        { artifact: Number(id), line: optional(row.code_line) as number | null },
      ),
  ],
  both_ids: [() => 'Compare the generated code', bothCodes],
  run: [() => 'Open this run', (row, run) => ({ ...elsewhere(row), run })],
  worker: [() => 'Open this worker', elsewhere],
  panel: [() => 'Show the details', (row, panel) => ({ ...toPanel(panel as Panel), row: optional(row.row) })],
};

/** Null where only one side compiled it. */
function bothCodes({ baseline, candidate, direction }: SheetRow): HashChange | null {
  if (!baseline || !candidate) return null;
  const other = { key: baseline as CompileKey, artifact: null, elsewhere: true };
  return toCode(candidate as CompileKey, { direction: String(direction), other });
}

function elsewhere(row: SheetRow): HashChange {
  const target = { ...toPanel('overview'), ...NO_TIMELINE, span: optional(row.span) };
  return { ...target, worker: optional(row.worker) };
}

/** The columns of rows within a row that have anything; the first one leads to the row of another panel, if any. */
export function innerColumns(layout: SheetTable, rows: SheetRow[], without: string[]): InnerColumn[] {
  const seen = layout.columns.filter(
    (column) =>
      !column.hidden && !without.includes(column.key) && rows.some((row) => valueOf(row, column) !== null),
  );
  return seen.map((column, i) => ({
    label: column.label,
    isNumber: !['text', 'word', 'flag'].includes(column.kind),
    text: (row) => (valueOf(row, column) === null ? '' : (showOf(column, i)?.(row) ?? textOf(row, column)!)),
    link: (row) => linkOf(row, i === 0 && row.panel ? 'panel' : column.key),
  }));
}

interface InnerColumn {
  label: string;
  isNumber: boolean;
  text: (row: SheetRow) => string;
  link: (row: SheetRow) => HashChange | null;
}

/** A line of the program is not linked to itself, and files of libraries are not among them. */
const isLinked = (row: SheetRow, key: string) =>
  Boolean(row[key]) && (key !== 'file' || !('why_no_text' in row || (row.owner && row.owner !== 'yours')));

/** Of a cell; null where it leads nowhere. */
function linkOf(row: SheetRow, key: string): HashChange | null {
  return isLinked(row, key) ? (LINKS[key]?.[1](row, String(row[key])) ?? null) : null;
}

/** Every place that a row leads to, with what it is called. */
export function placesOf(row: SheetRow): [text: string, to: HashChange][] {
  const ids = (row.compile_ids ?? []) as string[];
  return [
    ...Object.entries(LINKS).flatMap(([key, [text]]): [string, HashChange][] => {
      const to = linkOf(row, key);
      return to ? [[text(String(row[key])), to]] : [];
    }),
    ...ids.map((id): [string, HashChange] => [`Compilation ${id}`, compilation(id, 0)]),
  ];
}
