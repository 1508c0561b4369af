/** Keys that are held move as long as they are held, a tap moves a step. */
import { moved, zoomed, type View } from '../canvas/view';

const HELD = ['w', 'a', 's', 'd'];
const TAP_MS = 80;
const PER_S = { pan: 1.2, zoom: 2.6 };

export class Motion {
  #held = new Set<string>();

  get moving(): boolean {
    return this.#held.size > 0;
  }

  /** Whether the key is one of these; its first step is due now. */
  press(key: string): boolean {
    if (!HELD.includes(key)) return false;
    this.#held.add(key);
    return true;
  }

  /** One key, or all of them. */
  release(key?: string): void {
    if (key) this.#held.delete(key);
    else this.#held.clear();
  }

  /** The view after some time of the keys that are held; `tap` is the step of one of them alone. */
  after(view: View, ms: number, around: number, all: View, tap = ''): View {
    const has = (key: string) => (tap ? tap === key : this.#held.has(key));
    const s = (tap ? TAP_MS : Math.min(ms, 50)) / 1000;
    const pan = (Number(has('d')) - Number(has('a'))) * s * PER_S.pan;
    const zoom = (Number(has('s')) - Number(has('w'))) * s * PER_S.zoom;
    if (pan) view = moved(view, pan * (view.to - view.from), all);
    return zoom ? zoomed(view, Math.exp(zoom), around, all) : view;
  }
}
