import type { Answers, ApiErrorBody, Progress } from './types';

export type Question = keyof Answers;
export type Ids = Record<string, string>;

/** An error that a user can act on: what happened to which file, and what to do. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly file = '',
    readonly nextStep = '',
  ) {
    super(message);
  }
}

/** How long until the server is asked again: soon at first, for most traces have been read before. */
const POLL_MS = { first: 40, most: 300 };

/** The routes are relative to this page: the iframe's base is `data/plugin/torch_compile/`. */
export const urlOf = (route: string, ids: Ids): string => `${route}?${new URLSearchParams(ids)}`;

/** In an exported file `fetch` is that of `file.ts`, which answers from the file. */
async function ask(route: string, ids: Ids, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(urlOf(route, ids), { signal, cache: 'no-cache' });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw serverGone();
  }
}

/** JSON, or a text as it is; null where there is neither. */
async function bodyOf(response: Response): Promise<unknown> {
  const text = response.headers.get('Content-Type')?.startsWith('text/plain') && response.ok;
  return (text ? response.text() : response.json()).catch(() => null);
}

function serverGone(): ApiError {
  return new ApiError(
    'server_gone',
    'TensorBoard does not respond.',
    '',
    'Check that the tensorboard process is still running, then try again.',
  );
}

function toError(route: string, status: number, body: unknown): ApiError {
  const error = (body as { error?: Partial<ApiErrorBody> } | null)?.error;
  if (error?.message)
    return new ApiError(error.code ?? 'internal', error.message, error.file, error.next_step);
  return new ApiError(
    'internal',
    `TensorBoard returned status ${status} for "${route}" without a reason.`,
    '',
    'See its terminal output for details.',
  );
}

export interface SpanIds extends Record<string, string> {
  run: string;
  worker: string;
  span: string;
}

/**
 * Fetch the answer of a route. While the server still reads a trace for it, ask again; `progress` is called with how
 * far the server is.
 */
export async function fetchAnswer<Q extends Question>(
  question: Q,
  ids: Ids,
  signal: AbortSignal,
  progress: (progress: Progress) => void = () => undefined,
): Promise<Answers[Q]> {
  // All ranks of a job are read: the server stops by itself when no request arrives any more.
  const stop = () => void ('worker' in ids && stopReading(ids));
  for (let wait = POLL_MS.first; ; wait = Math.min(2 * wait, POLL_MS.most)) {
    const response = await ask(question, ids, signal);
    const body: unknown = await bodyOf(response);
    if (signal.aborted) throw replaced();
    if (!response.ok || body === null) throw toError(question, response.status, body);
    if (response.status !== 202) return body as Answers[Q];
    progress((body as { progress: Progress }).progress);
    signal.addEventListener('abort', stop, { once: true });
    await sleep(wait, signal);
    if (signal.aborted) throw replaced();
    signal.removeEventListener('abort', stop);
  }
}

/** Fetch bytes about a span; wait while the span is read again. */
export async function fetchBytes(route: string, ids: Ids, signal: AbortSignal): Promise<ArrayBuffer> {
  for (;;) {
    const response = await ask(route, ids, signal);
    if (response.status === 200) return response.arrayBuffer();
    if (!response.ok) throw toError(route, response.status, await bodyOf(response));
    await sleep(POLL_MS.most, signal);
    if (signal.aborted) throw replaced();
  }
}

/** Tell the server that the answer is no longer needed. Without this message it stops later by itself. */
async function stopReading(ids: Ids): Promise<void> {
  await fetch(urlOf('reading', ids), { method: 'DELETE', keepalive: true }).catch(() => undefined);
}

function replaced(): DOMException {
  return new DOMException('replaced by a newer request', 'AbortError');
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    const stop = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener('abort', stop, { once: true });
  });
}
