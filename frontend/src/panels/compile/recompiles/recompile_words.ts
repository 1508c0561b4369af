/** How near the limit is, and what each version costs. */
import type { RecompiledFrame, Version } from '../../../api/types';
import { plural, seconds } from '../../../widgets/format';

/** "4 versions of at most 8". */
export function limitWords({ versions, limit }: RecompiledFrame): string {
  return plural(versions.length, 'version') + (limit === null ? '' : ` of at most ${limit}`);
}

/** A bar of calls, or of compile time where there is no trace. */
export function versionBar({ compile_id, duration_s, calls }: Version) {
  const compiled = duration_s === null ? [] : [`compiled in ${seconds(duration_s)}`];
  return {
    key: compile_id,
    label: compile_id,
    value: calls ?? duration_s ?? 0,
    text: [...(calls === null ? [] : [plural(calls, 'call')]), ...compiled].join(', '),
  };
}
