/** Merged stacks as slices: calls of one function side by side below their caller, the longest first. */
import type { PythonTime } from '../../api/types';
import type { IcicleLane, IcicleSlice } from '../../widgets/icicle/icicle';

/**
 * Calls among libraries are folded into the first frame of the library; user functions that they call are drawn below.
 * opened: indices of frames that are not folded.
 */
export function stackLanes(
  { frames, functions, threads }: PythonTime,
  opened: ReadonlySet<number>,
): IcicleLane[] {
  const inside = new Map<number, number[]>();
  frames.parent.forEach((parent, i) => inside.set(parent, [...(inside.get(parent) ?? []), i]));
  const lanes: IcicleLane[] = threads.map((label, i) => ({ key: String(i), label, slices: [] }));
  const calls = (i: number) => inside.get(i) ?? [];
  const of = (i: number) => functions[frames.name[i]!]!;
  const longestFirst = (list: number[]) => list.sort((a, b) => frames.total_us[b]! - frames.total_us[a]!);

  /** Below a folded frame: what its libraries call of yours, and how many frames are not drawn. */
  function folded(i: number): { drawn: number[]; hidden: number } {
    const fold = { drawn: [] as number[], hidden: 0 };
    for (const child of calls(i)) {
      if (of(child).owner === 'yours') fold.drawn.push(child);
      else {
        const { drawn, hidden } = folded(child);
        fold.drawn.push(...drawn);
        fold.hidden += hidden + 1;
      }
    }
    return fold;
  }

  function addFrame(i: number, start: number, depth: number, open: boolean): number {
    const f = of(i);
    const end = start + frames.total_us[i]!;
    const yours = f.owner === 'yours';
    const free = yours || open || opened.has(i);
    const { drawn, hidden } = free ? { drawn: calls(i), hidden: 0 } : folded(i);
    const slice: IcicleSlice = {
      i,
      name: hidden ? `${f.name} +${hidden}` : f.name,
      start,
      end,
      depth,
      group: String(frames.name[i]),
      color: yours ? '--phase-triton' : '--phase-other',
    };
    lanes[frames.thread[i]!]!.slices.push(slice);
    for (const child of longestFirst(drawn)) start = addFrame(child, start, depth + 1, !yours && free);
    return end;
  }

  const ends = threads.map(() => 0);
  for (const i of longestFirst(calls(-1))) {
    const thread = frames.thread[i]!;
    ends[thread] = addFrame(i, ends[thread]!, 0, false);
  }
  return lanes.filter(({ slices }) => slices.length > 0);
}
