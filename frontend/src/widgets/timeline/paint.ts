/** Draws what is in view. All of it, for each frame: what is where comes from `tiles` and `lanes`. */
import { duration } from '../format';
import { tickStep, type View } from '../canvas/view';
import type { Inks } from './ink';
import { HEAD_HEIGHT, LINE_HEIGHT, type LaidLane } from './lanes';
import { after, lengthOf, levelFor, type LaneTile, type Slice, type Tiles } from './tiles';

export const RULER = 22;
const NAMED = 24;
const MARK = 5;
const ELLIPSIS = 9;

export interface Arrow {
  from: { lane: number; line: number; time: number };
  to: { lane: number; line: number; time: number };
}

export interface Scene {
  view: View;
  width: number;
  height: number;
  scroll: number;
  /** Names are above their lanes instead of next to them. */
  narrow: boolean;
  laid: LaidLane[];
  /** Times that are marked over the full height. */
  grid: number[];
  selected: Slice | null;
  hover: Slice | null;
  range: View | null;
  arrows: Arrow[];
  focused: boolean;
  /** The greatest value of each plot. */
  greatest: Map<number, number>;
  /** A name as it is drawn. */
  label: (name: string) => string;
}

interface Label {
  text: string;
  width: number;
  /** Its first letters, by how many. */
  cuts: string[];
}

/** The canvas with what stays from frame to frame. */
export class Painter {
  #c: CanvasRenderingContext2D;
  #scale = 1;
  #labels = new Map<string, Label>();
  #scene!: Scene;
  #inks!: Inks;
  #k = 0;
  /** Where the next mark of each line begins. */
  #limits: number[] = [];
  #from = 0;

  constructor(
    private canvas: HTMLCanvasElement,
    private tiles: Tiles,
  ) {
    this.#c = canvas.getContext('2d', { alpha: false })!;
  }

  resize(width: number, height: number): void {
    this.#scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * this.#scale);
    this.canvas.height = Math.round(height * this.#scale);
  }

  paint(scene: Scene, inks: Inks): void {
    const c = this.#c;
    const { view, width, height, laid, scroll } = scene;
    this.#scene = scene;
    this.#inks = inks;
    this.#from = view.from;
    this.#k = width / (view.to - view.from);
    c.setTransform(this.#scale, 0, 0, this.#scale, 0, 0);
    c.font = this.#inks.font;
    c.textBaseline = 'middle';
    c.fillStyle = this.#inks.paper;
    c.fillRect(0, 0, width, height);
    this.#grid();
    for (const lane of laid) {
      const y = RULER + lane.top - scroll;
      if (y + lane.height < 0 || y - HEAD_HEIGHT > height) continue;
      if (scene.narrow) this.#head(lane, y);
      if (!this.#elsewhere(lane, y)) this.#lane(lane, y);
    }
    this.#outline(scene.hover, this.#inks.text, 1);
    this.#outline(scene.selected, scene.focused ? this.#inks.focus : this.#inks.text, 2);
    for (const arrow of scene.arrows) this.#arrow(arrow);
    this.#range();
    this.#ruler();
  }

  #x(time: number): number {
    return (time - this.#from) * this.#k;
  }

  #snap(x: number): number {
    return Math.round(x * this.#scale) / this.#scale;
  }

  /** The middle of a line, or null where its lane is not shown. */
  #y(lane: number, line: number): number | null {
    const { laid, scroll } = this.#scene;
    const row = laid.find(({ id }) => id === lane);
    if (!row) return null;
    return RULER + row.top - scroll + (Math.min(line, row.lines - 1) + 0.5) * LINE_HEIGHT;
  }

  #grid(): void {
    const { grid, view, height } = this.#scene;
    const first = after(grid, view.from, 0, grid.length);
    const last = after(grid, view.to, first, grid.length);
    if (last - first > 60) return;
    this.#c.fillStyle = this.#inks.line;
    for (let i = first; i < last; i++) this.#c.fillRect(this.#snap(this.#x(grid[i]!)), RULER, 1, height);
  }

  #head(lane: LaidLane, y: number): void {
    this.#c.fillStyle = this.#inks.muted;
    this.#c.fillText(`${lane.folded ? '▸' : '▾'}  ${lane.title}`, 4, y - HEAD_HEIGHT / 2);
  }

