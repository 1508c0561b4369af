/** Column widths from contents, so that rows that scroll in later do not move the columns. */
import { cellOf, cellText, columnScale, isNumeric, kindOf, totalOf, type Column, type Scale } from './table';

export interface Laid<Row> {
  column: Column<Row>;
  scale: Scale | undefined;
  head: string;
  /** Pixels; null takes what is left. */
  width: number | null;
  /** The value of a full bar. */
  largest: number;
}

const PADDING = 22;
const ARROW = 16;
const BAR = 70;
const WIDEST = 340;
const GROWS = 120;
const SAMPLE = 300;

export function layOut<Row>(rows: Row[], columns: Column<Row>[]): Laid<Row>[] {
  const numbers = new Map(columns.map((column) => [column.key, numbersOf(rows, column)]));
  return columns.map((column) => {
    const values = numbers.get(column.key)!;
    const shared = column.scaleWith ? numbers.get(column.scaleWith) : undefined;
    const scale = isNumeric(column) ? columnScale(kindOf(column), values, shared) : undefined;
    const largest = values.reduce((max, value) => Math.max(max, value), 0);
    const head = headText(column, scale);
    const width = column.grow ? null : Math.max(headWidth(head), bodyWidth(rows, column, scale, largest));
    return { column, scale, head, width, largest };
  });
}

/** Room that the columns need at least; text that grows keeps a readable width, its head in full. */
export function minimumWidth<Row>(laid: Laid<Row>[]): number {
  return laid.reduce(
    (sum, { width, column, head }) =>
      sum + (width ?? Math.max(headWidth(head), GROWS * (column.wrap ? 2 : (column.grow ?? 1)))),
    0,
  );
}

/** The first columns that fit, at least two. The details of a row hold the others. */
export function fitting<Row>(laid: Laid<Row>[], room: number): Laid<Row>[] {
  let most = laid.length;
  while (most > 2 && minimumWidth(laid.slice(0, most)) > room) most--;
  return laid.slice(0, most);
}

function numbersOf<Row>(rows: Row[], column: Column<Row>): number[] {
  if (!isNumeric(column)) return [];
  return rows.map((row) => cellOf(row, column)).filter((cell): cell is number => typeof cell === 'number');
}

function headText<Row>(column: Column<Row>, scale: Scale | undefined): string {
  return scale?.unit && kindOf(column) !== 'percent' && !column.unitless
    ? `${column.label}, ${scale.unit}`
    : column.label;
}

function headWidth(head: string): number {
  return Math.ceil(textWidth(head, true) + ARROW + PADDING);
}

function bodyWidth<Row>(rows: Row[], column: Column<Row>, scale: Scale | undefined, largest: number): number {
  const text =
    scale && !column.show ? widestNumber(rows, column, scale, largest) : widestText(rows, column, scale);
  return Math.ceil(Math.min(text, WIDEST) + (column.bar ? BAR : 0) + PADDING);
}

function widestNumber<Row>(rows: Row[], column: Column<Row>, scale: Scale, largest: number): number {
  // Where each cell has its unit, a smaller number may be wider.
  const texts = [scale.text(largest), scale.unit === '' && kindOf(column) !== 'count' ? '−888 µs' : ''];
  return Math.max(
    ...texts.map((text) => textWidth(text)),
    textWidth(scale.text(totalOf(rows, column) ?? 0), true),
  );
}

/** The longest of a sample: measuring 10,000 texts would be felt. */
function widestText<Row>(rows: Row[], column: Column<Row>, scale: Scale | undefined): number {
  const step = Math.max(1, Math.floor(rows.length / SAMPLE));
  let longest = '';
  for (let i = 0; i < rows.length; i += step) {
    const text = cellText(rows[i]!, column, scale);
    if (text.length > longest.length) longest = text;
  }
  return textWidth(longest) + (column.inset ?? 0);
}

let context: CanvasRenderingContext2D | null | undefined;

/** Width of a text in the tab's font, in pixels; an estimate where there is no canvas (tests). */
function textWidth(text: string, bold = false): number {
  if (context === undefined) {
    context = typeof document === 'undefined' ? null : document.createElement('canvas').getContext('2d');
  }
  if (!context) return text.length * 7;
  const style = getComputedStyle(document.body);
  context.font = `${bold ? 600 : 400} ${style.fontSize} ${style.fontFamily}`;
  return context.measureText(text).width;
}
