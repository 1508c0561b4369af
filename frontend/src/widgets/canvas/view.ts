/** The visible interval of an axis; on the timeline in ns, as integers for times of events. */
export interface View {
  from: number;
  to: number;
}

/** Nothing shorter than this is shown over the whole width. */
const CLOSEST = 50;

/** Where arrow keys point. */
export type ArrowKey = 'left' | 'right' | 'up' | 'down';

/** Zooms by a factor around a time, and stays inside of `all`. */
export function zoomed(view: View, factor: number, around: number, all: View, closest = CLOSEST): View {
  const length = Math.max(closest, (view.to - view.from) * factor);
  const share = (around - view.from) / (view.to - view.from);
  return kept({ from: around - length * share, to: around + length * (1 - share) }, all);
}

export function moved(view: View, by: number, all: View): View {
  return kept({ from: view.from + by, to: view.to + by }, all);
}

/** The view with some room around a stretch of time. */
export function around(from: number, to: number, all: View, room = 0.05): View {
  const more = Math.max((to - from) * room, (CLOSEST - (to - from)) / 2);
  return kept({ from: from - more, to: to + more }, all);
}

/** The same length, as far as there is so much, moved inside. */
export function kept(view: View, all: View): View {
  const length = Math.min(all.to - all.from, view.to - view.from);
  const from = Math.max(all.from, Math.min(all.to - length, view.from));
  return { from, to: from + length };
}

export function same(a: View, b: View): boolean {
  return Math.round(a.from) === Math.round(b.from) && Math.round(a.to) === Math.round(b.to);
}

/** Round steps for about `most` ticks over a width. */
export function tickStep(width: number, most: number): number {
  const raw = width / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5].find((m) => m * power >= raw) ?? 10) * power;
}

/** The brush of a canvas that is empty, of this size, and as sharp as the screen; it counts in CSS pixels. */
export function blank(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const brush = canvas.getContext('2d')!;
  brush.scale(scale, scale);
  return brush;
}
