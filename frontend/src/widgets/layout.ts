/** Column widths from contents, so that rows that scroll in later do not move the columns. */
import { cellText, columnScale, isNumeric, type Column, type Scale } from './table';

export interface Laid<Row> {
  column: Column<Row>;
  scale: Scale | undefined;
  /** Pixels; null takes what is left. */
  width: number | null;
  /** What a full bar stands for. */
  largest: number;
}

const DIGIT = 7.3;
const LETTER = 6.9;
const PADDING = 20;
const ARROW = 14;
const BAR = 66;
const WIDEST = 46;
const SAMPLE = 400;

export function layOut<Row>(rows: Row[], columns: Column<Row>[]): Laid<Row>[] {
  return columns.map((column) => {
    const values = isNumeric(column)
      ? rows.map((row) => column.value(row)).filter((cell): cell is number => typeof cell === 'number')
      : [];
    const scale = isNumeric(column) ? columnScale(column.kind!, values) : undefined;
    const largest = values.reduce((max, value) => Math.max(max, value), 0);
    const width = column.grow ? null : widthOf(rows, column, scale, largest);
    return { column, scale, width, largest };
  });
}

export function headText(laid: Laid<never> | Laid<unknown>): string {
  return laid.scale?.unit && laid.column.kind !== 'percent'
    ? `${laid.column.label}, ${laid.scale.unit}`
    : laid.column.label;
}

function widthOf<Row>(rows: Row[], column: Column<Row>, scale: Scale | undefined, largest: number): number {
  const head = headText({ column, scale, width: 0, largest } as Laid<never>).length * LETTER + ARROW;
  // The total is the widest number of its column, nearly always one digit more.
  const longest =
    scale && !column.show
      ? scale.text(largest).length + (column.total ? 1 : 0)
      : longestText(rows, column, scale);
  const body = Math.min(longest, WIDEST) * (scale ? DIGIT : LETTER) + (column.bar ? BAR : 0);
  return Math.ceil(Math.max(head, body) + PADDING);
}

function longestText<Row>(rows: Row[], column: Column<Row>, scale: Scale | undefined): number {
  const step = Math.max(1, Math.floor(rows.length / SAMPLE));
  let longest = 1;
  for (let i = 0; i < rows.length; i += step)
    longest = Math.max(longest, cellText(rows[i]!, column, scale).length);
  return longest;
}

/** Room that the columns need at least; text that grows keeps a readable width. */
export function minimumWidth(laid: Laid<never>[] | Laid<unknown>[]): number {
  return laid.reduce((sum, { width, column }) => sum + (width ?? 150 * (column.grow ?? 1)), 0);
}
