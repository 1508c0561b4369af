import { ApiError } from './client';
import type { Progress } from './types';

export type Fetcher<T> = (signal: AbortSignal, progress: (progress: Progress) => void) => Promise<T>;

/** One answer of the server with its states. A refresh keeps the old value on screen until the new one is there. */
export class Resource<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<ApiError | null>(null);
  progress = $state.raw<Progress | null>(null);
  loading = $state(false);
  #key = '';
  #abort = new AbortController();

  /** Loads what `key` names; the same key again is a refresh. */
  async load(key: string, fetcher: Fetcher<T>): Promise<void> {
    this.#restart(key);
    const signal = this.#abort.signal;
    try {
      const value = await fetcher(signal, (progress) => (this.progress = progress));
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
