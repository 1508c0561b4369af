/** What words mean, in the server's sentences: they are asked for when the first one is to be explained. */
export type WordSet =
  | 'kernel_categories'
  | 'idle_causes'
  | 'host_causes'
  | 'job_parts'
  | 'phases'
  | 'statuses'
  | 'device_parts'
  | 'bounds'
  | 'frame_parts'
  | 'columns';

let known = $state.raw<Partial<Record<WordSet, Record<string, string>>> | null>(null);
let asked = false;

async function load(): Promise<void> {
  const answer = await fetch('terms', { cache: 'no-cache' }).catch(() => null);
  asked = answer?.status === 200;
  if (asked) known = await answer!.json();
}

/** The sentence; "…" until it is there, "" for a word that needs none. */
export function meaningOf(set: WordSet, word: string): string {
  if (!asked) {
    asked = true;
    void load();
  }
  return known ? (known[set]?.[word] ?? '') : '…';
}
