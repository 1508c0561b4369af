import { describe, expect, it } from 'vitest';
import type { Artifact, Compilation, CompilationDetails, Frame, TrieNode } from '../../src/api/types';
import { artifactsOf } from '../../src/panels/compilations/details';
import { trieRows } from '../../src/panels/compilations/trie';
import { toggled } from '../../src/widgets/search';

const frame = (line: number, file = '/home/user/train.py'): Frame => ({
  file,
  line,
  function: 'f',
  source: null,
});
const node = (line: number, children: TrieNode[], ids: string[] = []): TrieNode => ({
  frame: frame(line),
  users: true,
  children,
  compilations: ids.map((compile_id) => ({ compile_id, key: compile_id }) as Compilation),
  total_s: null,
});
const none = new Set<string>();

describe('the stack trie', () => {
  const tree = [node(1, [node(2, [node(3, [node(4, [node(5, [], ['0/0']), node(6, [], ['1/0'])])])])])];
  const kinds = (rows: ReturnType<typeof trieRows>) =>
    rows.map((row) =>
      row.kind === 'frame' ? row.frame.line : row.kind === 'skipped' ? '…' : row.compilation.compile_id,
    );

  it('shortens chains of calls in which nothing branches', () => {
    expect(kinds(trieRows(tree, none, none))).toEqual([1, '…', 4, 5, '0/0', 6, '1/0']);
    expect(kinds(trieRows(tree, none, new Set(['0'])))).toEqual([1, 2, 3, 4, 5, '0/0', 6, '1/0']);
  });

  it('folds a frame and says what is inside', () => {
    const rows = trieRows(tree, new Set(['0']), none);
    expect(kinds(rows)).toEqual([1]);
    expect(rows[0]).toMatchObject({ open: false, inside: 2 });
  });

  it('has keys that are unique and stay', () => {
    const keys = (shown: ReadonlySet<string>) => trieRows(tree, none, shown).map((row) => row.key);
    expect(new Set(keys(none)).size).toBe(keys(none).length);
    expect(keys(new Set(['0']))).toEqual(
      expect.arrayContaining(keys(none).filter((key) => !key.endsWith('…'))),
    );
    expect([...toggled(toggled(none, 'a'), 'a')]).toEqual([]);
  });
});

describe('what belongs to a row', () => {
  const timed = (direction: string, part = 0, parts = 1) => ({ direction, part, parts }) as Compilation;
  const text = (id: number, direction: string, graph: number | null) =>
    ({ id, direction, graph }) as Artifact;
  const details = (rows: Compilation[]) =>
    ({
      rows,
      artifacts: [
        text(1, 'forward', null),
        text(2, 'forward', 0),
        text(3, 'backward', null),
        text(4, 'backward', 1),
        text(5, 'backward', 2),
      ],
    }) as unknown as CompilationDetails;
  const own = (rows: Compilation[], row: Compilation) => artifactsOf(details(rows), row).map(({ id }) => id);

  it('is of its direction, and of its bucket where there are several', () => {
    const rows = [timed('forward'), timed('backward', 0, 2), timed('backward', 1, 2)];
    expect(own(rows, rows[0]!)).toEqual([1, 2]);
    expect(own(rows, rows[1]!)).toEqual([3, 4]);
    expect(own(rows, rows[2]!)).toEqual([3, 5]);
  });

  it('is also the backward that was compiled together with the forward', () => {
    const rows = [timed('forward')];
    expect(own(rows, rows[0]!)).toEqual([1, 2, 3, 4, 5]);
  });
});
