import { describe, expect, it } from 'vitest';
import { commonLines } from '../../src/widgets/code/common';
import {
  changeStarts,
  countChanges,
  cutAtDifference,
  diffRows,
  foldEqual,
  inOneColumn,
} from '../../src/widgets/code/diff';
import { highlight, segments } from '../../src/widgets/code/highlight';
import { scoped } from '../../src/widgets/code/languages';
import { pieces, search, splitLines, TokenWriter } from '../../src/widgets/code/tokens';

const EVIL = '<script>alert("1")</script> & \'x\' \u001b[31mred\u001b[0m </span>';

/** The pieces of every line, put together again. */
function rebuilt(text: string, language: string): string {
  const tokens = highlight(text, language);
  return splitLines(text)
    .map((line, i) =>
      pieces(line, i, tokens, [])
        .map((piece) => piece.text)
        .join(''),
    )
    .join('\n');
}

const OUTPUT_CODE = `import torch
# kernel path: /tmp/x.py
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
import triton
@triton.jit
def triton_poi_fused_0(in_ptr0, XBLOCK : tl.constexpr):
    x = "a string" # comment
''', device_str='cuda')

cpp_fused_0 = async_compile.cpp_pybinding(['const float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const float* in) { float x = 1.0; }
''')
def call(args):
    return None
`;

describe('highlighting', () => {
  it('changes no character, in any language', () => {
    for (const language of ['python', 'cpp', 'json', 'text', 'klingon']) {
      for (const text of [OUTPUT_CODE, EVIL, `${EVIL}\n"""${EVIL}\n'''`, '', '\n\n', '{"a": [1, null]}']) {
        expect(rebuilt(text, language)).toBe(text);
      }
    }
  });

  it('knows keywords, strings and comments', () => {
    const tokens = highlight('def f(): # why\n    return "x"', 'python');
    const scopes = (line: string, i: number) =>
      pieces(line, i, tokens, [])
        .filter((p) => p.scope)
        .map((p) => [p.text, p.scope]);
    expect(scopes('def f(): # why', 0)).toContainEqual(['def', 'keyword']);
    expect(scopes('def f(): # why', 0)).toContainEqual(['# why', 'comment']);
    expect(scopes('    return "x"', 1)).toContainEqual(['"x"', 'string']);
  });

  it('reads strings of every kind to their ends, and no further', () => {
    const kinds = (text: string, language: string) =>
      [...scoped(text, language)].flatMap(([piece, scope]) => (scope ? [[piece, scope]] : []));
    expect(kinds(`f"a\\"b" r'c' """d\n"e""" 'cut\nx`, 'python')).toEqual([
      ['f"a\\"b"', 'string'],
      ["r'c'", 'string'],
      ['"""d\n"e"""', 'string'],
      ["'cut", 'string'],
    ]);
    expect(kinds('@triton.jit\nclass A(int): x1 = 0x1f + 1.5e-3', 'python')).toEqual([
      ['@triton.jit', 'meta'],
      ['class', 'keyword'],
      ['A', 'title'],
      ['int', 'type'],
      ['0x1f', 'number'],
      ['1.5e-3', 'number'],
    ]);
    expect(kinds('#pragma omp\nauto s = R"(a"b)"; /* 1\n2 */ float x = 1.0f; // y', 'cpp')).toEqual([
      ['#pragma omp', 'meta'],
      ['auto', 'keyword'],
      ['R"(a"b)"', 'string'],
      ['/* 1\n2 */', 'comment'],
      ['float', 'type'],
      ['1.0f', 'number'],
      ['// y', 'comment'],
    ]);
    expect(kinds('{"a\\"": [-1.5, null, "b"]}', 'json')).toEqual([
      ['"a\\""', 'title'],
      ['-1.5', 'number'],
      ['null', 'keyword'],
      ['"b"', 'string'],
    ]);
  });

  it('takes the code inside the strings of an output code for what it is', () => {
    expect(segments(OUTPUT_CODE, 'python').map((s) => s.language)).toEqual([
      'python',
      'string',
      'python',
      'string',
      'python',
      'string',
      'cpp',
      'string',
      'python',
    ]);
    expect(
      segments(OUTPUT_CODE, 'python')
        .map((s) => s.text)
        .join(''),
    ).toBe(OUTPUT_CODE);
    const cut = OUTPUT_CODE.slice(0, 200);
    expect(
      segments(cut, 'python')
        .map((s) => s.text)
        .join(''),
    ).toBe(cut);
    const line = splitLines(OUTPUT_CODE).indexOf('    x = "a string" # comment');
    const parts = pieces(splitLines(OUTPUT_CODE)[line]!, line, highlight(OUTPUT_CODE, 'python'), []);
    expect(parts.map((p) => p.scope)).toContain('comment');
  });

  it('is quick enough for megabytes', () => {
    const text = OUTPUT_CODE.repeat(500);
    const begun = performance.now();
    const tokens = highlight(text, 'python');
    expect(performance.now() - begun).toBeLessThan(20_000);
    expect(tokens.start.length).toBe(splitLines(text).length + 1);
  });

  it('leaves windows line ends out', () => {
    expect(splitLines('a\r\nb\n')).toEqual(['a', 'b', '']);
    expect(rebuilt('x = 1\r\ny = 2', 'python')).toBe('x = 1\ny = 2');
  });
});

