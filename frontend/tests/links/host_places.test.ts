import { describe, expect, it } from 'vitest';
import { toHostCause } from '../../src/links/addresses';

const PLAIN = new Event('click');
const SHIFT = Object.assign(new Event('click'), { shiftKey: true });

describe('what the host does', () => {
  it('leads to the list that it is in, searched for by its name', () => {
    expect(toHostCause('python', 'train.py(89): log', PLAIN)).toMatchObject({
      panel: 'python',
      'search.functions': 'train.py(89): log',
    });
    expect(toHostCause('operator', 'aten::mm', PLAIN)).toMatchObject({
      panel: 'operators',
      'search.operators': 'aten::mm',
    });
    expect(toHostCause('guards', '', PLAIN)).toMatchObject({ panel: 'compiled_regions' });
    expect(toHostCause('waiting', '', PLAIN)).toMatchObject({ row: 'idle:synchronise', then: null });
  });

  it('leads to its slices where no panel lists it, and with Shift', () => {
    expect(toHostCause('launch', 'cuLaunchKernel', PLAIN)).toMatchObject({
      panel: 'timeline',
      'search.timeline': 'cuLaunchKernel',
    });
    expect(toHostCause('operator', 'aten::mm', SHIFT)).toMatchObject({ 'search.timeline': 'aten::mm' });
    expect(toHostCause('nothing', '', SHIFT)).toMatchObject({
      row: 'idle:nothing_launched',
      then: 'timeline',
    });
  });

  it('has a place for a name of any length', () => {
    expect(toHostCause('query', 'x'.repeat(900), PLAIN)['search.timeline']!.length).toBeLessThan(200);
  });
});
