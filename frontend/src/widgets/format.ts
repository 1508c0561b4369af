/** Numbers in words: three significant digits, unit behind a thin space, "–" for unknown values; and the median. */

export const UNKNOWN = '–';
export const THIN = '\u202f';

/** Three significant digits without an exponent: 22.4, 0.713, 1,234. */
export function significant(value: number, digits = 3): string {
  if (value === 0) return '0';
  const rounded = Number(value.toPrecision(digits));
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(rounded))));
  return decimals === 0 ? count(Math.round(value)) : rounded.toFixed(Math.min(decimals, 6));
}

const GROUPED = new Intl.NumberFormat('en-US');

export function count(value: number): string {
  return GROUPED.format(Math.round(value));
}

export function plural(value: number, singular: string, many = singular + 's'): string {
  return `${count(value)} ${value === 1 ? singular : many}`;
}

/** `from`: the least that is written in it, if not one; a compile time of 101 s is not 1.69 min. */
export interface Unit {
  name: string;
  us: number;
  from?: number;
}

const UNITS: Unit[] = [
  { name: 'µs', us: 1 },
  { name: 'ms', us: 1e3 },
  { name: 's', us: 1e6 },
  { name: 'min', us: 60e6, from: 1000e6 },
  { name: 'h', us: 3600e6 },
];

/** The largest unit in which such a value is written. */
export function unitFor(us: number): Unit {
  // 999.6 µs would be written "1,000 µs": compare what will be shown.
  const size = Number(Math.abs(us).toPrecision(3));
  return UNITS.findLast((unit) => size >= (unit.from ?? unit.us)) ?? UNITS[0]!;
}

/** digits: two for a prediction. */
export function duration(us: number | null | undefined, digits = 3): string {
  if (us === null || us === undefined) return UNKNOWN;
  if (us === 0) return `0${THIN}µs`;
  const unit = unitFor(us);
  return significant(us / unit.us, digits) + THIN + unit.name;
}

/** A time that is foretold, with what it may be at least and at most. */
interface Foretold {
  step_us: number;
  after_us: number;
  low_us: number;
  high_us: number;
}

/** "2.7–3.0 ms"; "" where nothing about it is uncertain. */
export function predictedRange({ low_us, high_us }: Foretold): string {
  const unit = unitFor(high_us);
  const [low, high] = [significant(low_us / unit.us, 2), significant(high_us / unit.us, 2)];
  return low === high ? '' : `${low}–${high}${THIN}${unit.name}`;
}

/** "13.4 ms → 2.8 ms (2.7–3.0 ms)": two digits for what is predicted. */
export function predicted(foretold: Foretold): string {
  const range = predictedRange(foretold);
  return `${duration(foretold.step_us)} → ${duration(foretold.after_us, 2)}${range && ` (${range})`}`;
}

export function seconds(s: number | null | undefined): string {
  return duration(s === null || s === undefined ? null : s * 1e6);
}

export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value > 0 && value < 0.01) return `<${THIN}0.01${THIN}%`;
  return (value >= 99.95 ? '100' : significant(value)) + THIN + '%';
}

/** A change: "−4.2 ms", "+3". */
export function signed(value: number, text: (size: number) => string): string {
  return (value < 0 ? '−' : '+') + text(Math.abs(value));
}

export function bytes(value: number): string {
  const names = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = value < 1 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3));
  return (power === 0 ? count(value) : significant(value / 1000 ** power)) + THIN + names[power];
}

/** Unix seconds as local date and time; the same order everywhere in the world. */
export function dateTime(s: number): string {
  const d = new Date(s * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  return `${day} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** Shorten a path from the left: its end identifies it. */
export function shortPath(path: string, parts = 2): string {
  const pieces = path.split('/');
  return pieces.length <= parts ? path : '…/' + pieces.slice(-parts).join('/');
}

const NUMBER =
  /(?<![\w#/.:[])((?:< )?\d(?:[\d,.]*\d)?(?:–\d(?:[\d,.]*\d)?)?(?: (?:%|[nµm]?s|min|h|[kMGT]?B)(?!\w))?(?![\w/#]|:\S)|(?<=→ )\w+ bound)/;

/** A sentence in pieces: every second one is a number with its unit, or what bounds a step. */
export function boldPieces(text: string): string[] {
  return text.split(NUMBER).map((piece, i) => (i % 2 ? piece.replace(/(?<=[\d<]) /g, THIN) : piece));
}

/** Turn a log line into a sentence. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (!trimmed) return '';
  return trimmed[0]!.toUpperCase() + trimmed.slice(1) + (/[.!?:)”]$/.test(trimmed) ? '' : '.');
}

export function location(file: string | null, line: number | null): string {
  if (!file) return UNKNOWN;
  return line === null ? file : `${file}:${line}`;
}

/** "1st", "22nd", "113th" */
export function ordinal(n: number): string {
  const end = { one: 'st', two: 'nd', few: 'rd' } as Partial<Record<Intl.LDMLPluralRule, string>>;
  return `${count(n)}${end[new Intl.PluralRules('en', { type: 'ordinal' }).select(n)] ?? 'th'}`;
}

export function median(values: number[]): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

const TEXTS: Record<string, (value: number) => string> = {
  us: duration,
  ns: (ns) => duration(ns / 1000),
  s: (s) => duration(s * 1e6),
  percent,
  bytes: (size) => (size < 0 ? '−' : '') + bytes(Math.abs(size)),
  count,
  number: significant,
};

/** A number of a column that the server lays out, as it is read by itself. */
export const numberText = (value: number, kind: string) => (TEXTS[kind] ?? significant)(value);
