/** The stack trie as rows: frames by depth, what was compiled below the frame that was compiled. */
import type { Compilation, Frame, TrieNode } from '../../api/types';

export type TrieRow = { key: string; level: number } & (
  | { kind: 'frame'; frame: Frame; users: boolean; open: boolean; inside: number; total_s: number | null }
  /** Frames in the middle of a chain of calls in which nothing branches. */
  | { kind: 'skipped'; frames: number }
  | { kind: 'compilation'; compilation: Compilation }
);

/** A chain shorter than this is shown whole. */
const CHAIN = 4;

/**
 * `closed` holds keys of frames that the reader folded, `shown` keys of chains that were unfolded. A chain shows its
 * first and its last frame.
 */
export function trieRows(
  nodes: TrieNode[],
  closed: ReadonlySet<string>,
  shown: ReadonlySet<string>,
): TrieRow[] {
  const rows: TrieRow[] = [];
  nodes.forEach((node, i) => addNode(node, String(i), 1, rows, closed, shown));
  return rows;
}

function addNode(
  node: TrieNode,
  key: string,
  level: number,
  rows: TrieRow[],
  closed: ReadonlySet<string>,
  shown: ReadonlySet<string>,
): void {
  const chain = chainFrom(node);
  const open = !closed.has(key);
  const { frame, users, total_s } = node;
  const inside = open ? 0 : countInside(node);
  rows.push({ key, level, kind: 'frame', frame, users, open, inside, total_s });
  if (!open) return;
  if (chain.length >= CHAIN && !shown.has(key)) {
    const last = chain.at(-1)!;
    rows.push({ key: `${key}…`, level: level + 1, kind: 'skipped', frames: chain.length - 2 });
    addNode(last, `${key}${'.0'.repeat(chain.length - 1)}`, level + 1, rows, closed, shown);
    return;
  }
  for (const compilation of node.compilations) {
    rows.push({ key: `${key} ${compilation.key}`, level: level + 1, kind: 'compilation', compilation });
  }
  node.children.forEach((child, i) => addNode(child, `${key}.${i}`, level + 1, rows, closed, shown));
}

/** The node and the only children below it, down to where something is compiled or the calls branch. */
function chainFrom(node: TrieNode): TrieNode[] {
  const chain = [node];
  let at = node;
  while (at.compilations.length === 0 && at.children.length === 1) {
    at = at.children[0]!;
    chain.push(at);
  }
  return chain;
}

function countInside(node: TrieNode): number {
  return node.compilations.length + node.children.reduce((sum, child) => sum + countInside(child), 0);
}
