/** Highlighted code as numbers: what travels from the worker, and what a line on screen is made of. */

/** What a piece of code is, for its colour; index 0 is plain text. */
export const SCOPES = ['', 'keyword', 'string', 'number', 'comment', 'title', 'type', 'meta'] as const;

/** Tokens of all lines: `start[i]` … `start[i + 1]` index pairs (end column, scope) of line i. */
export interface Tokens {
  start: Uint32Array;
  pairs: Uint32Array;
}

interface Piece {
  text: string;
  scope: string;
  /** Number of the search hit that this piece is part of; -1 for none. */
  hit: number;
}

export interface Hit {
  /** Its number in the text. */
  n: number;
  line: number;
  from: number;
  to: number;
}

/** Collects tokens in the order of the text. */
export class TokenWriter {
  #start: number[] = [0];
  #pairs: number[] = [];
  #column = 0;

  add(text: string, scope: number): void {
    let from = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      this.#piece(end - from, scope);
      this.#start.push(this.#pairs.length / 2);
      this.#column = 0;
      from = end + 1;
    }
    this.#piece(text.length - from, scope);
  }

  end(): Tokens {
    this.#start.push(this.#pairs.length / 2);
    return { start: Uint32Array.from(this.#start), pairs: Uint32Array.from(this.#pairs) };
  }

  #piece(length: number, scope: number): void {
    if (length === 0) return;
    this.#column += length;
    const pairs = this.#pairs;
    const first = pairs.length === this.#start.at(-1)! * 2;
    if (!first && pairs.at(-1) === scope) pairs[pairs.length - 2] = this.#column;
    else pairs.push(this.#column, scope);
  }
}

/** The pieces of one line: cut where the colour changes and where a search hit begins or ends. */
export function pieces(line: string, i: number, tokens: Tokens | null, hits: Hit[]): Piece[] {
  const cuts = new Set([0, line.length]);
  const ends: [end: number, scope: string][] = [];
  if (tokens) {
    for (let t = tokens.start[i] ?? 0; t < (tokens.start[i + 1] ?? 0); t++) {
      const end = tokens.pairs[2 * t]!;
      ends.push([end, SCOPES[tokens.pairs[2 * t + 1]!] ?? '']);
      cuts.add(Math.min(end, line.length));
    }
  }
  for (const hit of hits) {
    cuts.add(hit.from);
    cuts.add(Math.min(hit.to, line.length));
  }
  const at = [...cuts].sort((a, b) => a - b);
  const result: Piece[] = [];
  for (let k = 0; k + 1 < at.length; k++) {
    const from = at[k]!;
    const scope = ends.find(([end]) => end > from)?.[1] ?? '';
    const hit = hits.find((h) => h.from <= from && from < h.to)?.n ?? -1;
    result.push({ text: line.slice(from, at[k + 1]), scope, hit });
  }
  return result;
}

/** Find all occurrences of the query, ignoring case; at most `most`. */
export function search(lines: string[], query: string, most = 10_000): Hit[] {
  const wanted = query.toLowerCase();
  const hits: Hit[] = [];
  if (!wanted) return hits;
  for (let line = 0; line < lines.length && hits.length < most; line++) {
    const text = lines[line]!.toLowerCase();
    for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
      hits.push({ n: hits.length, line, from, to: from + wanted.length });
    }
  }
  return hits;
}

/** Lines without their ends; a carriage return is no text. */
export function splitLines(text: string): string[] {
  return text.split(/\r?\n/);
}
