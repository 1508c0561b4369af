import { describe, expect, it } from 'vitest';
import type { HostPart, Scenario, StepLength } from '../../src/api/types';
import { clock, combinedWords, hostParts, idsOf, slowed, toggled } from '../../src/panels/what_if/parts';
import { toWhatIf } from '../../src/links/places';

const part = (cause: HostPart['cause'], time_us: number, name = '', file = '', line = 0): HostPart => ({
  cause,
  name,
  file,
  line,
  time_us,
});
const spaced = (text: string) => text.replaceAll('\u202f', ' ');

describe('the picture of a step', () => {
  const graph = '## Call CompiledFxGraph fd3gcxno4tmsn4n4p2lujmnxc4tt5ez3szcl4k6x2 ##';

  it('tells culprits by name and place, and the rest of their cause', () => {
    const parts = hostParts([
      part('python', 6420, 'train.py(89): log', '/home/user/train.py', 89),
      part('python', 44),
      part('graph', 631, graph),
      part('launch', 476),
    ]);
    expect(parts.map(({ label }) => label)).toEqual([
      'train.py(89): log at …/train.py:89',
      'other Python',
      'compiled graph fd3gcxno…',
      'launch calls',
    ]);
    expect(new Set(parts.map(({ key }) => key)).size).toBe(4);
    expect(parts.reduce((sum, { value }) => sum + value, 0)).toBe(7571);
  });
});

describe('the sentence', () => {
  const step = { device: 0, recorded_us: 42500, unrecorded_us: 9800 } as StepLength;

  it('says on whose clock, and what recording cost', () => {
    expect(clock(step)).toBe('on GPU 0’s clock');
    expect(clock({ ...step, device: null })).toBe('on the host’s clock');
    expect(spaced(slowed(step))).toContain('slowed it from 9.80 ms to 42.5 ms');
    expect(slowed({ ...step, unrecorded_us: null })).toBe('');
    expect(slowed({ ...step, unrecorded_us: 43000 })).toBe('');
  });

  it('counts the fixes and gives bounds', () => {
    const combined = { step_us: 13355, after_us: 1520, low_us: 1500, high_us: 1710 };
    const words = combinedWords({ combined, picked: ['a', 'b'] } as Scenario);
    expect(words.map(spaced)).toEqual(['1.52 ms', ' with 2 fixes (1.50–1.71 ms).']);
  });
});

describe('ticks', () => {
  it('are ids in the address, whatever is written in them', () => {
    const ids = ['cuda_graphs', 'synchronise:aten::item:train.py:3, a & b'];
    const { fixes } = toWhatIf(ids);
    expect(idsOf(fixes!)).toEqual(ids);
    expect(idsOf('')).toEqual([]);
    expect(toggled(ids, 'cuda_graphs')).toEqual([ids[1]]);
    expect(toggled([ids[1]!], 'cuda_graphs')).toEqual([ids[1], ids[0]]);
  });
});
