import { expect, test } from 'vitest';
import type { PythonFunction } from '../../src/api/types';
import { stackLanes } from '../../src/panels/python/stacks';

const f = (name: string, whose: PythonFunction['whose']) => ({
  name,
  whose,
  file: null,
  line: null,
  calls: 1,
  self_us: 0,
  total_us: 0,
});

test('callers lie over what they called, the longest first, threads apart', () => {
  const lanes = stackLanes({
    recorded: true,
    functions: [f('main', 'yours'), f('short', 'library'), f('long', 'library')],
    frames: {
      name: [0, 1, 2, 0],
      parent: [-1, 0, 0, -1],
      thread: ['a', 'a', 'a', 'b'],
      calls: [1, 2, 3, 1],
      total_us: [100, 20, 60, 40],
    },
    left_out: 0,
    idle_threads: 0,
  });
  const drawn = lanes.map(({ slices }) => slices.map((s) => [s.name, s.start, s.end, s.depth]));
  expect(drawn).toEqual([
    [
      ['main', 0, 100, 0],
      ['long', 0, 60, 1],
      ['short', 60, 80, 1],
    ],
    [['main', 100, 140, 0]],
  ]);
});
