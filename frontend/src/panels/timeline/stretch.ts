/** A stretch of time as the address has it. */
import type { View } from '../../widgets/canvas/view';

/** "0,2001123": ns; null for what is no stretch. */
export function readView(text: string): View | null {
  const [from, to] = text.split(',').map((part) => (/^-?\d+$/.test(part) ? Number(part) : NaN));
  return to! > from! ? { from: from!, to: to! } : null;
}

export const writeView = ({ from, to }: View) => ({
  from: String(Math.round(from)),
  to: String(Math.round(to)),
});
