import { untrack } from 'svelte';
import { fetchAboutSpan, type SpanIds } from './client';
import { data } from './data.svelte';
import { Resource, type Fetcher } from './resource.svelte';

export interface WorkerIds extends Record<string, string> {
  run: string;
  worker: string;
}

/**
 * An answer about the selected worker, asked for while the component that calls this is shown, and again when
 * TensorBoard reloads or what `more` names changes. `more` returning null asks for nothing; what it names goes before
 * what is selected.
 */
export function ask<T, More extends Record<string, string>>(
  fetcher: (ids: WorkerIds & More, signal: AbortSignal) => Promise<T>,
  more: () => More | null,
): Resource<T> {
  return asked(
    () => {
      const { run, worker } = data.selection;
      const rest = more();
      return run && worker && rest && { run: run.run, worker: worker.worker, ...rest };
    },
    () => data.compile.value,
    (ids) => (signal) => fetcher(ids, signal),
  );
}

/**
 * The answer to one question about the selected span (see span_answers.py), asked for while the component that calls
 * this is shown, and again when TensorBoard reloads or what `more` names changes.
 */
export function askAboutSpan<T>(
  question: string,
  more: () => Record<string, string> = () => ({}),
): Resource<T> {
  return askAbout(question, () => {
    const { run, worker, span } = data.selection;
    return run && worker && span && { run: run.run, worker: worker.worker, span: span.span, ...more() };
  });
}

/** The same about any span, or about two; null asks for nothing. */
export function askAbout<T>(question: string, ids: () => SpanIds | null): Resource<T> {
  return asked(
    ids,
    () => data.span.value ?? data.compile.value,
    (ids) => (signal, progress) => fetchAboutSpan<T>(question, ids, signal, progress),
  );
}

function asked<T, Ids>(
  ids: () => Ids | null,
  again: () => unknown,
  fetcher: (ids: Ids) => Fetcher<T>,
): Resource<T> {
  const resource = new Resource<T>();
  // Objects are new after every reload: the key says whether it is still the same question.
  const key = $derived(JSON.stringify(ids()));
  $effect(() => {
    again();
    const now = JSON.parse(key) as Ids | null;
    untrack(() => {
      if (now === null) resource.clear();
      else void resource.load(key, fetcher(now));
    });
  });
  $effect(() => () => resource.clear());
  return resource;
}
