/** Draws an icicle; `icicle.ts` computes the positions. */
import { duration } from '../format';
import { tickStep, type View } from '../canvas/view';
import type { IcicleRows, IcicleSlice } from './icicle';

export const ROW = 18;
export const AXIS = 20;
export const LABEL = 17;

/** A slice narrower than this has no room for its name. */
const NAMED = 28;

interface IciclePicture {
  laid: IcicleRows[];
  /** Where the axis begins. */
  origin: number;
  view: View;
  width: number;
  height: number;
  /** The highlighted group, "" for all. */
  chosen: string;
  cursor: IcicleSlice | null;
  hover: IcicleSlice | null;
  focused: boolean;
}

type Context = CanvasRenderingContext2D;
type Token = (name: string) => string;

export function paintIcicle(c: Context, style: CSSStyleDeclaration, picture: IciclePicture): void {
  const cached = new Map<string, string>();
  const token = (name: string) => {
    if (!cached.has(name)) cached.set(name, style.getPropertyValue(name).trim());
    return cached.get(name)!;
  };
  c.clearRect(0, 0, picture.width, picture.height);
  c.font = `11px ${style.fontFamily}`;
  c.textBaseline = 'middle';
  paintAxis(c, token, picture);
  let y = AXIS;
  for (const lane of picture.laid) {
    c.fillStyle = token('--muted');
    c.fillText(lane.label, 4, y + LABEL / 2);
    y += LABEL;
    for (const row of lane.rows) {
      paintRow(c, token, picture, row, y);
      y += ROW;
    }
  }
}

const toPixel = ({ view, width }: IciclePicture, x: number) =>
  ((x - view.from) / (view.to - view.from)) * width;

function paintRow(c: Context, token: Token, picture: IciclePicture, row: IcicleSlice[], y: number): void {
  const { width, chosen } = picture;
  let painted = -1;
  for (const slice of row) {
    const x1 = toPixel(picture, slice.end);
    if (x1 < 0) continue;
    const x0 = toPixel(picture, slice.start);
    if (x0 > width) break;
    const left = Math.max(x0, -1);
    const right = Math.max(Math.min(x1, width + 1), left + 1);
    // Many slices in one pixel: one of them is enough.
    if (right <= painted + 0.5) continue;
    painted = right;
    c.globalAlpha = chosen && slice.group !== chosen ? 0.28 : 1;
    c.fillStyle = token(slice.color) || token('--phase-other');
    c.fillRect(left, y, Math.max(1, right - left - 1), ROW - 2);
    if (right - left > NAMED) paintName(c, token, slice.name, left, right, y);
    c.globalAlpha = 1;
    if (slice === picture.cursor || slice === picture.hover)
      outline(c, token, picture, slice, left, right, y);
  }
}

function paintName(c: Context, token: Token, name: string, left: number, right: number, y: number): void {
  c.fillStyle = token('--on-phase');
  c.save();
  c.beginPath();
  c.rect(left, y, right - left - 3, ROW);
  c.clip();
  c.fillText(name, Math.max(left, 0) + 4, y + ROW / 2 - 0.5);
  c.restore();
}

function outline(
  c: Context,
  token: Token,
  { cursor, focused }: IciclePicture,
  slice: IcicleSlice,
  left: number,
  right: number,
  y: number,
): void {
  c.strokeStyle = token(slice === cursor && focused ? '--focus' : '--text');
  c.lineWidth = slice === cursor ? 2 : 1;
  c.strokeRect(left + 0.5, y + 0.5, Math.max(1, right - left - 2), ROW - 3);
}

/** Ticks count time from the first slice. */
function paintAxis(c: Context, token: Token, picture: IciclePicture): void {
  const { origin, view, width, height } = picture;
  const step = tickStep(view.to - view.from, width / 110);
  c.lineWidth = 1;
  for (let k = Math.ceil((view.from - origin) / step); origin + k * step <= view.to; k++) {
    const x = toPixel(picture, origin + k * step);
    vertical(c, token('--line'), x, height);
    const text = duration(k * step);
    if (x + c.measureText(text).width + 6 > width) continue;
    c.fillStyle = token('--muted');
    c.fillText(text, x + 3, 9);
  }
}

function vertical(c: Context, color: string, x: number, height: number): void {
  c.strokeStyle = color;
  c.beginPath();
  c.moveTo(x, 0);
  c.lineTo(x, height);
  c.stroke();
}
