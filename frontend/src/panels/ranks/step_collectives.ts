/** The calls of one step, and where a part of it leads. */
import type { JoinedCall, RankLanes, StepSideBySide } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';
import { toPart, toRank, toTimeline } from '../../links/addresses';
import type { JobPart } from '../../names/job_parts';

/** A call on its rank's own timeline. */
export function toCall(rank: RankLanes, { start_ns, dur_ns, row }: JoinedCall): HashChange {
  const [from, to] = [start_ns - dur_ns, start_ns + 2 * dur_ns].map((ns) => ns + rank.own_ns);
  return { ...toRank(rank, 'timeline'), ...toTimeline({ from: from!, to: to!, row }) };
}

const OF_CALLS: Partial<Record<JobPart, 'wait_ns' | 'transfer_ns' | 'unknown_ns'>> = {
  exposed_wait_us: 'wait_ns',
  exposed_transfer_us: 'transfer_ns',
  exposed_unknown_us: 'unknown_ns',
};

/** Find the call of a rank with most of a part; null if no call has any of it. */
export function longestOf({ collectives }: StepSideBySide, rank: number, part: JobPart): JoinedCall | null {
  const key = OF_CALLS[part];
  const ns = (call: JoinedCall) => (key && call[key]) || 0;
  const calls = collectives.flatMap(({ calls }) =>
    calls.filter((call) => call.rank === rank && ns(call) > 0),
  );
  return calls.length > 0 ? calls.reduce((longest, call) => (ns(call) > ns(longest) ? call : longest)) : null;
}

const OWN: Partial<Record<JobPart, string>> = {
  exposed_memory_us: 'memory',
  idle_us: 'idle',
  compute_us: 'compute',
};

/** A part that is no call's, in the rank's own panels. */
export function toOwnPart(rank: RankLanes, part: JobPart, event: Event): HashChange {
  return { ...toRank(rank, 'kernels'), ...toPart(OWN[part] ?? 'communication', event) };
}
