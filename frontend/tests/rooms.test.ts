import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';

/** Each package imports from itself and from those before it. */
const PACKAGES = ['widgets', 'host', 'api', 'names', 'links', 'states', 'table', 'panels', 'shell'];
/** The scripts of the tab and of an exported file. */
const ENTRIES = ['src/file.ts', 'src/main.ts'];
const ROOT = join(import.meta.dirname, '..');

const filesOf = (folder: string) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.(ts|svelte)$/.test(file))
    .map((file) => join(folder, file));

const EXPORTED = /^export (?:async )?(?:type|interface|class|const|function) (\w+)/gm;
const files = filesOf('src');

interface Import {
  from: string;
  to: string;
  /** It is loaded when it is needed. */
  late: boolean;
}

/** Find the imports of a file, those of types too. */
function importsOf(from: string): Import[] {
  const text = readFileSync(join(ROOT, from), 'utf8');
  return [...text.matchAll(/\b(?:from|(import)\(?) ?'(\.[^']+)'/g)].flatMap(([all, , path]) => {
    const to = normalize(join(dirname(from), path!));
    const file = [to, `${to}.ts`].find((name) => files.includes(name));
    if (!file && !/\.css$/.test(to)) throw new Error(`${from} imports ${to}, which is not there`);
    return file ? [{ from, to: file, late: all.includes('(') }] : [];
  });
}

const imports = files.flatMap(importsOf);
const packageOf = (file: string) => file.split('/')[1]!;
/** The folder of a panel, in its group. */
const panelOf = (file: string) => (packageOf(file) === 'panels' ? dirname(file) : '');
const named = (wrong: Import[]) => wrong.map(({ from, to }) => `${from} → ${to}`);

describe('the packages', () => {
  it('hold all modules', () => {
    const outside = files.filter((file) => !PACKAGES.includes(packageOf(file))).sort();
    expect(outside).toEqual(ENTRIES);
  });

  it('import one way', () => {
    const rank = (file: string) =>
      ENTRIES.includes(file) ? PACKAGES.length : PACKAGES.indexOf(packageOf(file));
    expect(named(imports.filter(({ from, to }) => rank(to) > rank(from)))).toEqual([]);
  });

  it('import from another panel only what it offers', () => {
    const inside = imports.filter(
      ({ from, to }) =>
        panelOf(from) && panelOf(to) && panelOf(from) !== panelOf(to) && !to.endsWith('/offers.ts'),
    );
    expect(named(inside)).toEqual([]);
  });

  it('load a panel only when it is needed', () => {
    const early = imports.filter(({ from, to, late }) => panelOf(to) && !panelOf(from) && !late);
    expect(named(early)).toEqual([]);
  });

  it('use every exported name and file name once', () => {
    const homes = new Map<string, string[]>();
    for (const file of files.filter((file) => file.endsWith('.ts')))
      for (const [, name] of readFileSync(join(ROOT, file), 'utf8').matchAll(EXPORTED))
        homes.set(name!, [...(homes.get(name!) ?? []), file]);
    expect([...homes].filter(([, paths]) => paths.length > 1)).toEqual([]);
    const modules = files.filter((file) => file.endsWith('.ts') && !file.endsWith('/offers.ts'));
    expect(new Set(modules.map((file) => basename(file))).size).toBe(modules.length);
  });

  it('have no import cycles', () => {
    const open = new Map(files.map((file) => [file, new Set<string>()]));
    for (const { from, to } of imports) open.get(from)!.add(to);
    // A file that imports none of the remaining files is in no cycle.
    for (let size = -1; size !== open.size;) {
      size = open.size;
      for (const [file, to] of open) if (![...to].some((other) => open.has(other))) open.delete(file);
    }
    expect([...open.keys()]).toEqual([]);
  });

  it.each([
    ['deep state', /\$state[(<]|const \w+ = \$state/],
    [
      'await in templates and derived state',
      /\{#?await\b|\$derived\(\s*await|\$effect\.pending|#snippet pending|boundary \w/,
    ],
    ['state that is tried, or aborts', /getAbortSignal|\bfork\(|from 'svelte\/(store|legacy|reactivity)/],
    [
      'moving parts, and actions with an argument',
      /\b(use:\w+=|(animate|transition|in|out):\w+[=\s}|])(?!.*;)/,
    ],
    [
      'styles in two ways, and lists of classes',
      /\sstyle="|\sstyle=\{|style:[\w-]+\|important|class=\{\s*[[{]/,
    ],
    ['values other than a text', /\smultiple[\s=>]|type="(number|range|date)"|type="reset"/],
  ])('use no %s, whose code the build leaves out of Svelte', (_, pattern) => {
    expect(files.filter((file) => pattern.test(readFileSync(join(ROOT, file), 'utf8')))).toEqual([]);
  });

  it('are small, and the tests are in folders of the same name', () => {
    const sizes = new Map<string, number>();
    for (const file of [...files, ...filesOf('tests')])
      sizes.set(dirname(file), (sizes.get(dirname(file)) ?? 0) + 1);
    expect([...sizes].filter(([, size]) => size > 20)).toEqual([]);
    const sources = [...sizes.keys()].filter((folder) => folder.startsWith('src'));
    const tests = [...sizes.keys()].filter((folder) => folder.startsWith('tests/'));
    const sourceOf = (folder: string) => folder.replace('tests', 'src');
    expect(
      tests.filter((folder) => !sources.some((source) => `${source}/`.startsWith(`${sourceOf(folder)}/`))),
    ).toEqual([]);
  });
});
