import { expect, test } from 'vitest';
import type { PythonFunction, PythonTime } from '../../src/api/types';
import { stackLanes } from '../../src/panels/your_code/stacks';

const f = (name: string, owner: PythonFunction['owner']): PythonFunction => ({
  key: name,
  slices: name,
  name,
  owner,
  file: null,
  line: null,
  calls: 1,
  self_us: 0,
  user_us: null,
  total_us: 0,
});

const time = (functions: PythonFunction[], frames: PythonTime['frames'], threads = ['a']): PythonTime => ({
  headline: '',
  note: '',
  recorded: true,
  functions,
  parts: {},
  threads,
  frames,
});

const drawn = (answer: PythonTime, opened: number[] = []) =>
  stackLanes(answer, new Set(opened)).map(({ slices }) =>
    slices.map((s) => [s.name, s.start, s.end, s.depth]),
  );

test('callers lie over what they called, the longest first, threads apart', () => {
  const answer = time(
    [f('main', 'yours'), f('short', 'library'), f('long', 'library')],
    {
      name: [0, 1, 2, 0],
      parent: [-1, 0, 0, -1],
      thread: [0, 0, 0, 1],
      calls: [1, 2, 3, 1],
      total_us: [100, 20, 60, 40],
    },
    ['a', 'b'],
  );
  expect(drawn(answer)).toEqual([
    [
      ['main', 0, 100, 0],
      ['long', 0, 60, 1],
      ['short', 60, 80, 1],
    ],
    [['main', 0, 40, 0]],
  ]);
});

test('what libraries call of libraries is folded until it is opened, what they call of yours is not', () => {
  const answer = time(
    [f('main', 'yours'), f('call', 'library'), f('inner', 'built in'), f('forward', 'yours')],
    {
      name: [0, 1, 2, 3, 2],
      parent: [-1, 0, 1, 2, 3],
      thread: [0, 0, 0, 0, 0],
      calls: [1, 1, 1, 1, 1],
      total_us: [100, 90, 80, 70, 5],
    },
  );
  expect(drawn(answer)).toEqual([
    [
      ['main', 0, 100, 0],
      ['call +1', 0, 90, 1],
      ['forward', 0, 70, 2],
      ['inner', 0, 5, 3],
    ],
  ]);
  expect(drawn(answer, [1])[0]!.map(([name]) => name)).toEqual(['main', 'call', 'inner', 'forward', 'inner']);
});
