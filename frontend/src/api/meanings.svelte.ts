/** The server's explanations of words. They are fetched when the first one is needed. */
type WordSet =
  | 'kernel_categories'
  | 'host_kinds'
  | 'host_causes'
  | 'job_parts'
  | 'phases'
  | 'statuses'
  | 'device_parts'
  | 'bounds'
  | 'columns'
  | 'unknowns';

let sentences = $state.raw<Partial<Record<WordSet, Record<string, string>>> | null>(null);
let isRequested = false;

async function load(): Promise<void> {
  const answer = await fetch('terms', { cache: 'no-cache' }).catch(() => null);
  isRequested = answer?.status === 200;
  if (isRequested) sentences = await answer!.json();
}

function sentenceOf(set: WordSet, word: string): string | undefined {
  if (!isRequested) {
    isRequested = true;
    void load();
  }
  return sentences?.[set]?.[word];
}

/** The sentence; "…" until it is there. */
export const meaningOf = (set: WordSet, word: string): string => sentenceOf(set, word) ?? '…';

/** Return the help of a column; most columns need none. */
export const columnHelp = (table: string, column: string): string =>
  sentenceOf('columns', `${table}.${column}`) ?? '';

/** Why a cell of the column may be empty. */
export const unknownHelp = (table: string, column: string): string =>
  sentenceOf('unknowns', `${table}.${column}`) ?? 'Not recorded';
