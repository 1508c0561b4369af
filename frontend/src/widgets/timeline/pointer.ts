/** Wheel, mouse and finger on the picture. */
import type { Camera } from './camera';
import { RULER } from './paint';
import type { View } from '../canvas/view';

/** What a pointer works on. */
interface Ground {
  camera: Camera;
  canvas: HTMLCanvasElement;
  scroller: HTMLElement;
  width: number;
  focused: boolean;
  /** Dragging chooses a range also without Shift and below the ruler. */
  selecting: boolean;
  /** Null: it left, or is busy. */
  onhover: (event: PointerEvent | null) => void;
  onclick: (event: PointerEvent) => void;
  onrange: (range: View | null) => void;
}

interface Drag {
  x: number;
  y: number;
  view: View;
  scroll: number;
  moved: boolean;
  range: boolean;
}

/** Pixels that a click may wander. */
const STILL = 3;

export class Pointer {
  #drag: Drag | null = null;

  /** `ground` returns the current state. */
  constructor(private ground: () => Ground) {}

  timeAt(clientX: number): number {
    const { camera, canvas, width } = this.ground();
    const { from, to } = camera.view;
    return from + ((clientX - canvas.getBoundingClientRect().left) / width) * (to - from);
  }

  wheel = (event: WheelEvent): void => {
    const { camera, width, focused } = this.ground();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    // The page scrolls under a pointer that only passes; after a click or with Ctrl the picture zooms.
    if (sideways) camera.pan((event.deltaX || event.deltaY) / width);
    else if (event.ctrlKey || event.metaKey || focused) {
      const by = Math.max(-100, Math.min(100, event.deltaY)) / (event.ctrlKey ? 60 : 150);
      camera.zoom(2 ** by, this.timeAt(event.clientX));
    } else return;
    event.preventDefault();
  };

  down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const { camera, canvas, scroller, selecting } = this.ground();
    const { clientX: x, clientY: y } = event;
    const range = selecting || event.shiftKey || y - canvas.getBoundingClientRect().top < RULER;
    this.#drag = { x, y, view: camera.view, scroll: scroller.scrollTop, moved: false, range };
    camera.held = true;
    canvas.setPointerCapture(event.pointerId);
  };

  move = (event: PointerEvent): void => {
    const { camera, onhover } = this.ground();
    camera.pointed = this.timeAt(event.clientX);
    const drag = this.#drag;
    if (drag && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > STILL) drag.moved = true;
    if (drag?.moved) this.#dragTo(event, drag);
    else onhover(event);
  };

  up = (event: PointerEvent): void => {
    const { camera, onclick, onrange } = this.ground();
    const clicked = this.#drag && !this.#drag.moved && event.type === 'pointerup';
    if (clicked && this.#drag?.range) onrange(null);
    else if (clicked) onclick(event);
    camera.held = false;
    this.#drag = null;
  };

  leave = (): void => {
    const { camera, onhover } = this.ground();
    camera.pointed = null;
    onhover(null);
  };

  #dragTo(event: PointerEvent, from: Drag): void {
    const { camera, scroller, width, onhover, onrange } = this.ground();
    onhover(null);
    if (from.range) {
      const [a, b] = [this.timeAt(from.x), this.timeAt(event.clientX)];
      onrange({ from: Math.round(Math.min(a, b)), to: Math.round(Math.max(a, b)) });
      return;
    }
    camera.pan((from.x - event.clientX) / width, from.view);
    // A finger that goes up or down scrolls by itself.
    if (event.pointerType === 'mouse') scroller.scrollTop = from.scroll + from.y - event.clientY;
  }
}
