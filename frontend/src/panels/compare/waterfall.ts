/** From one number to another, part by part: each bar begins where the one before it ended. */
import type { PartDifference } from '../../api/types';
import { partKey, styleOf } from '../../names/parts';
import { duration, signed } from '../../widgets/format';

const WIDE = 3;

/** `least`: small changes of large numbers would not be seen on a scale that begins at 0. */
export function waterfall(from_us: number, parts: PartDifference[]) {
  let at = from_us;
  const moved = parts.flatMap((part) => {
    const [label, color, title] = styleOf(part);
    const delta = part.time_us.delta ?? 0;
    const bar = { ...{ key: partKey(part), label, color, title }, idle: part.kind === 'idle' };
    return delta ? { ...bar, from: at, value: (at += delta), text: signed(delta, duration) } : [];
  });
  const end = (label: string, value: number) => ({ key: label, label, value, text: duration(value) });
  const bars = [end('Baseline', from_us), ...moved, end('Candidate', at)];
  const values = bars.map(({ value }) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const least = WIDE * (high - low) < high ? Math.max(0, low - (high - low) / WIDE) : 0;
  return { bars, least };
}
