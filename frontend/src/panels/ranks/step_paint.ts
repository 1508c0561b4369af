/** Draws one step of all ranks on a canvas. */
import type { JoinedCollective } from '../../api/types';
import { blank, tickStep, type View } from '../../widgets/canvas/view';
import { duration } from '../../widgets/format';
import { hatched, inkOf, rgb, type Ink } from '../../widgets/timeline/ink';
import { isMatched, STEP_RULER, type Box, type LaneRow } from './step_lanes';

interface StepPicture {
  rows: LaneRow[];
  boxes: Box[];
  collectives: JoinedCollective[];
  /** Of the names at the left. */
  side: number;
  width: number;
  height: number;
  view: View;
  hovered: JoinedCollective | null;
  /** What is being chosen by a drag. */
  range: View | null;
}

const MARK = 5;
const NAMED = 34;

export function paintStep(canvas: HTMLCanvasElement, picture: StepPicture): void {
  const { rows, boxes, collectives, side, width, height, view, hovered, range } = picture;
  const c = blank(canvas, width, height);
  const style = getComputedStyle(canvas);
  const inks = new Map<string, Ink & { idle: CanvasPattern }>();
  const token = (name: string) => style.getPropertyValue(name).trim();
  const x = (ns: number) => side + ((ns - view.from) / (view.to - view.from)) * (width - side);

  function ink(color: string): Ink & { idle: CanvasPattern } {
    const name = /--[\w-]+/.exec(color)![0];
    const colors = inkOf(rgb(token(name)), rgb(token('--bg')));
    if (!inks.has(name)) inks.set(name, { ...colors, idle: hatched(colors.tints[1]!, colors.texts[1]!) });
    return inks.get(name)!;
  }

  function fill(color: string | CanvasPattern, left: number, top: number, wide: number, high: number): void {
    c.fillStyle = color;
    c.fillRect(left, top, wide, high);
  }

  function write(text: string, color: string, at: number, y: number): void {
    c.fillStyle = color;
    c.fillText(text, at, y);
  }

  function ground({ rank, top, bottom }: LaneRow): void {
    fill(token(rank.late ? '--warn-bg' : '--raised'), 0, top - 3, width, bottom - top + 6);
    if (rank.late) fill(token('--warn-line'), 0, top - 3, 3, bottom - top + 6);
  }

  function names({ rank, host, gpu, calls }: LaneRow): void {
    c.textAlign = 'left';
    write(`Rank ${rank.rank}`, token('--text'), 8, host + 8);
    if (rank.late) write('comes last', token('--warn'), 8, gpu + 8);
    else if (rank.wait_us > 0) write(`waits ${duration(rank.wait_us)}`, token('--muted'), 8, gpu + 8);
    c.textAlign = 'right';
    write('host', token('--muted'), side - 6, host + 8);
    write('GPU', token('--muted'), side - 6, gpu + 8);
    write('comm.', token('--muted'), side - 6, calls + 8);
  }

  function ruler(): void {
    const step = tickStep(view.to - view.from, (width - side) / 90);
    c.textAlign = 'left';
    for (let at = Math.ceil(view.from / step) * step; at < view.to; at += step) {
      const left = Math.round(x(at));
      const text = duration(at / 1000);
      fill(token('--line'), left, STEP_RULER - 6, 1, height);
      if (left + 4 + c.measureText(text).width < width)
        write(text, token('--muted'), left + 4, STEP_RULER / 2);
    }
  }

  /** Where the step begins and ends, on the host and on the GPU. */
  function bounds({ rank, host, gpu, bottom }: LaneRow): void {
    const color = token('--line-strong');
    for (const at of rank.host_step_ns ?? []) fill(color, x(at), host - 3, 1, gpu - host);
    for (const at of rank.gpu_step_ns ?? []) fill(color, x(at), gpu - 1, 1, bottom - gpu);
  }

  function box({ from, to, top, height, color, hatched, share, label }: Box): void {
    const left = Math.max(side, x(from));
    const wide = Math.min(width, Math.max(x(to), left + 1)) - left;
    if (wide <= 0 || x(to) < side) return;
    const { tints, texts, idle } = ink(color);
    const tint = hatched ? 1 : Math.min(3, Math.floor(share * 4));
    fill(hatched ? idle : tints[tint]!, left, top, wide > 3 ? wide - 1 : wide, height);
    const written = label && wide > NAMED ? c.measureText(label).width : Infinity;
    if (written > wide - 8) return;
    write(label, texts[tint]!, left + 4, top + height / 2);
  }

  /** Draw a line through the starts on all ranks, and a mark at the last one. */
  function join(joined: JoinedCollective): void {
    const ends = boxes.filter(
      ({ collective, call, from }) => collective === joined && from === call!.start_ns,
    );
    c.strokeStyle = token(joined === hovered ? '--focus' : '--line-strong');
    c.lineWidth = joined === hovered ? 2 : 1;
    c.beginPath();
    ends.sort((a, b) => a.top - b.top);
    ends.forEach(({ from, top, height }, i) => {
      if (i > 0) c.lineTo(x(from), top);
      c.moveTo(x(from), top + height);
    });
    c.stroke();
    for (const { call, from, top } of ends) if (call!.last) mark(x(from), top);
  }

  function mark(at: number, y: number): void {
    c.fillStyle = token('--warn');
    c.beginPath();
    c.moveTo(at - MARK, y - MARK);
    c.lineTo(at + MARK, y - MARK);
    c.lineTo(at, y + 3);
    c.fill();
  }

  c.font = `12px ${style.fontFamily}`;
  c.textBaseline = 'middle';
  rows.forEach(ground);
  ruler();
  c.save();
  c.beginPath();
  c.rect(side, STEP_RULER, width, height);
  c.clip();
  c.textAlign = 'left';
  rows.forEach(bounds);
  boxes.forEach(box);
  collectives.forEach((collective) => isMatched(collective) && join(collective));
  c.globalAlpha = 0.6;
  if (range) fill(token('--selected'), x(range.from), STEP_RULER, x(range.to) - x(range.from), height);
  c.restore();
  rows.forEach(names);
}
