import { describe, expect, it } from 'vitest';
import type { HostPart } from '../../src/api/types';
import { hostParts, idsOf } from '../../src/panels/findings/what_if_parts';
import { toWhatIf } from '../../src/links/addresses';
import { toggled } from '../../src/widgets/search';

const part = (cause: HostPart['cause'], time_us: number, name = '', file = '', line = 0): HostPart => ({
  cause,
  name,
  file,
  line,
  time_us,
});

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

describe('ticks', () => {
  it('are ids in the address, whatever is written in them', () => {
    const ids = ['cuda_graphs', 'synchronise:aten::item:train.py:3, a & b'];
    const { fixes } = toWhatIf(ids);
    expect(idsOf(fixes!)).toEqual(ids);
    expect(idsOf('')).toEqual([]);
    expect([...toggled(new Set(ids), ids[0]!)]).toEqual([ids[1]]);
    expect([...toggled(new Set([ids[1]!]), ids[0]!)]).toEqual([ids[1], ids[0]]);
  });
});
