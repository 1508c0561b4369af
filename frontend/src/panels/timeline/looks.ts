/** How the server's lanes and colours look. */
import { bytes, count, duration, percent, plural } from '../../widgets/format';
import type { Arrangement, LaneLook, LaidLane } from '../../widgets/timeline/lanes';
import { type Arrow, exact } from '../../widgets/timeline/paint';
import type { Reader } from '../../widgets/timeline/read';
import type { Slice } from '../../widgets/timeline/tiles';
import { categoryLabel, isCategory } from '../../names/categories';
import { HOST_KINDS } from '../../names/causes';
import { phaseLabel } from '../../names/phases';
import type {
  Category,
  HostKind,
  Lane,
  Phase,
  SliceKind,
  SliceRef,
  TimelineLanes,
  TimelineSlice,
} from '../../api/types';

/** Kinds of slices other than kernels, compile phases and idle time. */
type Plain = Exclude<SliceKind, `gap_${string}` | `phase_${string}`>;

const SLICES: Record<Plain, [label: string, token: string]> = {
  cpu_op: ['Operator', '--tl-op'],
  user_annotation: ['Annotation', '--tl-annotation'],
  python_function: ['Python function', '--tl-python'],
  runtime: ['Runtime call', '--tl-runtime'],
  gpu_user_annotation: ['Annotation on the GPU', '--tl-annotation'],
  overhead: ['Profiler overhead', '--tl-python'],
  host_other: ['Other host work', '--tl-op'],
  step: ['Step', '--tl-step'],
  region: ['Compiled region', '--tl-region'],
  backward_region: ['Compiled backward', '--tl-backward'],
  break: ['Graph break', '--warn-line'],
  recompile: ['Recompile', '--bad'],
};

type Color = Category | SliceKind;

/** Idle time has the colour of its cause, as in all other pictures. */
export function lookOf(color: Color): { label: string; token: string; idle: boolean } {
  if (isCategory(color)) return { label: categoryLabel(color), token: `--cat-${color}`, idle: false };
  const cause = HOST_KINDS[color.slice('gap_'.length) as HostKind];
  if (cause) return { label: `Idle: ${cause[0]}`, token: cause[1].slice('var('.length, -1), idle: true };
  const phase = color.slice('phase_'.length) as Phase;
  const [label, token] = SLICES[color as Plain] ?? [
    `Compile phase: ${phaseLabel(phase)}`,
    `--phase-${phase}`,
  ];
  return { label, token, idle: false };
}

export const kindLabel = (color: Color) => lookOf(color).label;

export function laneOf(lane: Lane): LaneLook {
  const { id, kind, group, title, depths, unit, later } = lane;
  const look = kind === 'counter' ? 'plot' : kind === 'breaks' || kind === 'recompiles' ? 'marks' : 'slices';
  const size = look === 'plot' ? '' : plural(lane.slices, 'slice');
  const note = [size, lane.note].filter(Boolean).join('; ');
  return {
    id,
    title,
    group: group === 'compile' ? '' : group,
    look,
    lines: depths,
    unit: unit ?? '',
    note,
    later,
  };
}

/** What the colours mean; kinds that share one are one. */
export function legendOf({ categories }: TimelineLanes, colors: number[]): ReturnType<typeof lookOf>[] {
  const kinds = new Map<string, ReturnType<typeof lookOf>>();
  for (const color of colors) {
    const look = lookOf(categories[color]!);
    const key = `${look.token},${look.idle}`;
    const alike = kinds.get(key);
    kinds.set(key, alike ? { ...look, label: `${alike.label}, ${look.label}` } : look);
  }
  return [...kinds.values()];
}