  /** Where nothing of a lane is in view: which way there is something. */
  #elsewhere(lane: LaidLane, y: number): boolean {
    const ends = lane.look !== 'plot' && this.tiles.ends(lane.id);
    if (!ends) return false;
    const { view, width } = this.#scene;
    const later = ends.from > view.to;
    if (!later && ends.to >= view.from) return false;
    const text = later ? 'later ▸' : '◂ earlier';
    this.#c.fillStyle = this.#inks.muted;
    this.#c.fillText(text, later ? width - this.#c.measureText(text).width - 6 : 4, y + LINE_HEIGHT / 2);
    return true;
  }

  #lane(lane: LaidLane, y: number): void {
    const { view, width } = this.#scene;
    const level = Math.min(this.tiles.root, levelFor(view, width));
    const length = lengthOf(level);
    this.#limits.length = 0;
    const first = Math.floor(Math.max(view.from, this.tiles.all.from) / length);
    const last = Math.floor(Math.min(view.to, this.tiles.all.to) / length);
    // From the right: names go on into the tile behind.
    for (let index = last; index >= first; index--)
      this.#tile(lane, y, level, index, Math.max(view.from, index * length), (index + 1) * length);
  }

  /** Find a tile, otherwise both finer tiles in it, otherwise a coarser one around it. */
  #tile(lane: LaidLane, y: number, level: number, index: number, from: number, to: number): void {
    const part = this.tiles.get(level, index, lane.id);
    if (part) return this.#part(lane, y, part, from, to);
    const left = this.tiles.get(level - 1, 2 * index, lane.id);
    const right = this.tiles.get(level - 1, 2 * index + 1, lane.id);
    if (left && right) {
      const middle = (2 * index + 1) * lengthOf(level - 1);
      this.#part(lane, y, right, Math.max(from, middle), to);
      return this.#part(lane, y, left, from, middle);
    }
    const around = this.tiles.nearest(level, index, lane.id);
    if (around) this.#part(lane, y, around, from, to);
  }

  #part(lane: LaidLane, y: number, part: LaneTile, from: number, to: number): void {
    to = Math.min(to, this.#scene.view.to);
    if (from >= to) return;
    if (lane.look === 'plot') return this.#plot(lane, y, part, from, to);
    for (let line = 0; line < Math.min(lane.lines, part.lines.length - 1); line++) {
      const top = y + line * LINE_HEIGHT;
      if (top > this.#scene.height || top + LINE_HEIGHT < RULER) continue;
      this.#line(part, line, top, from, to, lane.look === 'slices');
      if (lane.look === 'marks') this.#marks(part, line, top, from, to);
    }
  }

  /** Neighbours of one colour that are thinner than a pixel are one rectangle. */
  #line(part: LaneTile, line: number, top: number, from: number, to: number, named: boolean): void {
    const { start, dur, color, busy, name } = part.window;
    const high = part.lines[line + 1]!;
    const c = this.#c;
    let i = after(start, from, part.lines[line]!, high);
    if (i > part.lines[line]! && start[i - 1]! + dur[i - 1]! > from) i--;
    let [left, right, drawn] = [0, -1, -1];
    for (; i < high && start[i]! < to; i++) {
      const begin = start[i]!;
      const x0 = this.#snap(this.#x(begin > from ? begin : from));
      const end = begin + dur[i]!;
      let x1 = this.#snap(this.#x(end < to ? end : to));
      if (x1 < x0 + 1) x1 = x0 + 1;
      const tint = color[i]! * 4 + Math.min(3, (busy[i]! * 4) | 0);
      if (tint === drawn && x0 <= right && x1 - x0 < 3) {
        if (x1 > right) right = x1;
        continue;
      }
      if (drawn >= 0) this.#box(drawn, left, top, right);
      drawn = tint;
      left = x0;
      right = x1 - x0 > 3 && end <= to ? x1 - 1 : x1;
      if (!named || x1 - x0 < NAMED || (begin < from && from > this.#from)) continue;
      this.#box(drawn, left, top, right);
      // The name goes on into the next tile.
      const room = Math.min(this.#x(end), this.#scene.width) - x0;
      c.fillStyle = this.#inks.colors[color[i]!]!.texts[tint & 3]!;
      c.fillText(this.#fit(part.window.names[name[i]!]!, room - 6), x0 + 3, top + LINE_HEIGHT / 2);
      drawn = -1;
      right = -1;
    }
    if (drawn >= 0) this.#box(drawn, left, top, right);
  }

  #box(tint: number, left: number, top: number, right: number): void {
    this.#c.fillStyle = this.#inks.colors[tint >> 2]!.tints[tint & 3]!;
    this.#c.fillRect(left, top, right - left, LINE_HEIGHT - 1);
  }

  /** As much of a name as there is room for. Cut ones are kept: most frames show the same. */
  #fit(name: string, room: number): string {
    let label = this.#labels.get(name);
    if (!label) {
      if (this.#labels.size > 5000) this.#labels.clear();
      const text = this.#scene.label(name);
      label = { text, width: this.#c.measureText(text).width, cuts: [] };
      this.#labels.set(name, label);
    }
    if (label.width <= room) return label.text;
    const letters = Math.max(1, Math.floor((label.text.length * (room - ELLIPSIS)) / label.width));
    return (label.cuts[letters] ??= label.text.slice(0, letters) + '…');
  }

  /** Draw a triangle at each start and its name: inside if it fits, otherwise up to the next one. */
  #marks(part: LaneTile, line: number, top: number, from: number, to: number): void {
    const { start, dur, name, names, count } = part.window;
    const high = part.lines[line + 1]!;
    const c = this.#c;
    const first = after(start, from - 1, part.lines[line]!, high);
    for (let i = after(start, to - 1, first, high) - 1; i >= first; i--) {
      const x = this.#x(start[i]!);
      c.fillStyle = this.#inks.mark;
      c.beginPath();
      c.moveTo(x - MARK, top);
      c.lineTo(x + MARK, top);
      c.lineTo(x, top + LINE_HEIGHT - 1);
      c.fill();
      const right = this.#x(start[i]! + dur[i]!);
      const next = this.#limits[line] ?? this.#scene.width;
      this.#limits[line] = x - MARK;
      const [inside, behind] = [right - x - MARK - 4, next - Math.max(x + MARK, right) - 5];
      if (Math.max(inside, behind) < NAMED) continue;
      const more = count[i]! > 1 ? `×${count[i]} ` : dur[i]! > 0 ? `${duration(dur[i]! / 1e3)} ` : '';
      c.fillStyle = this.#inks.text;
      const text = this.#fit(more + names[name[i]!]!, Math.max(inside, behind));
      c.fillText(text, (inside >= behind ? x + MARK : Math.max(x + MARK, right)) + 3, top + LINE_HEIGHT / 2);
    }
  }

  /** Each value holds until the next one; within a bucket the greatest is shown. */
  #plot(lane: LaidLane, y: number, part: LaneTile, from: number, to: number): void {
    const { at, greatest, last, bucket } = part.window;
    for (let i = Math.max(part.first, after(at, from, part.first, part.end) - 1); i < part.end; i++) {
      if (at[i]! >= to) break;
      const next = i + 1 < part.end ? at[i + 1]! : Infinity;
      const end = Math.min(next, at[i]! + bucket);
      this.#column(lane, y, Math.max(at[i]!, from), Math.min(end, to), greatest[i]!);
      if (next > end) this.#column(lane, y, Math.max(end, from), Math.min(next, to), last[i]!);
    }
    this.#c.fillStyle = this.#inks.line;
    this.#c.fillRect(0, this.#snap(y + lane.height), this.#scene.width, 1);
  }

  #column(lane: LaidLane, y: number, from: number, to: number, value: number): void {
    const x = this.#snap(this.#x(from));
    const width = this.#snap(this.#x(to)) - x;
    if (width <= 0 || value === 0) return;
    const high = Math.max(1, (value / (this.#scene.greatest.get(lane.id) || 1)) * lane.height);
    this.#c.fillStyle = this.#inks.plot.tints[1]!;
    this.#c.fillRect(x, y + lane.height - high, width, high);
    this.#c.fillStyle = this.#inks.plot.tints[3]!;
    this.#c.fillRect(x, y + lane.height - high, width, 1.5);
  }

  #outline(slice: Slice | null, color: string, thick: number): void {
    const middle = slice && this.#y(slice.lane, slice.line);
    if (!slice || middle === null) return;
    const left = Math.max(-4, this.#x(slice.start));
    const right = Math.min(this.#scene.width + 4, Math.max(left + 2, this.#x(slice.start + slice.dur)));
    this.#c.strokeStyle = color;
    this.#c.lineWidth = thick;
    this.#c.strokeRect(left - 0.5, middle - LINE_HEIGHT / 2 - 0.5, right - left, LINE_HEIGHT);
  }

  #arrow({ from, to }: Arrow): void {
    const [y0, y1] = [this.#y(from.lane, from.line), this.#y(to.lane, to.line)];
    if (y0 === null || y1 === null) return;
    const c = this.#c;
    const [x0, x1] = [this.#x(from.time), this.#x(to.time)];
    const bend = Math.max(20, Math.abs(x1 - x0) / 2);
    c.strokeStyle = c.fillStyle = this.#inks.mark;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(x0, y0);
    c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1);
    c.stroke();
    c.beginPath();
    c.moveTo(x1, y1);
    c.lineTo(x1 - 7, y1 - 4);
    c.lineTo(x1 - 7, y1 + 4);
    c.fill();
  }

  #range(): void {
    const { range, height } = this.#scene;
    if (!range) return;
    const [left, right] = [this.#x(range.from), this.#x(range.to)];
    this.#c.globalAlpha = 0.14;
    this.#c.fillStyle = this.#inks.focus;
    this.#c.fillRect(left, 0, right - left, height);
    this.#c.globalAlpha = 1;
    this.#c.fillRect(left, 0, 1, height);
    this.#c.fillRect(right - 1, 0, 1, height);
  }

  /** Times count from the trace's first event; zoomed in, from a round time shown at the left. */
  #ruler(): void {
    const { view, width, range } = this.#scene;
    const c = this.#c;
    c.fillStyle = this.#inks.raised;
    c.fillRect(0, 0, width, RULER);
    c.fillStyle = this.#inks.line;
    c.fillRect(0, RULER - 1, width, 1);
    const step = tickStep(view.to - view.from, width / 110);
    const base = Math.abs(view.from) < 100 * step ? 0 : Math.floor(view.from / (100 * step)) * 100 * step;
    let left = 0;
    if (base) {
      const text = exact(base);
      c.fillStyle = this.#inks.text;
      c.fillText(text, 4, RULER / 2);
      left = c.measureText(text).width + 12;
    }
    for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
      const x = this.#x(time);
      c.fillStyle = this.#inks.strong;
      c.fillRect(this.#snap(x), RULER - 6, 1, 6);
      c.fillStyle = this.#inks.muted;
      const behind = time - base;
      if (x >= left) c.fillText((base && behind > 0 ? '+' : '') + duration(behind / 1e3), x + 3, RULER / 2);
    }
    if (range) this.#length(range);
  }

  #length(range: View): void {
    const text = duration((range.to - range.from) / 1e3);
    const c = this.#c;
    const wide = c.measureText(text).width + 10;
    const x = Math.max(
      0,
      Math.min(this.#scene.width - wide, (this.#x(range.from) + this.#x(range.to) - wide) / 2),
    );
    c.fillStyle = this.#inks.focus;
    c.fillRect(x, 2, wide, RULER - 4);
    c.fillStyle = this.#inks.paper;
    c.fillText(text, x + 5, RULER / 2);
  }
}

/** All digits of a time down to ns: "1.234567891 s". */
export function exact(time: number): string {
  const ns = Math.round(time);
  const [unit, per] = Math.abs(ns) >= 1e9 ? ['s', 1e9] : Math.abs(ns) >= 1e6 ? ['ms', 1e6] : ['µs', 1e3];
  return `${Number((ns / per).toFixed(9))}\u202f${unit}`;
}
