/** Views and pins of the timeline as texts of the address. */
import type { View } from '../../widgets/canvas/view';

/** "0,2001123": ns; null if the text is no interval. */
export function readView(text: string): View | null {
  const [from, to] = text.split(',').map((part) => (/^-?\d+$/.test(part) ? Number(part) : NaN));
  return to! > from! ? { from: from!, to: to! } : null;
}

export const writeView = ({ from, to }: View) => ({
  from: String(Math.round(from)),
  to: String(Math.round(to)),
});

/** A slice that the reader pinned, with a note. */
export interface Pin {
  /** "row,lane", as the address names a slice. */
  slice: string;
  /** When it begins, ns. */
  at: number;
  note: string;
}

/** "6310,8,2001123,look here" line by line. */
export function writePins(pins: Pin[]): string | null {
  return pins.map(({ slice, at, note }) => `${slice},${Math.round(at)},${note}`).join('\n') || null;
}

/** Parse the pins; skip lines that are none. */
export function readPins(text: string): Pin[] {
  return text.split('\n').flatMap((line) => {
    const [, slice, at, note] = /^(\d+,\d+),(-?\d+),(.*)$/.exec(line) ?? [];
    return slice ? [{ slice, at: Number(at), note: note! }] : [];
  });
}