/** The initial lanes: all, with the profiler's own, idle threads and earlier compilation folded. */
export function usualArrangement({ lanes, extent }: TimelineLanes): Arrangement {
  const folded = lanes.filter(
    ({ group, kind, folded }) =>
      folded || (group === 'profiler' && kind !== 'counter') || (kind === 'phases' && extent[0]! < 0),
  );
  return {
    order: lanes.map(({ id }) => id),
    folded: new Set(folded.map(({ id }) => id)),
    hidden: new Set(),
  };
}

/** Return the lanes of the minimap: compilation, and GPU utilization or otherwise the first thread. */
export function mapLanes({ lanes }: TimelineLanes): number[] {
  const work = lanes.find(({ kind, unit }) => kind === 'counter' && unit === '%');
  const chosen = [work ?? lanes.find(({ kind }) => kind === 'thread') ?? lanes[0]];
  chosen.push(lanes.find(({ kind }) => kind === 'phases'));
  return chosen.filter((lane) => lane !== undefined).map(({ id }) => id);
}

export function describeSlice({ lanes, categories }: TimelineLanes, slice: Slice): string[] {
  const lane = lanes.find(({ id }) => id === slice.lane);
  const mark = lane?.kind === 'recompiles';
  const several = slice.count > 1;
  return [
    several ? `${count(slice.count)} slices, the longest: ${nameOf(slice.name)}` : slice.name,
    several
      ? `${percent(slice.busy * 100)} of ${time(slice.dur)}; zoom in to see them`
      : mark
        ? ''
        : time(slice.dur),
    kindLabel(categories[slice.color]!),
    `at ${time(slice.start)}${lane ? ` on ${lane.title}` : ''}`,
  ].filter(Boolean);
}

/** A kernel without what all of them begin with. */
export function nameOf(name: string): string {
  return name.replace(/^void /, '').replace(/^\(anonymous namespace\)::/, '');
}

export function time(ns: number): string {
  return duration(ns / 1e3);
}

export function scaleText(value: number, { unit }: LaneLook): string {
  return unit === 'bytes' ? `0 – ${bytes(value)}` : `0 – ${count(value)} ${unit}`;
}

export function asDrawn({ lane, depth, row, name, start_ns, dur_ns, color }: TimelineSlice): Slice {
  return { lane, line: depth, row, name, start: start_ns, dur: dur_ns, color, count: 1, busy: 1 };
}

/** From a launch to its kernels, from forward to backward. */
export function arrowsOf(slice: TimelineSlice, read: Reader): Arrow[] {
  const end = ({ lane, row, start_ns }: SliceRef, line = read.lineOf(lane, row, start_ns)) => ({
    lane,
    line,
    time: start_ns,
  });
  const here = end(slice, slice.depth);
  const before = [slice.launch, slice.forward].filter((ref) => ref !== null);
  return [
    ...before.map((ref) => ({ from: end(ref), to: here })),
    ...[...slice.kernels, ...slice.backward].slice(0, 50).map((ref) => ({ from: here, to: end(ref) })),
  ];
}

/** A description of the picture in words. */
export interface Words {
  text: string;
  /** The colours that are in view, by number. */
  colors: number[];
}

export function inWords(read: Reader, lanes: Pick<LaidLane, 'id' | 'title' | 'look'>[]): Words {
  const { from, to } = read.view;
  const colors = new Set<number>();
  const lines = lanes.map(({ id, title, look }) => {
    if (look === 'plot') return `${title}: a plot`;
    const tally = read.tally(id, colors);
    if (!tally) return `${title}: further down`;
    const { slices, names } = tally;
    if (slices === 0) return `${title}: nothing in view`;
    const more = slices > names.length ? ' …' : '';
    return `${title}: ${plural(slices, look === 'marks' ? 'mark' : 'slice')} (${names.join(', ')}${more})`;
  });
  const head = `${time(to - from)} in view, from ${exact(from)} to ${exact(to)}, on ${count(lanes.length)} lanes.`;
  return {
    text: [head, ...lines.map((line) => `${line}.`)].join(' '),
    colors: [...colors].sort((a, b) => a - b),
  };
}
