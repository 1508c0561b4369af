/** Where the reader looks, and how that changes from frame to frame. */
import { Motion } from './motion';
import { around, kept, moved, same, zoomed, type View } from '../canvas/view';

const REST_MS = 200;

export class Camera {
  #motion = new Motion();
  #resting: ReturnType<typeof setTimeout> | undefined;
  #jumped = false;
  #last = 0;
  /** The time under the pointer, which zooming keeps in its place. */
  pointed: number | null = null;
  /** Something is being dragged: it is not at rest yet. */
  held = false;

  constructor(
    public view: View,
    public all: View,
    private moves: () => void,
    private rests: (view: View, jumped: boolean) => void,
  ) {}

  set(next: View): void {
    if (same(next, this.view)) return;
    this.view = next;
    this.moves();
    clearTimeout(this.#resting);
    this.#resting = setTimeout(() => this.#rest(), REST_MS);
  }

  /** Goes to a stretch of time; Back returns. */
  show(from: number, to: number, room = 0.05): void {
    this.#jumped = true;
    this.set(around(from, to, this.all, room));
  }

  moveTo(view: View): void {
    this.set(kept(view, this.all));
  }

  zoom(factor: number, about = this.#middle): void {
    this.set(zoomed(this.view, factor, about, this.all));
  }

  /** By a share of what is in view. */
  pan(share: number, from = this.view): void {
    this.set(moved(from, share * (from.to - from.from), this.all));
  }

  /** Brings a stretch of time into view, no nearer than the view is. It belongs to what was chosen: no jump. */
  reveal(start: number, dur: number): void {
    const { from, to } = this.view;
    const length = to - from;
    if (start >= from && start + dur <= to) return;
    if (dur > length * 0.9) this.set(around(start, start + dur, this.all));
    else if (start + dur < from || start > to) {
      this.moveTo({ from: start + (dur - length) / 2, to: start + (dur + length) / 2 });
    }
  }

  /** A key went down. Whether it moves or zooms. */
  key(key: string, repeat: boolean): boolean {
    if (this.#motion.press(key.toLowerCase())) this.#tap(key.toLowerCase(), repeat);
    else if (key === '+' || key === '=') this.zoom(0.6);
    else if (key === '-') this.zoom(1 / 0.6);
    else if (key === '0') this.show(this.all.from, this.all.to, 0);
    else return false;
    return true;
  }

  #tap(key: string, repeat: boolean): void {
    if (!repeat) this.set(this.#motion.after(this.view, 0, this.#middle, this.all, key));
    this.#last = performance.now();
    this.moves();
  }

  release(key?: string): void {
    this.#motion.release(key);
  }

  /** The view of the next frame. Whether there will be another. */
  frame(now: number): boolean {
    const { moving } = this.#motion;
    if (moving) this.set(this.#motion.after(this.view, now - this.#last, this.#middle, this.all));
    this.#last = now;
    return moving;
  }

  stop(): void {
    clearTimeout(this.#resting);
  }

  get #middle(): number {
    const { from, to } = this.view;
    return this.pointed !== null && this.pointed > from && this.pointed < to ? this.pointed : (from + to) / 2;
  }

  #rest(): void {
    if (this.#motion.moving || this.held) {
      this.#resting = setTimeout(() => this.#rest(), REST_MS);
      return;
    }
    this.rests(this.view, this.#jumped);
    this.#jumped = false;
  }
}
