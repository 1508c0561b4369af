import { untrack } from 'svelte';
import { fetchAboutSpan, type SpanIds } from './client';
import { data } from './data.svelte';
import { Resource } from './resource.svelte';

export interface WorkerIds extends Record<string, string> {
  run: string;
  worker: string;
}

/**
 * An answer about the selected worker, asked for while the component that calls this is shown, and again when
 * TensorBoard reloads or what `more` names changes. `more` returning null asks for nothing.
 */
export function ask<T, More extends Record<string, string>>(
  fetcher: (ids: WorkerIds & More, signal: AbortSignal) => Promise<T>,
  more: () => More | null,
): Resource<T> {
  const resource = new Resource<T>();
  // Objects are new after every reload: the key says whether it is still the same question.
  const key = $derived.by(() => {
    const { run, worker } = data.selection;
    const rest = more();
    return run && worker && rest ? JSON.stringify({ run: run.run, worker: worker.worker, ...rest }) : null;
  });
  $effect(() => {
    void data.compile.value;
    const ids = key;
    untrack(() => {
      if (ids === null) resource.clear();
      else void resource.load(ids, (signal) => fetcher(JSON.parse(ids) as WorkerIds & More, signal));
    });
  });
  $effect(() => () => resource.clear());
  return resource;
}

/**
 * The answer to one question about the selected span (see span_answers.py), asked for while the component that calls
 * this is shown, and again when TensorBoard reloads.
 */
export function askAboutSpan<T>(question: string): Resource<T> {
  const resource = new Resource<T>();
  const key = $derived.by(() => {
    const { run, worker, span } = data.selection;
    return run && worker && span
      ? JSON.stringify({ run: run.run, worker: worker.worker, span: span.span })
      : null;
  });
  $effect(() => {
    void data.span.value;
    const ids = key;
    untrack(() => {
      if (ids === null) return resource.clear();
      void resource.load(ids, (signal, progress) =>
        fetchAboutSpan<T>(question, JSON.parse(ids) as SpanIds, signal, progress),
      );
    });
  });
  $effect(() => () => resource.clear());
  return resource;
}
