import { expect, test } from 'vitest';
import { readPins, writePins } from '../../src/panels/timeline/address';

test('pins come back out of the address, commas in notes too; what is no pin is left out', () => {
  const pins = [
    { slice: '6310,8', at: 2001123, note: 'here, look' },
    { slice: '1,0', at: -5, note: '' },
  ];
  expect(readPins(writePins(pins)!)).toEqual(pins);
  expect(readPins('x,y\n6310,8,1,ok')).toEqual([{ slice: '6310,8', at: 1, note: 'ok' }]);
  expect(writePins([])).toBeNull();
});
