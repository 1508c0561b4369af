/** Colours of one theme as a canvas takes them. */
export interface Ink {
  /** From hardly anything in it to full. */
  tints: string[];
  /** What is legible on each of them. */
  texts: string[];
}

export interface Inks {
  colors: Ink[];
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
export function inksOf(element: Element, tokens: string[]): Inks {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const paper = rgb(token('--bg'));
  return {
    colors: tokens.map((name) => inkOf(rgb(token(name) || token('--cat-other')), paper)),
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
