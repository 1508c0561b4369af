import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { isDark } from '../src/host/theme';

const css = readFileSync(new URL('../src/app.css', import.meta.url), 'utf8');
const [light, dark] = css.split(":root[data-theme='dark']") as [string, string];
const colors = (part: string) =>
  new Map([...part.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((m) => [m[1]!, m[2]!]));

function luminance(color: string): number {
  const channel = (at: number) => {
    const c = parseInt(color.slice(at, at + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
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

  it('has a colour for every category', () => {
    const source = readFileSync(new URL('../src/panels/shared/categories.ts', import.meta.url), 'utf8');
    const labels = source.slice(source.indexOf('LABELS'), source.indexOf('};'));
    const names = [...labels.matchAll(/^ {2}(\w+): '/gm)].map((m) => m[1]!);
    expect(names.length).toBe(17);
    for (const name of names) expect(palette.has(`cat-${name}`), name).toBe(true);
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
  const root = new URL('../src/', import.meta.url);
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
