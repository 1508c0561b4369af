import type { DiffRow } from './diff';
import type { Tokens } from './tokens';

export type Question =
  { what: 'highlight'; text: string; language: string } | { what: 'diff'; left: string[]; right: string[] };
export type Answer = { tokens?: Tokens; rows?: DiffRow[] | null; error?: string };

let worker: Worker | null = null;
let last = 0;
const waiting = new Map<number, { done: (answer: Answer) => void; failed: (error: Error) => void }>();

/** What the worker makes of a text. It is started when code is first looked at. */
function ask(question: Question): Promise<Answer> {
  worker ??= start();
  const id = ++last;
  return new Promise((done, failed) => {
    waiting.set(id, { done, failed });
    worker!.postMessage({ id, ...question });
  });
}

function start(): Worker {
  const it = new Worker(new URL('./code.worker.ts', import.meta.url), { type: 'module' });
  it.onmessage = ({ data }: MessageEvent<Answer & { id: number }>) => {
    const asked = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) asked?.failed(new Error(data.error));
    else asked?.done(data);
  };
  it.onerror = () => {
    for (const { failed } of waiting.values()) failed(new Error('The code worker did not start.'));
    waiting.clear();
    worker = null;
  };
  return it;
}

export async function highlightText(text: string, language: string): Promise<Tokens> {
  return (await ask({ what: 'highlight', text, language })).tokens!;
}

/** null when the texts differ too much to be compared in reasonable time. */
export async function diffLines(left: string[], right: string[]): Promise<DiffRow[] | null> {
  return (await ask({ what: 'diff', left, right })).rows ?? null;
}
