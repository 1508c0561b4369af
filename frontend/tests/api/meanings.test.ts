import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
const WORDS = readFileSync(join(ROOT, '..', 'tb_torchcompile_plugin', 'api', 'words.md'), 'utf8');
const SOURCES = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(ts|svelte)$/.test(file))
  .map((file) => readFileSync(join(ROOT, 'src', file), 'utf8'))
  .join('\n');
const SETS = WORDS.split('\n## ').slice(1);

describe('the words that the server explains', () => {
  it('are of sets that are asked for', () => {
    for (const set of SETS) {
      const name = set.split('\n')[0]!.toLowerCase().replaceAll(' ', '_');
      expect(SOURCES).toContain(`('${name}', `);
    }
  });

  it('are of tables and columns that there are', () => {
    const columns = SETS.filter((set) => /^(Columns|Unknowns)\n/.test(set)).join('\n');
    const names = [...columns.matchAll(/^\| `(\w+)\.(\w+)` \|/gm)];
    expect(names.length).toBeGreaterThan(100);
    const known = (name: string) => new RegExp(`['"]${name}['"]|\\n  ${name}: `).test(SOURCES);
    expect(names.map(([, table]) => table!).filter((table) => !known(table))).toEqual([]);
    expect(names.map(([, , column]) => column!).filter((column) => !known(column))).toEqual([]);
  });
});
