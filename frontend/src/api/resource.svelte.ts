import { ApiError, fetchAnswer, type Ids, type Question } from './client';
import type { Answers, Progress } from './types';

/** The answer to one question with its states. A refresh keeps the old value on screen until the new one is there. */
export class Resource<Q extends Question> {
  value = $state.raw<Answers[Q] | null>(null);
  error = $state.raw<ApiError | null>(null);
  progress = $state.raw<Progress | null>(null);
  loading = $state.raw(false);
  #key = '';
  #abort = new AbortController();

  constructor(readonly question: Q) {}

  /** Asks about these; about the same again is a refresh. */
  async ask(ids: Ids): Promise<void> {
    this.#restart(JSON.stringify(ids));
    const signal = this.#abort.signal;
    try {
      const value = await fetchAnswer(this.question, ids, signal, (progress) => (this.progress = progress));
      if (signal.aborted) return;
      this.value = value;
      this.error = null;
    } catch (cause) {
      if (signal.aborted) return;
      this.error = cause instanceof ApiError ? cause : new ApiError('internal', String(cause));
    }
    this.loading = false;
    this.progress = null;
  }

  clear(): void {
    this.#restart('');
    this.loading = false;
    this.error = null;
  }

  #restart(key: string): void {
    this.#abort.abort();
    this.#abort = new AbortController();
    if (key !== this.#key) {
      this.value = null;
      this.error = null;
    }
    this.#key = key;
    this.progress = null;
    this.loading = true;
  }
}
