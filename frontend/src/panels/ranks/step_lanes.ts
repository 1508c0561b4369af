/** One step of all ranks as boxes: where each is drawn, in which colour, and what it is in words. */
import type {
  Category,
  JoinedCall,
  HostCause,
  JoinedCollective,
  LanePieces,
  RankLanes,
  StepSideBySide,
} from '../../api/types';
import { categoryColor, categoryHelp, categoryLabel } from '../../names/categories';
import { HOST_CAUSES, hostHelp, type Look } from '../../names/causes';
import { shortKernel } from '../../names/kernel_names';
import { bytes, duration } from '../../widgets/format';
import type { View } from '../../widgets/canvas/view';
import { spaced } from './job_columns';

export const STEP_RULER = 20;
export const BAR = 16;
const LINE = 14;
const BETWEEN = 2;
const APART = 14;

/** A rank's lanes, top to bottom: its host, its GPU, and collectives in one line or several. */
export interface LaneRow {
  rank: RankLanes;
  top: number;
  host: number;
  gpu: number;
  calls: number;
  bottom: number;
}

/** Times in ns. share: the filled fraction of the box. */
export interface Box {
  rank: RankLanes;
  from: number;
  to: number;
  top: number;
  height: number;
  color: string;
  hatched: boolean;
  share: number;
  label: string;
  words: () => string[];
  collective?: JoinedCollective;
  call?: JoinedCall;
}

export function rankRows(step: StepSideBySide): LaneRow[] {
  const lines = new Map<number, number>();
  for (const { calls } of step.collectives)
    for (const { rank, line } of calls) lines.set(rank, Math.max(lines.get(rank) ?? 1, line + 1));
  let top = STEP_RULER + BETWEEN;
  return step.ranks.map((rank) => {
    const [host, gpu] = [top, top + BAR + BETWEEN];
    const calls = gpu + BAR + BETWEEN;
    const bottom = calls + LINE * (lines.get(rank.rank) ?? 1);
    const row = { rank, top, host, gpu, calls, bottom };
    top = bottom + APART;
    return row;
  });
}

export const stepHeight = (rows: LaneRow[]) => (rows.at(-1)?.bottom ?? STEP_RULER) + BETWEEN;

/** Those of calls come last: they are drawn over the others. */
export function boxesOf(step: StepSideBySide, rows: LaneRow[]): Box[] {
  const lanes = rows.flatMap((row) => {
    const { host, gpu } = row.rank;
    return [
      ...bars(step, row, row.host, host, (i) => HOST_CAUSES[host.kind[i] as HostCause]),
      ...bars(step, row, row.gpu, gpu, (i) => kernelLook(gpu.kind[i] as Category)),
    ];
  });
  const calls = step.collectives.flatMap((collective) =>
    collective.calls.flatMap((call) => callBoxes(collective, call, rows)),
  );
  return [...lanes, ...calls];
}

const kernelLook = (category: Category): Look => [categoryLabel(category), categoryColor(category)];

function bars(
  { names }: StepSideBySide,
  { rank }: LaneRow,
  top: number,
  { start_ns, dur_ns, busy, name }: LanePieces,
  look: (i: number) => Look,
): Box[] {
  return start_ns.map((from, i) => {
    const [label, color] = look(i);
    const [ns, share] = [dur_ns[i]!, busy[i]!];
    const lasts = share < 1 ? `${us(ns)}, ${us(ns * share)} of it in short pieces` : us(ns);
    const words = () => [`Rank ${rank.rank}`, label, shortKernel(names[name[i]!]!), lasts].filter(Boolean);
    return { rank, from, to: from + ns, top, height: BAR, color, hatched: false, share, label, words };
  });
}

