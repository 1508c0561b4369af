/** Recompiles: when they happened, how near the limit is, and what a trace alone tells. */
import type { RecompiledFrame, RecompileMoment, Span } from '../../api/types';
import { duration, plural } from '../../widgets/format';

/** "in ProfilerStep#3", "12.0 ms into the span", "46.1 s before the span"; null where nobody told. */
export function whenOf(moment: RecompileMoment | undefined): string | null {
  if (!moment) return null;
  if (moment.step) return `in ${moment.step}`;
  const after = duration(Math.abs(moment.start_us));
  if (moment.where === 'before') return `${after} before the span`;
  return moment.where === 'inside' ? `${after} into the span` : 'after the span';
}

/** "4 versions of at most 8". */
export function limitWords({ versions, limit }: RecompiledFrame): string {
  return plural(versions.length, 'version') + (limit === null ? '' : ` of at most ${limit}`);
}

/** Frames of which a trace without a log ran more than one version, with the calls of each. */
export function versionsInTrace(span: Span | null) {
  const frames = new Map<string, { key: string; label: string; value: number; text: string }[]>();
  for (const { compile_id, calls } of span?.compiled_regions ?? []) {
    const frame = compile_id.replace(/\/[^/]*$/, '');
    const bar = { key: compile_id, label: compile_id, value: calls, text: plural(calls, 'call') };
    frames.set(frame, [...(frames.get(frame) ?? []), bar]);
  }
  return [...frames].filter(([, versions]) => versions.length > 1 || !versions[0]!.key.endsWith('/0'));
}
