import { describe, expect, it } from 'vitest';
import { codeKey, parseCodeKey } from '../../src/names/compile_ids';
import { toCode, toHostCause } from '../../src/links/addresses';

describe('addresses of code', () => {
  it('name the compilation, its epoch, the text and the line', () => {
    expect([codeKey({ compile_id: '0/0' }), codeKey({ compile_id: '!1/2/0', epoch: 2 })]).toEqual([
      '0/0',
      '!1/2/0,2',
    ]);
    expect(parseCodeKey('!1/2/0,2')).toEqual({ compile_id: '!1/2/0', epoch: 2 });
    expect(parseCodeKey('0/0')).toEqual({ compile_id: '0/0', epoch: 0 });
    expect(parseCodeKey('')).toBeNull();
    const address = toCode(
      { compile_id: '0/0' },
      { artifact: 0, line: 3, other: { key: { compile_id: '0/1' }, artifact: 7 } },
    );
    expect(address).toMatchObject({
      panel: 'generated_code',
      code: '0/0',
      artifact: '0',
      line: '3',
      code2: '0/1',
      artifact2: '7',
    });
  });
});

const PLAIN = new Event('click');
const SHIFT = Object.assign(new Event('click'), { shiftKey: true });

describe('what the host does', () => {
  it('leads to the list that it is in, searched for by its name', () => {
    expect(toHostCause('python', 'train.py(89): log', PLAIN)).toMatchObject({
      panel: 'your_code',
      'search.functions': 'train.py(89): log',
    });
    expect(toHostCause('operator', 'aten::mm', PLAIN)).toMatchObject({
      panel: 'operators',
      'search.operators': 'aten::mm',
    });
    expect(toHostCause('guards', '', PLAIN)).toMatchObject({ panel: 'compilations' });
    expect(toHostCause('waiting', '', PLAIN)).toMatchObject({
      section: 'ledger',
      'search.ledger': 'waiting for gpu',
    });
  });

  it('leads to its slices where no panel lists it, and with Shift', () => {
    expect(toHostCause('launch', 'cuLaunchKernel', PLAIN)).toMatchObject({
      panel: 'timeline',
      'search.timeline': 'cuLaunchKernel',
    });
    expect(toHostCause('operator', 'aten::mm', SHIFT)).toMatchObject({ 'search.timeline': 'aten::mm' });
    expect(toHostCause('nothing', '', SHIFT)).toMatchObject({
      'search.ledger': 'unaccounted',
    });
  });

  it('has a place for a name of any length', () => {
    expect(toHostCause('query', 'x'.repeat(900), PLAIN)['search.timeline']!.length).toBeLessThan(200);
  });
});
