/** Which lines two texts have in common: Myers' algorithm, in rounds, so that it ends soon for any two texts. */

/** A line of the left text and the equal line of the right one, numbered from 0. */
type LinePair = [left: number, right: number];

/** Differences that one round looks through: so many squared are steps, and four times as many bytes. */
const ROUND = 2000;

/**
 * Equal lines in an order that both texts share. At most O((n + m) · ROUND) steps: where two texts differ in more lines
 * than a round holds, the next one begins at the furthest place that this one has reached.
 */
export function commonLines(
  left: string[],
  right: string[],
  progress: (fraction: number) => void = () => undefined,
  most = ROUND,
): LinePair[] {
  const [a, b] = inBoth(left, right);
  const [n, m] = [a.codes.length, b.codes.length];
  const pairs: LinePair[] = [];
  for (let x = 0, y = 0; x < n && y < m;) {
    const path = round(a.codes.subarray(x), b.codes.subarray(y), most);
    for (const [i, j] of path.pairs) pairs.push([a.lines[x + i]!, b.lines[y + j]!]);
    x += path.end[0];
    y += path.end[1];
    progress((x + y) / (n + m));
  }
  return pairs;
}

interface Unique {
  /** Equal lines have equal codes. */
  codes: Int32Array;
  lines: number[];
}

/** Keep lines that occur in both texts: in very different texts most lines have no counterpart. */
function inBoth(left: string[], right: string[]): [Unique, Unique] {
  const codes = new Map(left.map((text, i) => [text, i]));
  const common = new Set(right.filter((text) => codes.has(text)));
  const side = (texts: string[]): Unique => {
    const lines = texts.flatMap((text, i) => (common.has(text) ? [i] : []));
    return { lines, codes: Int32Array.from(lines, (i) => codes.get(texts[i]!)!) };
  };
  return [side(left), side(right)];
}

interface Path {
  pairs: LinePair[];
  end: LinePair;
}

/** `x` lines of `a` and `y` of `b` are behind, and `d` differences. */
interface Reach {
  x: number;
  y: number;
  d: number;
}

/** One round from the beginning of both: to their ends, or half as far as `most` differences lead. */
function round(a: Int32Array, b: Int32Array, most: number): Path {
  const [n, m] = [a.length, b.length];
  // furthest[k + most + 1]: how far in `a` the diagonal k (line of a − line of b) has been followed.
  const furthest = new Int32Array(2 * most + 3);
  const before: Int32Array[] = [];
  let best: Reach = { x: 0, y: 0, d: 0 };
  for (let d = 0; d <= most; d++) {
    before.push(furthest.slice(most + 1 - d, most + 2 + d));
    for (let k = -d; k <= d; k += 2) {
      let x = begin(furthest, most + 1, k, d);
      while (x < n && x - k < m && a[x] === b[x - k]) x++;
      furthest[k + most + 1] = x;
      if (x > n || x - k > m || 2 * x - k <= best.x + best.y) continue;
      best = { x, y: x - k, d };
      if (x === n && x - k === m) return walkBack(before, best, d);
    }
  }
  // Near its end the way is a guess: the next round looks at the second half again.
  return walkBack(before, best, Math.min(best.d, Math.ceil(most / 2)));
}

/** Whether the best way to diagonal k in round d takes a line of `b` (from k + 1) rather than one of `a` (from k − 1). */
function takesRight(furthest: Int32Array, zero: number, k: number, d: number): boolean {
  return k === -d || (k !== d && furthest[zero + k - 1]! < furthest[zero + k + 1]!);
}

/** How far in `a` diagonal k begins in round d, before equal lines are followed. */
function begin(furthest: Int32Array, zero: number, k: number, d: number): number {
  if (d === 0) return 0;
  return takesRight(furthest, zero, k, d) ? furthest[zero + k + 1]! : furthest[zero + k - 1]! + 1;
}

/** The equal lines on the way to a place up to its difference `keep`, from what was reached when each began. */
function walkBack(before: Int32Array[], { x, y, d }: Reach, keep: number): Path {
  let pairs: LinePair[] = [];
  let end: LinePair = [x, y];
  let k = x - y;
  for (; d >= 0; d--) {
    if (d === keep) [pairs, end] = [[], [x, x - k]];
    const first = begin(before[d]!, d, k, d);
    for (; x > first; x--) pairs.push([x - 1, x - 1 - k]);
    const right = takesRight(before[d]!, d, k, d);
    x = right ? first : first - 1;
    k += right ? 1 : -1;
  }
  return { pairs: pairs.reverse(), end };
}
