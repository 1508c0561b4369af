import type { Answers, ApiErrorBody, Progress } from './types';

export type Question = keyof Answers;
export type Ids = Record<string, string>;

/** An answer that a user can act on: what happened to which file, and what to do. */
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

/** The routes lie beside this page: the iframe's base is `data/plugin/torch_compile/`. */
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
    'TensorBoard does not answer.',
    '',
    'Check that the tensorboard process still runs, then try again.',
  );
}

function toError(route: string, status: number, body: unknown): ApiError {
  const error = (body as { error?: Partial<ApiErrorBody> } | null)?.error;
  if (error?.message)
    return new ApiError(error.code ?? 'internal', error.message, error.file, error.next_step);
  return new ApiError(
    'internal',
    `TensorBoard answered ${status} to "${route}" without saying why.`,
    '',
    'Its terminal output says more.',
  );
}

export interface SpanIds extends Record<string, string> {
  run: string;
  worker: string;
  span: string;
}

/**
 * What a route answers. Where a trace has to be read for it, asks until that is done; `progress` hears how far the
 * server is.
 */
export async function fetchAnswer<Q extends Question>(
  question: Q,
  ids: Ids,
  signal: AbortSignal,
  progress: (progress: Progress) => void = () => undefined,
): Promise<Answers[Q]> {
  // Of a job all ranks are read: the server stops by itself when nobody asks any more.
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

/** Bytes about a span that was read; waits where it is being read anew. */
export async function fetchBytes(route: string, ids: Ids, signal: AbortSignal): Promise<ArrayBuffer> {
  for (;;) {
    const response = await ask(route, ids, signal);
    if (response.status === 200) return response.arrayBuffer();
    if (!response.ok) throw toError(route, response.status, await bodyOf(response));
    await sleep(POLL_MS.most, signal);
    if (signal.aborted) throw replaced();
  }
}

/** Says that nobody waits for this span any more; the server stops by itself later if it does not hear of it. */
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