describe('search', () => {
  const lines = ['Alpha beta', 'BETA beta', '', 'gamma'];
  it('finds every place, ignoring case', () => {
    const hits = search(lines, 'beta');
    expect(hits).toEqual([
      { n: 0, line: 0, from: 6, to: 10 },
      { n: 1, line: 1, from: 0, to: 4 },
      { n: 2, line: 1, from: 5, to: 9 },
    ]);
    expect(search(lines, '')).toEqual([]);
    expect(search(['a'.repeat(100)], 'a', 5).length).toBeGreaterThanOrEqual(5);
  });

  it('cuts coloured pieces where a hit begins and ends', () => {
    const writer = new TokenWriter();
    writer.add('def', 1);
    writer.add(' foo', 0);
    const hits = search(['def foo'], 'f f');
    expect(pieces('def foo', 0, writer.end(), hits)).toEqual([
      { text: 'de', scope: 'keyword', hit: -1 },
      { text: 'f', scope: 'keyword', hit: 0 },
      { text: ' f', scope: '', hit: 0 },
      { text: 'oo', scope: '', hit: -1 },
    ]);
  });
});

/** A text of lines "0" … "3", the same for the same seed. */
function letters(seed: number, most = 12): string[] {
  let state = seed;
  const next = () => (state = (state * 48271) % 2147483647);
  return Array.from({ length: most > 100 ? most : next() % most }, () => String(next() % 4));
}

/** Length of the longest common subsequence, by the table of all prefixes. */
function longestCommon(a: string[], b: string[]): number {
  const table = a.map(() => b.map(() => 0));
  const at = (i: number, j: number) => table[i]?.[j] ?? 0;
  a.forEach((x, i) =>
    b.forEach((y, j) => {
      table[i]![j] = x === y ? at(i - 1, j - 1) + 1 : Math.max(at(i - 1, j), at(i, j - 1));
    }),
  );
  return at(a.length - 1, b.length - 1);
}

describe('diff', () => {
  const left = ['a', 'b', 'c', 'd'];
  const right = ['a', 'B', 'c', 'd', 'e'];
  it('pairs changed lines and keeps both numberings', () => {
    const rows = diffRows(left, right);
    expect(rows).toEqual([
      { kind: 'same', left: 0, right: 0 },
      { kind: 'changed', left: 1, right: 1 },
      { kind: 'same', left: 2, right: 2 },
      { kind: 'same', left: 3, right: 3 },
      { kind: 'added', left: -1, right: 4 },
    ]);
    expect(countChanges(rows)).toEqual({ hunks: 2, removed: 1, added: 2 });
    expect(diffRows(right, left).at(-1)).toEqual({ kind: 'removed', left: 4, right: -1 });
    expect(diffRows([], [])).toEqual([]);
  });

  it('folds long equal stretches, but keeps what is around a change', () => {
    const many = Array.from({ length: 100 }, (_, i) => `line ${i}`);
    const changed = many.with(50, 'other');
    const rows = diffRows(many, changed)!;
    const shown = foldEqual(rows);
    expect(shown[0]).toEqual({ from: 0, to: 46 });
    expect(shown.slice(1, 10)).toEqual(rows.slice(46, 55));
    expect(shown.at(-1)).toEqual({ from: 55, to: 100 });
    expect(changeStarts(shown)).toEqual([5]);
    expect(foldEqual(rows, 4, new Set([0]))[0]).toBe(rows[0]);
    expect(foldEqual(diffRows(many, many))).toEqual([{ from: 0, to: 100 }]);
  });

  it('puts what went above what came where there is one column', () => {
    const rows = diffRows(['a', 'b', 'c', 'd'], ['a', 'B', 'C', 'd', 'e']);
    expect(
      inOneColumn(rows).map((row) => 'kind' in row && [row.kind, row.left, row.right, row.counterpart]),
    ).toEqual([
      ['same', 0, 0, undefined],
      ['removed', 1, -1, 1],
      ['removed', 2, -1, 2],
      ['added', -1, 1, 1],
      ['added', -1, 2, 2],
      ['same', 3, 3, undefined],
      ['added', -1, 4, -1],
    ]);
  });

  it('finds as many common lines as there are', () => {
    for (let seed = 1; seed <= 200; seed++) {
      const [a, b] = [letters(seed), letters(seed + 1000)];
      expect(commonLines(a, b).length).toBe(longestCommon(a, b));
    }
  });

  it('goes on where a round ends, and loses no line', () => {
    for (let seed = 1; seed <= 100; seed++) {
      const [a, b] = [letters(seed, 60), letters(seed + 1000, 60)];
      const rows = diffRows(a, b);
      const pairs = commonLines(a, b, undefined, 1 + (seed % 5));
      expect(pairs.every(([i, j]) => a[i] === b[j])).toBe(true);
      expect(pairs.every(([i, j], k) => k === 0 || (i > pairs[k - 1]![0] && j > pairs[k - 1]![1]))).toBe(
        true,
      );
      expect(rows.flatMap(({ left }) => (left < 0 ? [] : [left]))).toEqual(a.map((_, i) => i));
      expect(rows.flatMap(({ right }) => (right < 0 ? [] : [right]))).toEqual(b.map((_, i) => i));
    }
  });

  it('ends soon when two long texts have nearly nothing in common, and says how far it is', () => {
    const [a, b] = [letters(1, 5000), letters(2, 5000)];
    const fractions: number[] = [];
    const begun = performance.now();
    const pairs = commonLines(a, b, (fraction) => fractions.push(fraction));
    expect(performance.now() - begun).toBeLessThan(10_000);
    expect(pairs.length).toBeGreaterThan(1500);
    expect(fractions.at(-1)).toBeGreaterThan(0.9);
    expect(fractions).toEqual([...fractions].sort((x, y) => x - y));
  });

  it('marks what differs within a line', () => {
    expect(cutAtDifference('relu_1 = relu(x)', 'relu_2 = relu(x)')).toEqual(['relu_', '1', ' = relu(x)']);
    expect(cutAtDifference('aa', 'a')).toEqual(['a', 'a', '']);
    expect(cutAtDifference('all of this', 'is something else')).toEqual(['all of this', '', '']);
  });
});
