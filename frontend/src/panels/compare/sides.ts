/** What can be compared: every span of every worker, and workers that only compiled. */
import { spanTime } from '../../api/selection';
import type { BaselineRef, Runs } from '../../api/types';
import type { HashChange } from '../../host/nav.svelte';

export interface Side {
  run: string;
  worker: string;
  /** Empty where the worker has no trace. */
  span: string;
}

interface Choice extends Side {
  text: string;
  time: number;
}

export const sideKey = ({ run, worker, span }: Side) => [run, worker, span].join('\n');

export function choices(runs: Runs): Choice[] {
  return runs.runs.flatMap(({ run, workers }) =>
    workers.flatMap(({ worker, spans, has_compile }) => {
      const name = `${run === '.' ? '' : `${run} · `}${worker}`;
      if (spans.length === 0)
        return has_compile ? [{ run, worker, span: '', time: 0, text: `${name} · no trace` }] : [];
      return spans.map((span, i) => ({
        ...{ run, worker, span: span.span, time: spanTime(span) },
        text: spans.length > 1 ? `${name} · span ${i + 1} of ${spans.length}` : name,
      }));
    }),
  );
}

/** What a side is compared with by default: its baseline run, or the span before it; null where that is to be chosen. */
export function usual(all: Choice[], side: Side, baseline: BaselineRef | null): Side | null {
  const { run, worker, span } = baseline ?? {};
  const own = all.find((choice) => sideKey(choice) === sideKey(side));
  const found = all.find((choice) => choice.run === run && choice.worker === worker && choice.span === span);
  const before = all.filter(
    (choice) => choice.run === own?.run && choice.worker === own.worker && choice.time < own.time,
  );
  return found ?? before.sort((one, other) => other.time - one.time)[0] ?? null;
}

/** What an address names, the newest where it names no worker or span; as it is where the logdir has no such thing. */
export function resolve(all: Choice[], asked: Side): Side {
  const fits = ({ run, worker, span }: Side) =>
    run === asked.run && [worker, ''].includes(asked.worker) && [span, ''].includes(asked.span);
  return all.findLast(fits) ?? asked;
}

/** The two sides in the address: what the whole tab shows, and what it is compared with (null: what is usual). */
export function toSides(shown: Side, other: Side | null): HashChange {
  return {
    ...{ run: shown.run, worker: shown.worker, span: shown.span },
    ...{ run2: other?.run ?? null, worker2: other?.worker ?? null, span2: other?.span ?? null },
  };
}
