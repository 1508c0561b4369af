/** From one number to another, part by part: each bar begins where the one before it ended. */
import { duration, signed } from '../../widgets/format';

interface PartChange {
  key: string;
  label: string;
  /** A change; parts that do not change are left out. */
  value: number;
  color: string;
  title: string;
  idle?: boolean;
}

const WIDE = 3;

/** `least`: small changes of large numbers would not be seen on a scale that begins at 0. Times in µs. */
export function waterfall(from: number, parts: PartChange[]) {
  let at = from;
  const moved = parts
    .filter(({ value }) => value)
    .map((part) => ({
      ...part,
      from: at,
      value: (at += part.value),
      text: signed(part.value, duration),
    }));
  const end = (key: string, value: number) => ({ key, label: key, value, text: duration(value) });
  const bars = [end('A', from), ...moved, end('B', at)];
  const values = bars.map(({ value }) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const least = WIDE * (high - low) < high ? Math.max(0, low - (high - low) / WIDE) : 0;
  return { bars, least };
}
