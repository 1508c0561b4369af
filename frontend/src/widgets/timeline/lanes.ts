/** Lanes from top to bottom: which are shown, in what order, and where each is. */

export interface LaneLook {
  id: number;
  title: string;
  /** Lanes of one group share a heading. */
  group: string;
  look: 'slices' | 'marks' | 'plot';
  lines: number;
  unit: string;
  /** Said on hover. */
  note: string;
  /** Asked for when all others are there. */
  later: boolean;
}

export interface LaidLane extends LaneLook {
  top: number;
  height: number;
  /** Shows its first line only. */
  folded: boolean;
  /** The first one of its group. */
  heads: boolean;
}

/** How the lanes differ from how they came: `order` is of all lanes, top to bottom. */
export interface Arrangement {
  order: number[];
  folded: Set<number>;
  hidden: Set<number>;
}

export const LINE_HEIGHT = 17;
export const HEAD_HEIGHT = 17;
const PLOT = 38;
const BETWEEN = 7;

/** `head`: pixels above each lane for its name, where there is no column for names. */
export function layLanes(
  lanes: LaneLook[],
  { order, folded, hidden }: Arrangement,
  head: number,
): LaidLane[] {
  let top = 0;
  let group = '';
  const byId = new Map(lanes.map((lane) => [lane.id, lane]));
  return order
    .map((id) => byId.get(id))
    .filter((lane) => lane !== undefined && !hidden.has(lane.id))
    .map((lane) => {
      const fold = folded.has(lane!.id);
      const lines = fold ? 1 : lane!.lines;
      const height = lane!.look === 'plot' && !fold ? PLOT : lines * LINE_HEIGHT;
      const heads = lane!.group !== group;
      group = lane!.group;
      const laid = { ...lane!, lines, top: top + head + (heads ? 3 : 0), height, folded: fold, heads };
      top = laid.top + height + BETWEEN;
      return laid;
    });
}

export function heightOf(laid: LaidLane[]): number {
  const last = laid.at(-1);
  return last ? last.top + last.height + BETWEEN : 0;
}

/** One lane at the place of another. */
export function withMoved(a: Arrangement, id: number, to: number): Arrangement {
  const order = a.order.filter((other) => other !== id);
  order.splice(a.order.indexOf(to), 0, id);
  return { ...a, order };
}

/** The lane at a height, counted from the top of all. */
export function laneAt(laid: LaidLane[], y: number): LaidLane | undefined {
  return laid.find(({ top, height }) => y >= top && y < top + height);
}

/** "2,0,1f,3h": order, folded and hidden lanes; "" for as they came. */
export function writeLanes({ order, folded, hidden }: Arrangement, usual: Arrangement): string {
  const write = (a: Arrangement) =>
    a.order.map((id) => `${id}${a.hidden.has(id) ? 'h' : a.folded.has(id) ? 'f' : ''}`).join();
  const text = write({ order, folded, hidden });
  return text === write(usual) ? '' : text;
}

export function readLanes(text: string, usual: Arrangement): Arrangement {
  const marks = [...text.matchAll(/(\d+)([fh]?)/g)].filter(([, id]) => usual.order.includes(Number(id)));
  if (marks.length === 0) return usual;
  const ids = [...new Set(marks.map(([, id]) => Number(id)))];
  const marked = (mark: string) => new Set(marks.filter(([, , m]) => m === mark).map(([, id]) => Number(id)));
  return {
    order: [...ids, ...usual.order.filter((id) => !ids.includes(id))],
    folded: marked('f'),
    hidden: marked('h'),
  };
}
