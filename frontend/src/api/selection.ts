import type { JobMap, RunRef, Runs, SpanRef, WorkerRef } from './types';

/** What is looked at. `missing` names what the address asks for and the logdir does not (or no longer) hold. */
export interface Selection {
  run: RunRef | null;
  worker: WorkerRef | null;
  span: SpanRef | null;
  missing: 'run' | 'worker' | 'span' | null;
}

interface Requested {
  run: string;
  worker: string;
  span: string;
}

const NOTHING: Selection = { run: null, worker: null, span: null, missing: null };

/** Resolves the address against the logdir; what it leaves open becomes the newest. */
export function select(runs: Runs, requested: Requested): Selection {
  const run = requested.run ? find(runs.runs, 'run', requested.run) : newest(runs.runs, runTime);
  if (!run) return requested.run ? { ...NOTHING, missing: 'run' } : NOTHING;
  const worker = requested.worker ? find(run.workers, 'worker', requested.worker) : firstWorker(run);
  if (!worker) return { ...NOTHING, run, missing: requested.worker ? 'worker' : null };
  const span = requested.span ? find(worker.spans, 'span', requested.span) : newest(worker.spans, spanTime);
  // Of a rank that is known by its digest alone, the span has no trace.
  const traced = worker.spans.length > 0 || worker.has_compile;
  if (!span && requested.span && traced) return { run, worker, span: null, missing: 'span' };
  return { run, worker, span, missing: null };
}

function find<T, K extends keyof T>(items: T[], key: K, value: string): T | null {
  return items.find((item) => item[key] === value) ?? null;
}

function newest<T>(items: T[], time: (item: T) => number): T | null {
  return items.reduce<T | null>((best, item) => (best && time(best) >= time(item) ? best : item), null);
}

/** Ranks of one job end together: the first worker with a trace is a steadier choice than the newest. */
function firstWorker(run: RunRef): WorkerRef | null {
  return run.workers.find((worker) => worker.spans.length > 0) ?? run.workers[0] ?? null;
}

/** Which rank of a job these files are of. */
export function rankOf({ ranks, workers, spans }: JobMap, worker: string, span: string): number | null {
  return ranks.find((_, index) => workers[index] === worker && spans[index] === span) ?? null;
}

/** When it was recorded, in Unix seconds: a span is named by its time; copying a logdir changes the files' times. */
export function spanTime(span: SpanRef): number {
  return /^\d{19}$/.test(span.span) ? Number(span.span) / 1e9 : span.modified_s;
}

function runTime(run: RunRef): number {
  return Math.max(0, ...run.workers.flatMap((worker) => worker.spans.map(spanTime)));
}
