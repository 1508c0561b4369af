import { describe, expect, it } from 'vitest';
import { codeKey, parseCodeKey } from '../../src/names/compile_ids';
import { toCode } from '../../src/links/addresses';

describe('addresses of code', () => {
  it('name the compilation, its epoch, the text and the line', () => {
    expect([codeKey({ compile_id: '0/0' }), codeKey({ compile_id: '!1/2/0', epoch: 2 })]).toEqual([
      '0/0',
      '!1/2/0,2',
    ]);
    expect(parseCodeKey('!1/2/0,2')).toEqual({ compile_id: '!1/2/0', epoch: 2 });
    expect(parseCodeKey('0/0')).toEqual({ compile_id: '0/0', epoch: 0 });
    expect(parseCodeKey('')).toBeNull();
    const place = toCode(
      { compile_id: '0/0' },
      { artifact: 0, line: 3, other: { key: { compile_id: '0/1' }, artifact: 7 } },
    );
    expect(place).toMatchObject({
      panel: 'code',
      code: '0/0',
      artifact: '0',
      line: '3',
      code2: '0/1',
      artifact2: '7',
    });
  });
});
