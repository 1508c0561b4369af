/** Where the rows of a part of a step are. */
import type { Compile, Category, Cause } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';
import { toCategory, toGaps, toPanel } from '../../links/places';
import { isCategory } from '../../names/categories';

type Part = Category | Cause | 'compiled_graph' | 'rest';

/** key: as `partKey` makes it, "idle python". */
export function doorOf(key: string, compile: Compile | null): HashChange {
  const [kind, part] = key.split(' ') as ['gpu' | 'idle' | 'host', Part];
  if (part === 'rest') return toPanel('step_breakdown');
  if (isCategory(part)) return toCategory(part);
  if (part === 'compiled_graph') return toPanel('kernels');
  if (part === 'compile') return toPanel(compile?.recompiles.length ? 'recompiles' : 'compile_time');
  if (part === 'guards_wrapper' || part === 'break_eager') return toPanel('compiled_regions');
  if (kind === 'host') return toPanel('operators');
  return toGaps(part);
}

/** Parts of less than a percent as one: the sum stays what it is. */
export function withoutSmall<Part extends { key: string; value: number }>(
  parts: Part[],
  join: (small: Part[], value: number) => Part,
): Part[] {
  const least = parts.reduce((sum, { value }) => sum + value, 0) / 100;
  const small = parts.filter(({ value }) => value < least);
  if (small.length < 2) return parts;
  const value = small.reduce((sum, part) => sum + part.value, 0);
  return [...parts.filter((part) => part.value >= least), join(small, value)];
}