/** What waits is hatched, what transfers is not, and what may do either has the colour of what is of no instance. */
function callBoxes(collective: JoinedCollective, call: JoinedCall, rows: LaneRow[]): Box[] {
  const row = rows.find(({ rank }) => rank.rank === call.rank)!;
  const { rank } = row;
  const [top, height] = [row.calls + call.line * LINE, LINE - 1];
  const words = () => [`Rank ${rank.rank}`, ...callWords(collective, call)];
  const color = categoryColor(isMatched(collective) ? 'communication' : 'other');
  const label = spaced(collective.op);
  const waitEnd = call.start_ns + (call.wait_ns ?? 0);
  const transferStart = waitEnd + (call.unknown_ns ?? 0);
  const whole = { rank, top, height, color, share: 1, label, words, collective, call };
  const parts = [
    { ...whole, from: call.start_ns, to: waitEnd, hatched: true },
    { ...whole, from: waitEnd, to: transferStart, hatched: false, color: categoryColor('other') },
    { ...whole, from: transferStart, to: call.start_ns + call.dur_ns, hatched: false },
  ];
  return parts.filter(({ from, to }) => to > from);
}

/** Calls of no instance are alone, and how long they waited is unknown. */
export const isMatched = ({ calls }: JoinedCollective) => calls[0]!.wait_ns !== null;

interface Shade {
  /** A cause or a category. */
  key: string;
  label: string;
  color: string;
  title: string;
}

const SHADES = 8;

/** What most of the time in the lanes is, most first. */
export function shadesOf({ ranks }: StepSideBySide): Shade[] {
  const sums = new Map<string, { shade: Shade; ns: number }>();
  const add = (key: string, [label, color]: Look, title: string, ns: number) => {
    const entry = sums.get(key) ?? { shade: { key, label, color, title }, ns: 0 };
    sums.set(key, { ...entry, ns: entry.ns + ns });
  };
  for (const { host, gpu } of ranks) {
    host.kind.forEach((kind, i) => {
      const cause = kind as HostCause;
      add(`host ${cause}`, HOST_CAUSES[cause], hostHelp(cause), host.dur_ns[i]! * host.busy[i]!);
    });
    gpu.kind.forEach((kind, i) => {
      const category = kind as Category;
      add(`gpu ${category}`, kernelLook(category), categoryHelp(category), gpu.dur_ns[i]! * gpu.busy[i]!);
    });
  }
  const rows = [...sums.values()].sort((a, b) => b.ns - a.ns);
  return rows.slice(0, SHADES).map(({ shade }) => shade);
}

const us = (ns: number) => duration(ns / 1000);

export function collectiveWords({ op, group, dtype, message_bytes }: JoinedCollective): string {
  const size =
    message_bytes === null ? 'of unknown size' : `${bytes(message_bytes)}${dtype && ` of ${dtype}`}`;
  return `${spaced(op)} ${size} in group ${group || 'unknown'}`;
}

export function callWords(collective: JoinedCollective, call: JoinedCall): string[] {
  const { wait_ns, unknown_ns, transfer_ns, for_rank, last } = call;
  const words = [collectiveWords(collective), `at ${us(call.start_ns)}, ${us(call.dur_ns)} long`];
  if (wait_ns === null || transfer_ns === null)
    return [...words, 'Of no known instance: how long it waited is not known'];
  words.push(
    `wait ${us(wait_ns)}${for_rank === null ? '' : ` for rank ${for_rank}`}, transfer ${us(transfer_ns)}`,
  );
  if (unknown_ns) words.push(`not known which of both: ${us(unknown_ns)}`);
  return last ? [...words, 'Comes last'] : words;
}

/** The topmost there, with a pixel to spare on both sides. */
export function boxAt(boxes: Box[], ns: number, y: number, pixel: number): Box | null {
  const hit = ({ from, to, top, height }: Box) =>
    y >= top && y < top + height && ns >= from - pixel && ns < to + pixel;
  return boxes.findLast(hit) ?? null;
}

export const laneRowAt = (rows: LaneRow[], y: number) =>
  rows.find(({ top, bottom }) => y >= top && y < bottom) ?? null;

/** Parse the view of the address: "from" and "to" in ns; without a valid one, the whole step. */
export function viewOf(from: string, to: string, length: number): View {
  const [begin, end] = [from, to].map((text) => (/^-?\d{1,18}$/.test(text) ? Number(text) : NaN));
  return end! > begin! ? { from: begin!, to: end! } : { from: 0, to: length };
}
