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
  rank: number | null;
  time: number;
}

export const sideKey = ({ run, worker, span }: Side) => [run, worker, span].join('\n');

export function choices(runs: Runs): Choice[] {
  return runs.runs.flatMap(({ run, workers }) =>
    workers.flatMap(({ worker, rank, spans, has_compile }) => {
      const name = `${run === '.' ? '' : `${run} · `}${worker}`;
      if (spans.length === 0)
        return has_compile ? [{ run, worker, rank, span: '', time: 0, text: `${name} · no trace` }] : [];
      return spans.map((span, i) => ({
        ...{ run, worker, rank, span: span.span, time: spanTime(span) },
        text: spans.length > 1 ? `${name} · span ${i + 1} of ${spans.length}` : name,
      }));
    }),
  );
}

/**
 * What a side is compared with by default: its baseline run; the only other run; in a logdir of one run an earlier span
 * of the worker, otherwise another worker. Null where that is to be chosen: of several runs none is the baseline.
 */
export function usual(all: Choice[], side: Side, baseline: BaselineRef | null): Side | null {
  const own = all.find((choice) => sideKey(choice) === sideKey(side));
  if (!own) return null;
  const others = all.filter((choice) => choice !== own);
  const found = others.find(({ run, worker, span }) =>
    [run === baseline?.run, worker === baseline?.worker, span === baseline?.span].every(Boolean),
  );
  if (found) return found;
  const elsewhere = others.filter(({ run }) => run !== own.run);
  if (new Set(elsewhere.map(({ run }) => run)).size > 1) return null;
  const score = (choice: Choice) => [
    Number(choice.run === own.run),
    Number(!choice.span),
    Number(choice.run === own.run ? choice.worker !== own.worker : choice.rank !== own.rank),
    Number(choice.time > own.time),
    Math.abs(choice.time - own.time),
  ];
  const scored = others.map((choice) => ({ choice, score: score(choice) }));
  scored.sort((a, b) => a.score.reduce((order, value, i) => order || value - b.score[i]!, 0));
  return scored[0]?.choice ?? null;
}

/** What an address names, the newest where it names no worker or span; as it is where the logdir has no such thing. */
export function resolve(all: Choice[], asked: Side): Side {
  const fits = ({ run, worker, span }: Side) =>
    run === asked.run && [worker, ''].includes(asked.worker) && [span, ''].includes(asked.span);
  return all.findLast(fits) ?? asked;
}

/** The two sides in the address: what the whole tab shows, and what it is compared with. */
export function toSides(shown: Side, other: Side): HashChange {
  return {
    ...{ run: shown.run, worker: shown.worker, span: shown.span },
    ...{ run2: other.run, worker2: other.worker, span2: other.span },
  };
}
