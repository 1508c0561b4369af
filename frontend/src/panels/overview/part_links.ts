/** Where the rows of a part of a step are. */
import type { Compile } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';
import { toPart, withShift, toPanel } from '../../links/addresses';

/** key: as `partKey` makes it, "idle python". Some causes have a panel of their own. */
export function toStepPart(key: string, compile: Compile | null, event: Event): HashChange {
  if (key === 'gpu rest') return toPanel('step');
  if (withShift(event)) return toPart(key, event);
  if (/ compiling$/.test(key)) return toPanel(compile?.recompiles.length ? 'recompiles' : 'compile_time');
  if (/ graph_breaks$/.test(key)) return toPanel('graph_breaks');
  if (/ (guards|eager_operators)$/.test(key)) return toPanel('graph_breaks', 'eager');
  return toPart(key, event);
}

/** Parts of less than a percent as one: the sum stays what it is. */
export function withoutSmall<Part extends { key: string; value: number; beyond?: string }>(
  parts: Part[],
  join: (small: Part[], value: number) => Part,
): Part[] {
  const least = parts.reduce((sum, { value }) => sum + value, 0) / 100;
  const small = parts.filter(({ value, beyond }) => value < least && !beyond);
  if (small.length < 2) return parts;
  const value = small.reduce((sum, part) => sum + part.value, 0);
  return [...parts.filter((part) => !small.includes(part)), join(small, value)];
}
