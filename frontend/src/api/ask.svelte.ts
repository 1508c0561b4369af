import { untrack } from 'svelte';
import type { Ids, Question } from './client';
import { data } from './data.svelte';
import { Resource } from './resource.svelte';
import type { AboutJobs, AboutRun, AboutSides, AboutSpan, AboutWorker } from './types';

/**
 * An answer about the selected worker, asked for while the component that calls this is shown, and again when
 * TensorBoard reloads or what `more` names changes. `more` returning null asks for nothing; what it names goes before
 * what is selected.
 */
export function askAboutWorker<Q extends keyof (AboutWorker & AboutRun)>(
  question: Q,
  more: () => Ids | null = () => ({}),
): Resource<Q> {
  const ids = () => {
    const rest = more();
    return data.ids && rest && { run: data.ids.run, worker: data.ids.worker, ...rest };
  };
  return asked(question, ids, () => data.compile.value);
}

/** The same about the selected span. */
export function askAboutSpan<Q extends keyof AboutSpan>(
  question: Q,
  more: () => Ids = () => ({}),
): Resource<Q> {
  const ids = () => (data.ids?.span ? { ...data.ids, ...more() } : null);
  return asked(question, ids, () => data.span.value ?? data.compile.value);
}

/** The same about the selected span, or about its worker where there is none. */
export function askAboutEither<Q extends Question>(
  question: Q,
  more: () => Ids | null = () => ({}),
): Resource<Q> {
  const ids = () => {
    const rest = more();
    return data.ids && rest && { ...data.ids, ...rest };
  };
  return asked(question, ids, () => data.span.value ?? data.compile.value);
}

/** The same about the job of the selected run; null asks for nothing. */
export function askAboutJob<Q extends 'rank_findings' | 'rank_what_if' | 'job_map'>(
  question: Q,
  more: () => Ids | null,
): Resource<Q> {
  const ids = () => {
    const rest = more();
    return rest && data.jobIds && { ...data.jobIds, ...rest };
  };
  return asked(question, ids, () => data.job.value);
}

/** The same about two that are compared; null asks for nothing. */
export function askAboutSides<Q extends keyof (AboutSides & AboutJobs)>(
  question: Q,
  ids: () => Ids | null,
): Resource<Q> {
  return asked(question, ids, () => data.span.value ?? data.compile.value);
}

function asked<Q extends Question>(question: Q, ids: () => Ids | null, again: () => unknown): Resource<Q> {
  const resource = new Resource(question);
  // Objects are new after every reload: the key shows whether the question is still the same.
  const key = $derived(JSON.stringify(ids()));
  $effect(() => {
    again();
    const now = JSON.parse(key) as Ids | null;
    untrack(() => {
      if (now === null) resource.clear();
      else void resource.ask(now);
    });
  });
  $effect(() => () => resource.clear());
  return resource;
}
