import type { DiffRow } from './diff';
import type { Tokens } from './tokens';

export type CodeTask =
  { what: 'highlight'; text: string; language: string } | { what: 'diff'; left: string[]; right: string[] };
/** `fraction` is progress; any other answer is final. */
export type CodeAnswer = { tokens: Tokens } | { rows: DiffRow[] } | { fraction: number } | { error: string };

/** What a worker makes of a text. Each question has a worker of its own, so that giving it up stops the work. */
function ask<T extends CodeAnswer>(
  question: CodeTask,
  signal: AbortSignal,
  progress: (fraction: number) => void = () => undefined,
): Promise<T> {
  const worker = new Worker(new URL('./code.worker.ts', import.meta.url), { type: 'module' });
  signal.addEventListener('abort', () => worker.terminate());
  return new Promise<T>((done, failed) => {
    worker.onmessage = ({ data }: MessageEvent<CodeAnswer>) => {
      if ('fraction' in data) return progress(data.fraction);
      worker.terminate();
      if ('error' in data) failed(new Error(data.error));
      else done(data as T);
    };
    worker.onerror = () => failed(new Error('The code worker did not start.'));
    worker.postMessage(question);
  });
}

export async function highlightText(text: string, language: string, signal: AbortSignal): Promise<Tokens> {
  return (await ask<{ tokens: Tokens }>({ what: 'highlight', text, language }, signal)).tokens;
}

/** Compute the rows of a side-by-side diff; `progress` is called with the fraction that is done. */
export async function diffLines(
  left: string[],
  right: string[],
  signal: AbortSignal,
  progress: (fraction: number) => void,
): Promise<DiffRow[]> {
  return (await ask<{ rows: DiffRow[] }>({ what: 'diff', left, right }, signal, progress)).rows;
}
