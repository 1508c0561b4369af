/** The table's logic without its looks: search, sort, totals, units, export. */
import type { HashChange } from '../host/nav.svelte';
import { bytes, count, duration, median, significant, UNKNOWN, unitFor } from '../widgets/format';

export type Cell = number | string | null;
export type ColumnKind = 'text' | 'count' | 'us' | 'ns' | 's' | 'percent' | 'bytes';

const KINDS = new Set<string>(['us', 'ns', 's', 'percent', 'bytes', 'count'] satisfies ColumnKind[]);

/** How a table shows and sorts a column. */
export const columnKind = (kind: string) =>
  (KINDS.has(kind) ? kind : kind === 'number' ? 'count' : 'text') as ColumnKind;

/** A field of the rows as it comes, or what `value` makes of a row; it sorts, searches and exports. Null is unknown. */
export type Column<Row> = ColumnLook<Row> &
  ({ key: Fields<Row>; value?: undefined } | { key: string; value: (row: Row) => Cell });

type Fields<Row> = { [K in keyof Row]: Row[K] extends Cell ? K : never }[keyof Row] & string;

interface ColumnLook<Row> {
  /** Name in exports and in the address. */
  key: string;
  label: string;
  /** If the key does not say it, as `time_us` and `guard_us_per_call` do. */
  kind?: ColumnKind;
  /** What is shown when it is not the value itself. */
  show?: (row: Row) => string;
  /** Full text on hover. */
  title?: (row: Row) => string;
  /** What the word in the cell means: it opens that. */
  meaning?: (row: Row) => string;
  /** Where what the cell names is shown; null leads nowhere. */
  link?: (row: Row) => HashChange | null;
  /** Why a null is unknown, on hover: of all rows, or of each; "" where the server's sentence (`unknownHelp`) does. */
  unknown?: string | ((row: Row) => string);
  /** Explains the column instead of the server's sentence (`columnHelp`). */
  help?: string;
  /** Draws a bar next to the number; a full bar is the column's largest value. */
  bar?: boolean;
  total?: 'sum';
  /** Key of a column whose unit this one shares, so that they can be compared. */
  scaleWith?: string;
  /** The header of that column names the unit for this one too. */
  unitless?: boolean;
  /** Pixels that a custom cell needs in addition to its text. */
  inset?: number;
  /** Not shown until the user chooses it. */
  hidden?: boolean;
  /** Share of the free width that a text column takes. */
  grow?: number;
  /** Its text is shown in full, on several lines. */
  wrap?: boolean;
}

export interface Sort {
  key: string;
  descending: boolean;
}

export function parseSort(text: string): Sort | null {
  if (!text) return null;
  return text.startsWith('-') ? { key: text.slice(1), descending: true } : { key: text, descending: false };
}

export function formatSort(sort: Sort): string {
  return (sort.descending ? '-' : '') + sort.key;
}

export function whyUnknown<Row>(row: Row, { unknown }: Column<Row>): string {
  return (typeof unknown === 'function' ? unknown(row) : unknown) ?? '';
}

export function cellOf<Row>(row: Row, { key, value }: Column<Row>): Cell {
  return value ? value(row) : (row[key as keyof Row] as Cell);
}

export function kindOf<Row>({ key, kind }: Column<Row>): ColumnKind {
  return kind ?? (/_(us|ns|s|percent|bytes)(_per_\w+)?$/.exec(key)?.[1] as ColumnKind | undefined) ?? 'text';
}

export function isNumeric<Row>(column: Column<Row>): boolean {
  return kindOf(column) !== 'text';
}

/** The next state of a header that is clicked: numbers start with the largest, words with A. */
export function nextSort<Row>(current: Sort | null, column: Column<Row>): Sort {
  if (current?.key === column.key) return { key: column.key, descending: !current.descending };
  return { key: column.key, descending: isNumeric(column) };
}

/** What sorts in place of a text: "a2" comes before "A10". Comparing these takes a tenth of an Intl.Collator's time. */
const natural = (text: string) => text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(16, '0'));

