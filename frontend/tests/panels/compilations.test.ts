import { describe, expect, it } from 'vitest';
import type { Artifact, Compilation, CompilationDetails, Frame, Metric, TrieNode } from '../../src/api/types';
import { metricGroups, metricText, ownOf } from '../../src/panels/compile/compilations/details';
import { trieRows } from '../../src/panels/compile/compilations/trie';
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

describe('metrics', () => {
  const metric = (name: string, value: string, over: Partial<Metric> = {}): Metric => ({
    group: 'time',
    name,
    value,
    is_known: true,
    direction: 'forward',
    runtime: false,
    record: 0,
    ...over,
  });
  it('are shown in their units', () => {
    const text = (name: string, value: string) => metricText(metric(name, value)).replaceAll('\u202f', ' ');
    expect(text('gc_time_us', '1500')).toBe('1.50 ms');
    expect(text('code_gen_time_s', '0.5')).toBe('500 ms');
    expect(text('graph_op_count', '12345')).toBe('12,345');
    expect(text('start_time', '1795230217.52')).toBe('1795230217.52');
    expect(text('co_name', '"<lambda>"')).toBe('<lambda>');
    expect(text('dynamo_config', '"{\\"a\\": 1}"')).toBe('{\n  "a": 1\n}');
    expect(text('whatever', 'not JSON')).toBe('not JSON');
    expect(text('flag', 'true')).toBe('true');
  });
  it('are grouped by what they are about', () => {
    const rows = [
      metric('a', '1'),
      metric('b', '1', { direction: 'backward' }),
      metric('c', '1', { runtime: true }),
    ];
    expect(metricGroups(rows).map(({ title }) => title)).toEqual([
      'Time',
      'Time, backward',
      'Time, when it first ran',
    ]);
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
      metrics: [
        { name: 'a', direction: 'forward', record: 0 },
        { name: 'b', direction: 'backward', record: 0 },
        { name: 'c', direction: 'backward', record: 1 },
      ],
    }) as unknown as CompilationDetails;
  const own = (rows: Compilation[], row: Compilation) => {
    const { artifacts, metrics } = ownOf(details(rows), row);
    return [artifacts.map(({ id }) => id), metrics.map(({ name }) => name)];
  };

  it('is of its direction, and of its bucket where there are several', () => {
    const rows = [timed('forward'), timed('backward', 0, 2), timed('backward', 1, 2)];
    expect(own(rows, rows[0]!)).toEqual([[1, 2], ['a']]);
    expect(own(rows, rows[1]!)).toEqual([[3, 4], ['b']]);
    expect(own(rows, rows[2]!)).toEqual([[3, 5], ['c']]);
  });

  it('is also the backward that was compiled together with the forward', () => {
    const rows = [timed('forward')];
    expect(own(rows, rows[0]!)).toEqual([
      [1, 2, 3, 4, 5],
      ['a', 'b', 'c'],
    ]);
  });
});
