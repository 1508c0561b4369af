/** Merged stacks as slices: calls of one function side by side below their caller, the longest first. */
import type { HotSpots } from '../../api/types';
import type { IcicleLane, IcicleSlice } from '../../widgets/icicle/icicle';

export function stackLanes({ frames, functions }: HotSpots): IcicleLane[] {
  const inside = new Map<number, number[]>();
  frames.parent.forEach((parent, i) => inside.set(parent, [...(inside.get(parent) ?? []), i]));
  const lanes = new Map<string, IcicleSlice[]>();
  let top = 0;
  const place = (i: number, start: number, depth: number) => {
    const f = functions[frames.name[i]!]!;
    const end = start + frames.total_us[i]!;
    const slices = lanes.get(frames.thread[i]!) ?? [];
    lanes.set(frames.thread[i]!, slices);
    slices.push({
      i,
      name: f.name,
      start,
      end,
      depth,
      group: String(frames.name[i]),
      color: f.whose === 'yours' ? '--phase-triton' : '--phase-other',
    });
    for (const child of ordered(i)) {
      place(child, start, depth + 1);
      start += frames.total_us[child]!;
    }
    return end;
  };
  const ordered = (i: number) =>
    (inside.get(i) ?? []).sort((a, b) => frames.total_us[b]! - frames.total_us[a]!);
  for (const i of ordered(-1)) top = place(i, top, 0);
  return [...lanes].map(([label, slices]) => ({ key: label, label, slices }));
}