function compare(a: number | string, b: number | string): number {
  if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A sorted copy; equal rows keep their order, unknown values come last either way. */
export function sortRows<Row>(rows: Row[], columns: Column<Row>[], sort: Sort | null): Row[] {
  const column = sort && columns.find((c) => c.key === sort.key);
  if (!column) return rows;
  const sign = sort.descending ? -1 : 1;
  return rows
    .map((row, i) => {
      const cell = cellOf(row, column);
      return { row, i, cell: typeof cell === 'string' ? natural(cell) : cell };
    })
    .sort((a, b) => {
      if (a.cell === null || b.cell === null) {
        return a.cell === b.cell ? a.i - b.i : a.cell === null ? 1 : -1;
      }
      return sign * compare(a.cell, b.cell) || a.i - b.i;
    })
    .map(({ row }) => row);
}

/** What a search looks at: values and shown texts of all columns, hidden ones included. */
export function haystack<Row>(row: Row, columns: Column<Row>[]): string {
  return columns
    .map((c) =>
      [cellOf(row, c), cellOf(row, c) === null ? null : c.show?.(row), c.title?.(row)]
        .filter((t) => t !== null && t !== undefined)
        .join('\n'),
    )
    .join('\n')
    .toLowerCase();
}

export function totalOf<Row>(rows: Row[], column: Column<Row>): number | null {
  if (column.total !== 'sum') return null;
  const numbers = rows
    .map((row) => cellOf(row, column))
    .filter((cell): cell is number => typeof cell === 'number');
  return numbers.length === 0 ? null : numbers.reduce((sum, cell) => sum + cell, 0);
}

export interface Scale {
  unit: string;
  text: (value: number) => string;
}

/** Times that differ by more than this factor have a unit each: chosen by eye. */
const MOST_SPREAD = 1000;

/**
 * One unit and one number of decimals for a whole column, so that numbers align on the decimal, or a unit in each cell
 * where values differ too much. The unit suits the largest of `shared` when that is given.
 */
export function columnScale(kind: ColumnKind, values: number[], shared = values): Scale {
  if (kind === 'bytes') return { unit: '', text: (v) => minus(v, bytes) };
  if (kind === 'count') return { unit: '', text: count };
  if (kind === 'percent') return { unit: '%', text: fixed(values.some((v) => v !== 0 && v < 1) ? 2 : 1) };
  const perUs = kind === 's' ? 1e6 : kind === 'ns' ? 1e-3 : 1;
  const sizes = [...values, ...shared].map((v) => Math.abs(v * perUs)).filter((us) => us > 0);
  if (sizes.length === 0) return { unit: '', text: count };
  const largest = maximum(sizes);
  const smallest = sizes.reduce((min, us) => Math.min(min, us));
  if (largest / smallest > MOST_SPREAD) return { unit: '', text: (v) => minus(v * perUs, duration) };
  const unit = unitFor(largest);
  const decimals = fixed(decimalsFor(values.map((v) => (v * perUs) / unit.us).filter((v) => v !== 0)));
  return { unit: unit.name, text: (v) => decimals((v * perUs) / unit.us) };
}

const minus = (value: number, text: (size: number) => string) =>
  (value < 0 ? '−' : '') + text(Math.abs(value));

function maximum(values: number[]): number {
  return values.reduce((max, v) => Math.max(max, Math.abs(v)), 0);
}

/** Enough decimals to show the typical value with three digits, but at most five digits for the largest. */
function decimalsFor(values: number[]): number {
  if (values.length === 0) return 0;
  const wanted = 2 - Math.floor(Math.log10(median(values.map(Math.abs))!));
  const allowed = 4 - Math.floor(Math.log10(maximum(values)));
  return Math.max(0, Math.min(3, wanted, allowed));
}

function fixed(decimals: number): (value: number) => string {
  const format = new Intl.NumberFormat('en-US', {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  });
  return (value) => {
    const text = format.format(value).replace('-', '−');
    // A small amount is not nothing.
    const smallest = 10 ** -decimals;
    return value > 0 && value < smallest / 2 ? `<${significant(smallest, 1)}` : text;
  };
}

export function cellText<Row>(row: Row, column: Column<Row>, scale: Scale | undefined): string {
  const cell = cellOf(row, column);
  if (cell === null) return UNKNOWN;
  if (column.show) return column.show(row);
  return typeof cell === 'number' && scale ? scale.text(cell) : String(cell);
}

/** RFC 4180, with raw values under their keys. */
export function toCsv<Row>(rows: Row[], columns: Column<Row>[]): string {
  return lines(
    rows,
    columns,
    ',',
    (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text),
    '\r\n',
  );
}

/** For the clipboard: spreadsheets and editors both take tabs. */
export function toTsv<Row>(rows: Row[], columns: Column<Row>[]): string {
  return lines(rows, columns, '\t', (text) => text.replace(/[\t\r\n]+/g, ' '), '\n');
}

function lines<Row>(
  rows: Row[],
  columns: Column<Row>[],
  mark: string,
  quote: (t: string) => string,
  end: string,
) {
  const head = columns.map((c) => quote(c.key)).join(mark);
  const body = rows.map((row) => columns.map((c) => quote(exported(cellOf(row, c)))).join(mark));
  return [head, ...body].join(end) + end;
}

/** Names come from traces: a spreadsheet must not take one for a formula. */
function exported(cell: Cell): string {
  if (cell === null) return '';
  if (typeof cell === 'number') return String(cell);
  return /^[=+@\t\r]|^-(?![\d.]+$)/.test(cell) ? `'${cell}` : cell;
}
