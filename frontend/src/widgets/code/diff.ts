/** Two texts side by side: rows of lines that are equal, changed, or on one side only. */
import { commonLines } from './common';

type LineKind = 'same' | 'changed' | 'removed' | 'added';

/** `left` and `right` are line numbers from 0; -1 where that side has no line. */
export interface DiffRow {
  kind: LineKind;
  left: number;
  right: number;
  /** In one column: the line of the other side that this one took the place of, or that took its place. */
  counterpart?: number;
}

/** Equal rows that are not shown: `from` … `to` of the rows. */
export interface Fold {
  from: number;
  to: number;
}

/** Lines that neither text shares with the other, between two that both have, are taken for changed one by one. */
export function diffRows(left: string[], right: string[], progress?: (fraction: number) => void): DiffRow[] {
  const rows: DiffRow[] = [];
  let [l, r] = [0, 0];
  for (const [i, j] of [...commonLines(left, right, progress), [left.length, right.length] as const]) {
    for (; l < i || r < j; l++, r++) {
      const kind = l < i && r < j ? 'changed' : l < i ? 'removed' : 'added';
      rows.push({ kind, left: l < i ? l : -1, right: r < j ? r : -1 });
    }
    [l, r] = [i + 1, j + 1];
    if (i < left.length) rows.push({ kind: 'same', left: i, right: j });
  }
  return rows;
}

export interface Changes {
  /** Runs of changed lines. */
  hunks: number;
  removed: number;
  added: number;
}

export function countChanges(rows: DiffRow[]): Changes {
  let removed = 0;
  let added = 0;
  for (const { kind } of rows) {
    if (kind === 'removed' || kind === 'changed') removed++;
    if (kind === 'added' || kind === 'changed') added++;
  }
  return { hunks: changeStarts(rows).length, removed, added };
}

/** Rows to show: long runs of equal ones become a fold, with `context` rows kept around each change. */
export function foldEqual(
  rows: DiffRow[],
  context = 4,
  opened: ReadonlySet<number> = new Set(),
): (DiffRow | Fold)[] {
  const shown: (DiffRow | Fold)[] = [];
  for (let i = 0; i < rows.length;) {
    let end = i;
    while (end < rows.length && rows[end]!.kind === 'same') end++;
    if (end === i) {
      shown.push(rows[i++]!);
      continue;
    }
    const from = i === 0 ? 0 : i + context;
    const to = end === rows.length ? end : end - context;
    const folds = to - from > 3 && !opened.has(from);
    for (let k = i; k < end; k++) {
      if (!folds || k < from || k >= to) shown.push(rows[k]!);
      else if (k === from) shown.push({ from, to });
    }
    i = end;
  }
  return shown;
}

const changed = (item: DiffRow | Fold | undefined): item is DiffRow =>
  item !== undefined && 'kind' in item && item.kind !== 'same';

/** Both sides in one column: of every run of changes first the lines that went, then those that came. */
export function inOneColumn(shown: (DiffRow | Fold)[]): (DiffRow | Fold)[] {
  const lines: (DiffRow | Fold)[] = [];
  let came: DiffRow[] = [];
  for (const item of shown) {
    if (!changed(item)) {
      lines.push(...came, item);
      came = [];
      continue;
    }
    const { left, right } = item;
    if (left >= 0) lines.push({ kind: 'removed', left, right: -1, counterpart: right });
    if (right >= 0) came.push({ kind: 'added', left: -1, right, counterpart: left });
  }
  return [...lines, ...came];
}

/** Positions at which a run of changes begins. */
export function changeStarts(shown: (DiffRow | Fold)[]): number[] {
  return shown.flatMap((item, i) => (changed(item) && !changed(shown[i - 1]) ? [i] : []));
}

/** A line cut where it begins and ends to differ from its counterpart; whole where little of it is equal. */
export function cutAtDifference(
  a: string,
  b: string | undefined,
): [head: string, middle: string, tail: string] {
  if (b === undefined) return [a, '', ''];
  const most = Math.min(a.length, b.length);
  let head = 0;
  while (head < most && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < most - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  if (3 * (head + tail) < most) return [a, '', ''];
  return [a.slice(0, head), a.slice(head, a.length - tail), a.slice(a.length - tail)];
}
