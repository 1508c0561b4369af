import type {
  ApiErrorBody,
  CompilationDetails,
  Compilations,
  Compile,
  CompileTime,
  GuardChecks,
  Progress,
  RankDifferences,
  Runs,
} from './types';

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

interface Answer {
  status: number;
  body: unknown;
}

/** The routes lie beside this page: the iframe's base is `data/plugin/torch_compile/`. */
async function ask(route: string, ids: Record<string, string>, signal: AbortSignal): Promise<Response> {
  const query = new URLSearchParams(ids).toString();
  try {
    return await fetch(query ? `${route}?${query}` : route, { signal, cache: 'no-cache' });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw serverGone();
  }
}

async function get(route: string, ids: Record<string, string>, signal: AbortSignal): Promise<Answer> {
  const response = await ask(route, ids, signal);
  const body: unknown = await response.json().catch(() => null);
  if (signal.aborted) throw replaced();
  if (!response.ok || body === null) throw toError(route, response.status, body);
  return { status: response.status, body };
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

export async function fetchRuns(signal: AbortSignal): Promise<Runs> {
  return (await get('runs', {}, signal)).body as Runs;
}

export async function fetchCompile(run: string, worker: string, signal: AbortSignal): Promise<Compile> {
  return (await get('compile', { run, worker }, signal)).body as Compile;
}

interface WorkerIds extends Record<string, string> {
  run: string;
  worker: string;
}

export async function fetchCompileTime(ids: WorkerIds, signal: AbortSignal): Promise<CompileTime> {
  return (await get('compile_time', ids, signal)).body as CompileTime;
}

export async function fetchCompilations(ids: WorkerIds, signal: AbortSignal): Promise<Compilations> {
  return (await get('compilations', ids, signal)).body as Compilations;
}

/** Of the whole run. */
export async function fetchRankDifferences(ids: WorkerIds, signal: AbortSignal): Promise<RankDifferences> {
  return (await get('rank_differences', ids, signal)).body as RankDifferences;
}

interface CompileIds extends WorkerIds {
  epoch: string;
  compile_id: string;
}

export async function fetchCompilation(ids: CompileIds, signal: AbortSignal): Promise<CompilationDetails> {
  return (await get('compilation', ids, signal)).body as CompilationDetails;
}

export async function fetchGuards(ids: CompileIds, signal: AbortSignal): Promise<GuardChecks> {
  return (await get('guards', ids, signal)).body as GuardChecks;
}

/** The text of an artifact: a graph, generated code, guards. */
export async function fetchArtifact(ids: WorkerIds & { id: string }, signal: AbortSignal): Promise<string> {
  const response = await ask('artifact', ids, signal);
  if (response.ok) return response.text();
  throw toError('artifact', response.status, await response.json().catch(() => null));
}

export interface SpanIds extends Record<string, string> {
  run: string;
  worker: string;
  span: string;
}

/** Asks a question about a span until its trace has been read; `progress` hears how far the server is. */
export async function fetchAboutSpan<T>(
  question: string,
  ids: SpanIds,
  signal: AbortSignal,
  progress: (progress: Progress) => void,
): Promise<T> {
  const stop = () => void stopReading(ids);
  for (let wait = POLL_MS.first; ; wait = Math.min(2 * wait, POLL_MS.most)) {
    const { status, body } = await get(question, ids, signal);
    if (status !== 202) return body as T;
    progress((body as { progress: Progress }).progress);
    signal.addEventListener('abort', stop, { once: true });
    await sleep(wait, signal);
    if (signal.aborted) throw replaced();
    signal.removeEventListener('abort', stop);
  }
}

/** Bytes about a span that was read; waits where it is being read anew. */
export async function fetchBytes(
  route: string,
  ids: SpanIds & Record<string, string>,
  signal: AbortSignal,
): Promise<ArrayBuffer> {
  for (;;) {
    const response = await ask(route, ids, signal);
    if (response.status === 200) return response.arrayBuffer();
    if (!response.ok) throw toError(route, response.status, await response.json().catch(() => null));
    await sleep(POLL_MS.most, signal);
    if (signal.aborted) throw replaced();
  }
}

/** Says that nobody waits for this span any more; the server stops by itself later if it does not hear of it. */
async function stopReading(ids: Record<string, string>): Promise<void> {
  const query = new URLSearchParams(ids).toString();
  await fetch(`reading?${query}`, { method: 'DELETE', keepalive: true }).catch(() => undefined);
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
