/** Two texts side by side: rows of lines that are equal, changed, or on one side only. */
import { diffArrays } from 'diff/lib/diff/array.js';

export type Kind = 'same' | 'changed' | 'removed' | 'added';

/** `left` and `right` are line numbers from 0; -1 where that side has no line. */
export interface DiffRow {
  kind: Kind;
  left: number;
  right: number;
}

/** Unchanged rows that are not shown: `from` … `to` of the rows. */
export interface Fold {
  from: number;
  to: number;
}

/** A diff that would take longer than this is not worth waiting for. */
const TIMEOUT_MS = 20_000;

/** null when the texts differ so much that comparing them takes too long. */
export function diffRows(left: string[], right: string[]): DiffRow[] | null {
  const changes = diffArrays(left, right, { timeout: TIMEOUT_MS }) as
    { value: string[]; added?: boolean; removed?: boolean }[] | undefined;
  if (!changes) return null;
  const rows: DiffRow[] = [];
  let l = 0;
  let r = 0;
  let gone = 0;
  let come = 0;
  const flush = () => {
    for (let k = 0; k < Math.max(gone, come); k++) {
      const kind = k < gone && k < come ? 'changed' : k < gone ? 'removed' : 'added';
      rows.push({ kind, left: k < gone ? l + k : -1, right: k < come ? r + k : -1 });
    }
    l += gone;
    r += come;
    gone = come = 0;
  };
  for (const { value, added, removed } of changes) {
    if (removed) gone += value.length;
    else if (added) come += value.length;
    else {
      flush();
      for (let k = 0; k < value.length; k++) rows.push({ kind: 'same', left: l++, right: r++ });
    }
  }
  flush();
  return rows;
}

export function countChanges(rows: DiffRow[]): { removed: number; added: number } {
  let removed = 0;
  let added = 0;
  for (const { kind } of rows) {
    if (kind === 'removed' || kind === 'changed') removed++;
    if (kind === 'added' || kind === 'changed') added++;
  }
  return { removed, added };
}

/** Rows to show: long runs of equal ones become a fold, with `context` rows kept around each change. */
export function foldEqual(rows: DiffRow[], context = 4, opened: Set<number> = new Set()): (number | Fold)[] {
  const shown: (number | Fold)[] = [];
  for (let i = 0; i < rows.length;) {
    let end = i;
    while (end < rows.length && rows[end]!.kind === 'same') end++;
    if (end === i) {
      shown.push(i++);
      continue;
    }
    const from = i === 0 ? 0 : i + context;
    const to = end === rows.length ? end : end - context;
    const folds = to - from > 3 && !opened.has(from);
    for (let k = i; k < end; k++) {
      if (!folds || k < from || k >= to) shown.push(k);
      else if (k === from) shown.push({ from, to });
    }
    i = end;
  }
  return shown;
}

/** Positions in `shown` at which a run of changes begins. */
export function changeStarts(rows: DiffRow[], shown: (number | Fold)[]): number[] {
  const changed = (item: number | Fold | undefined) =>
    typeof item === 'number' && rows[item]!.kind !== 'same';
  return shown.flatMap((item, i) => (changed(item) && !changed(shown[i - 1]) ? [i] : []));
}

/** What is equal at both ends of two lines; null where that is so little that marking the rest would say nothing. */
export function commonEnds(a: string, b: string): { head: number; tail: number } | null {
  const most = Math.min(a.length, b.length);
  let head = 0;
  while (head < most && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < most - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return 3 * (head + tail) < most ? null : { head, tail };
}
