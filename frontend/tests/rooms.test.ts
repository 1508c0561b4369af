import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';

/** Each room imports from itself and from those before it. */
const ROOMS = ['widgets', 'host', 'api', 'names', 'links', 'states', 'table', 'panels', 'shell'];
/** Of the tab, and of an exported file. */
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
  /** It comes when it is asked for. */
  late: boolean;
}

/** Those of types too. */
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
const roomOf = (file: string) => file.split('/')[1]!;
/** The folder of a panel, in its group. */
const panelOf = (file: string) => (roomOf(file) === 'panels' ? dirname(file) : '');
const named = (wrong: Import[]) => wrong.map(({ from, to }) => `${from} → ${to}`);

describe('the rooms', () => {
  it('hold all that there is', () => {
    const outside = files.filter((file) => !ROOMS.includes(roomOf(file))).sort();
    expect(outside).toEqual(ENTRIES);
  });

  it('import one way', () => {
    const rank = (file: string) => (ENTRIES.includes(file) ? ROOMS.length : ROOMS.indexOf(roomOf(file)));
    expect(named(imports.filter(({ from, to }) => rank(to) > rank(from)))).toEqual([]);
  });

  it('let nobody into a panel, but for what it offers', () => {
    const inside = imports.filter(
      ({ from, to }) =>
        panelOf(from) && panelOf(to) && panelOf(from) !== panelOf(to) && !to.endsWith('/offers.ts'),
    );
    expect(named(inside)).toEqual([]);
  });

  it('open a panel only when it is asked for', () => {
    const early = imports.filter(({ from, to, late }) => panelOf(to) && !panelOf(from) && !late);
    expect(named(early)).toEqual([]);
  });

  it('give one name to one thing', () => {
    const homes = new Map<string, string[]>();
    for (const file of files.filter((file) => file.endsWith('.ts')))
      for (const [, name] of readFileSync(join(ROOT, file), 'utf8').matchAll(EXPORTED))
        homes.set(name!, [...(homes.get(name!) ?? []), file]);
    expect([...homes].filter(([, places]) => places.length > 1)).toEqual([]);
    const modules = files.filter((file) => file.endsWith('.ts') && !file.endsWith('/offers.ts'));
    expect(new Set(modules.map((file) => basename(file))).size).toBe(modules.length);
  });

  it('have no circles', () => {
    const open = new Map(files.map((file) => [file, new Set<string>()]));
    for (const { from, to } of imports) open.get(from)!.add(to);
    // Whoever imports nothing that is left is in no circle.
    for (let size = -1; size !== open.size;) {
      size = open.size;
      for (const [file, to] of open) if (![...to].some((other) => open.has(other))) open.delete(file);
    }
    expect([...open.keys()]).toEqual([]);
  });

  it('keep no deep state, of which the build leaves out what Svelte has for it', () => {
    const deep = files.filter((file) =>
      /\$state[(<]|const \w+ = \$state/.test(readFileSync(join(ROOT, file), 'utf8')),
    );
    expect(deep).toEqual([]);
  });

  it('are small, and the tests lie in the same ones', () => {
    const sizes = new Map<string, number>();
    for (const file of [...files, ...filesOf('tests')])
      sizes.set(dirname(file), (sizes.get(dirname(file)) ?? 0) + 1);
    expect([...sizes].filter(([, size]) => size > 20)).toEqual([]);
    const sources = [...sizes.keys()].filter((folder) => folder.startsWith('src'));
    const tests = [...sizes.keys()].filter((folder) => folder.startsWith('tests/'));
    const room = (folder: string) => folder.replace('tests', 'src');
    expect(
      tests.filter((folder) => !sources.some((source) => `${source}/`.startsWith(`${room(folder)}/`))),
    ).toEqual([]);
  });
});
