/** Colours of one theme as a canvas takes them. */
export interface Ink {
  /** From hardly anything in it to full. */
  tints: string[];
  /** What is legible on each of them. */
  texts: string[];
}

/** How a colour looks: its token, and whether it means that nothing runs. */
export interface Painted {
  token: string;
  idle: boolean;
}

export interface Inks {
  colors: { tints: (string | CanvasPattern)[]; texts: string[] }[];
  plot: Ink;
  paper: string;
  raised: string;
  line: string;
  strong: string;
  text: string;
  muted: string;
  focus: string;
  mark: string;
  font: string;
}

export type Rgb = [number, number, number];

/** Reads the tokens (`--cat-gemm`) as the element inherits them. */
export function inksOf(element: Element, looks: Painted[]): Inks {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const paper = rgb(token('--bg'));
  return {
    colors: looks.map((look) => {
      const { tints, texts } = inkOf(rgb(token(look.token) || token('--cat-other')), paper);
      return { tints: look.idle ? tints.map((tint, i) => hatched(tint, texts[i]!)) : tints, texts };
    }),
    plot: inkOf(rgb(token('--measure')), paper),
    paper: token('--bg'),
    raised: token('--raised'),
    line: token('--line'),
    strong: token('--line-strong'),
    text: token('--text'),
    muted: token('--muted'),
    focus: token('--focus'),
    mark: token('--warn'),
    font: `11px ${style.fontFamily}`,
  };
}

export function inkOf(color: Rgb, paper: Rgb): Ink {
  const tints = [0.4, 0.6, 0.8, 1].map(
    (share) => color.map((c, i) => Math.round(c * share + paper[i]! * (1 - share))) as Rgb,
  );
  return {
    tints: tints.map((tint) => `rgb(${tint.join(' ')})`),
    texts: tints.map((tint) => (luminance(tint) > 0.179 ? '#000' : '#fff')),
  };
}

const TILE = 6;

/** Nothing runs: hatched, for readers who do not see the colour. What is written on it gains contrast from the stripes. */
export function hatched(tint: string, text: string): CanvasPattern {
  const tile = new OffscreenCanvas(TILE, TILE);
  const c = tile.getContext('2d')!;
  c.fillStyle = tint;
  c.fillRect(0, 0, TILE, TILE);
  c.strokeStyle = text === '#000' ? '#fff' : '#000';
  c.globalAlpha = 0.45;
  c.lineWidth = 1.5;
  for (const x of [-TILE, 0, TILE]) {
    c.moveTo(x - 1, TILE + 1);
    c.lineTo(x + TILE + 1, -1);
  }
  c.stroke();
  return c.createPattern(tile, 'repeat')!;
}

/** Of "#rrggbb" or "#rgb", as what builds the page shortens it. */
export function rgb(hex: string): Rgb {
  const n = parseInt(hex.slice(1).replace(/^(.)(.)(.)$/, '$1$1$2$2$3$3'), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

/** Relative luminance as WCAG defines it: on more than 0.179 black text has the greater contrast, and never less than 4.5. */
export function luminance(color: Rgb): number {
  const [r, g, b] = color.map((c) => {
    const share = c / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
