/** Phase spans as lanes of the icicle: one a thread, compile worker processes below. */
import type { CompileTime, Phase } from '../../../api/types';
import type { IcicleLane, IcicleSlice } from '../../../widgets/icicle/icicle';
import { codeKey } from '../../../names/compile_ids';

export interface PhaseSlice extends IcicleSlice {
  phase: Phase;
  unfinished: boolean;
}

/** The slices of one compile id share this group; work for several has none. */
function spanGroup(time: CompileTime, i: number): string {
  const compile_id = time.compile_ids[time.spans.compile_id[i] ?? -1];
  return compile_id ? codeKey({ compile_id, epoch: time.spans.epoch[i] }) : '';
}

export function spanLanes(time: CompileTime): IcicleLane[] {
  const { spans } = time;
  const lanes = time.threads.map((label, i) => ({
    key: String(i),
    label: laneLabel(label),
    slices: [] as IcicleSlice[],
  }));
  const phases = spanPhases(time);
  spans.start_us.forEach((start, i) => {
    const name = time.names[spans.name[i] ?? -1] ?? '?';
    const slice: PhaseSlice = {
      i,
      name,
      start,
      end: start + spans.duration_us[i]!,
      depth: spans.depth[i]!,
      group: spanGroup(time, i),
      phase: phases[i]!,
      color: `--phase-${phases[i]!}`,
      unfinished: spans.unfinished[i] ?? false,
    };
    lanes[spans.thread[i]!]?.slices.push(slice);
  });
  return lanes.filter((lane) => lane.slices.length > 0);
}

function laneLabel(thread: string): string {
  return thread[0]?.toUpperCase() + thread.slice(1);
}

/** A span whose name is of no phase has the phase of the span around it. Spans are in the order of time. */
export function spanPhases({ spans, name_phases }: CompileTime): Phase[] {
  const open = new Map<number, { end: number; phase: Phase }[]>();
  return spans.start_us.map((start, i) => {
    const thread = spans.thread[i]!;
    const around = (open.get(thread) ?? []).filter(({ end }) => end > start);
    const phase = name_phases[spans.name[i]!] ?? around.at(-1)?.phase ?? 'other';
    open.set(thread, [...around, { end: start + spans.duration_us[i]!, phase }]);
    return phase;
  });
}
