import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CATEGORIES } from '../../src/names/categories';
import { isDark } from '../../src/host/theme';
import { inkOf, rgb } from '../../src/widgets/timeline/ink';

const css = readFileSync(new URL('../../src/shell/app.css', import.meta.url), 'utf8');
const stage = readFileSync(new URL('../../src/panels/timeline/Stage.svelte', import.meta.url), 'utf8');
const [light, dark] = css.split(":root[data-theme='dark']") as [string, string];
const colors = (part: string) =>
  new Map([...part.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((m) => [m[1]!, m[2]!]));

function linear(color: string, at: number): number {
  const c = parseInt(color.slice(at, at + 2), 16) / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}

function luminance(color: string): number {
  return 0.2126 * linear(color, 1) + 0.7152 * linear(color, 3) + 0.0722 * linear(color, 5);
}

type Triple = [number, number, number];

/** What dichromats see of a colour: Machado, Oliveira and Fernandes 2009, full severity, on linear RGB. */
const EYES: Record<string, [Triple, Triple, Triple]> = {
  all: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

const times = (m: Triple[], v: Triple) =>
  m.map((row) => row.reduce((sum, share, i) => sum + share * v[i]!, 0)) as Triple;

/** OKLab, by 100: differences of 2 are just noticeable. */
function oklab(light: Triple): Triple {
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    light,
  ).map(Math.cbrt) as Triple;
  return times(
    [
      [21.04542553, 79.3617785, -0.40720468],
      [197.79984951, -242.8592205, 45.05937099],
      [2.59040371, 78.27717662, -80.8675766],
    ],
    cones,
  );
}

function seen(color: string, eyes: Triple[]): Triple {
  const light = [1, 3, 5].map((at) => linear(color, at)) as Triple;
  return oklab(times(eyes, light).map((c) => Math.min(1, Math.max(0, c))) as Triple);
}

/** The pair of different colours that is hardest to tell apart. */
function closest(palette: Map<string, string>, eyes: Triple[]): { apart: number; pair: string } {
  const distances = [...palette].flatMap(([a, one], i) =>
    [...palette]
      .slice(i + 1)
      .filter(([, other]) => other !== one)
      .map(([b, other]) => {
        const [from, to] = [seen(one, eyes), seen(other, eyes)];
        return { apart: Math.hypot(...from.map((x, k) => x - to[k]!)), pair: `${a} ~ ${b}` };
      }),
  );
  return distances.reduce((least, one) => (one.apart < least.apart ? one : least));
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

describe.each([
  ['light', light],
  ['dark', dark],
])('the %s theme', (_name, part) => {
  const palette = colors(part);
  const pairs = ['text', 'muted', 'link', 'warn', 'bad'].flatMap((ink) =>
    ['bg', 'raised', 'hover', 'selected'].map((paper) => [ink, paper] as const),
  );

  it.each(pairs)('shows %s on %s with AA contrast', (ink, paper) => {
    expect(contrast(palette.get(ink)!, palette.get(paper)!)).toBeGreaterThanOrEqual(4.5);
  });

  it('shows every category and control clearly', () => {
    const shapes = [...palette.keys()]
      .filter((key) => key.startsWith('cat-'))
      .concat('measure', 'line-strong', 'focus');
    for (const key of shapes) {
      expect(contrast(palette.get(key)!, palette.get('bg')!), key).toBeGreaterThanOrEqual(3);
    }
  });

  it.each(Object.entries(EYES))('tells kinds apart for %s eyes', (_name, eyes) => {
    const [day, night] = stage.split("[data-theme='dark']") as [string, string];
    const named = (of: Map<string, string>, prefix: string) =>
      new Map([...of].filter(([key]) => key.startsWith(prefix)));
    for (const kinds of [
      named(palette, 'cat-'),
      named(palette, 'host-'),
      named(colors(light), 'phase-'),
      named(colors(part === light ? day : night), 'tl-').set('warn-line', palette.get('warn-line')!),
    ]) {
      const { apart, pair } = closest(kinds, eyes);
      expect(apart, pair).toBeGreaterThan(4.5);
    }
  });

  it('writes on the colour of every phase with AA contrast', () => {
    const all = colors(light);
    for (const [key, color] of all)
      if (key.startsWith('phase-'))
        expect(contrast(color, all.get('on-phase')!), key).toBeGreaterThanOrEqual(4.5);
  });

  it('writes names on every colour of the timeline with AA contrast', () => {
    const hex = (css: string) =>
      '#' + [...css.matchAll(/\d+/g)].map((m) => Number(m[0]).toString(16).padStart(2, '0')).join('');
    const [day, night] = stage.split("[data-theme='dark']") as [string, string];
    const drawn = new Map([...colors(light), ...palette, ...colors(part === light ? day : night)]);
    for (const [key, color] of drawn) {
      if (!/^(cat|host|phase|tl)-/.test(key)) continue;
      const { tints, texts } = inkOf(rgb(color), rgb(palette.get('bg')!));
      tints.forEach((tint, i) => {
        const text = texts[i] === '#000' ? '#000000' : '#ffffff';
        expect(contrast(hex(tint), text), key).toBeGreaterThanOrEqual(4.5);
      });
    }
  });

  it('has a colour for every category', () => {
    for (const name of Object.keys(CATEGORIES)) expect(palette.has(`cat-${name}`), name).toBe(true);
  });
});

it('takes the theme from the class of TensorBoard’s body', () => {
  const body = (...names: string[]) => ({
    classList: { contains: (n: string) => names.includes(n) } as DOMTokenList,
  });
  expect(isDark(body('dark-mode', 'x'))).toBe(true);
  expect(isDark(body('x'))).toBe(false);
});

it('loads nothing from outside and interprets no text as HTML', () => {
  const root = new URL('../../src/', import.meta.url);
  for (const file of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(svelte|ts|css)$/.test(file)) continue;
    const source = readFileSync(new URL(file, root), 'utf8');
    // Perfetto is opened by a click that was explained, never by itself.
    const own = file.endsWith('timeline/perfetto.ts')
      ? source.replace('https://ui.perfetto.dev', '')
      : source;
    expect(own, file).not.toMatch(/\{@html|innerHTML|https?:\/\/[a-z]|@import|eval\(/);
  }
});
