import { describe, expect, it } from 'vitest';
import {
  bytes,
  count,
  dateTime,
  duration,
  location,
  percent,
  boldPieces,
  plural,
  predicted,
  seconds,
  sentence,
  shortPath,
  THIN,
  significant,
} from '../../src/widgets/format';

const spaced = (text: string) => text.replaceAll('\u202f', ' ');

describe('predictions', () => {
  const foretold = { step_us: 13355.4, after_us: 2802.2, low_us: 2722, high_us: 3042.1 };

  it('are a time now, one after, and bounds where they differ', () => {
    expect(spaced(predicted(foretold))).toBe('13.4 ms → 2.8 ms (2.7–3.0 ms)');
    expect(spaced(predicted({ ...foretold, low_us: 2802, high_us: 2803 }))).toBe('13.4 ms → 2.8 ms');
  });

  it('have bounds of one unit', () => {
    expect(spaced(predicted({ step_us: 2000, after_us: 990, low_us: 480, high_us: 1100 }))).toBe(
      '2.00 ms → 990 µs (0.48–1.1 ms)',
    );
  });
});

describe('numbers', () => {
  it.each([
    [0, '0'],
    [7.0866, '7.09'],
    [12.87, '12.9'],
    [454.8, '455'],
    [0.71284, '0.713'],
    [9.9999, '10.0'],
    [1234.6, '1,235'],
    [-4.2, '-4.20'],
  ])('shows %d with three digits', (value, text) => expect(significant(value)).toBe(text));

  it.each([
    [0, '0 µs'],
    [0.32, '0.320 µs'],
    [455.098, '455 µs'],
    [999.6, '1.00 ms'],
    [7086.66, '7.09 ms'],
    [4_556_525.5, '4.56 s'],
    [101.24e6, '101 s'],
    [1500e6, '25.0 min'],
    [7200e6, '2.00 h'],
  ])('scales %d µs', (us, text) => expect(spaced(duration(us))).toBe(text));

  it('says "–" for what is not known, never 0', () => {
    expect(duration(null)).toBe('–');
    expect(seconds(undefined)).toBe('–');
    expect(percent(null)).toBe('–');
    expect(location(null, 3)).toBe('–');
  });

  it.each([
    [0, '0 %'],
    [2.609, '2.61 %'],
    [12.87, '12.9 %'],
    [99.97, '100 %'],
    [0.004, '< 0.01 %'],
  ])('shows %d as a share', (value, text) => expect(spaced(percent(value))).toBe(text));

  it('counts, sizes and plurals', () => {
    expect(count(362203)).toBe('362,203');
    expect([0, 999, 2_364_853, 815e6].map(bytes).map(spaced)).toEqual(['0 B', '999 B', '2.36 MB', '815 MB']);
    expect([plural(1, 'launch', 'launches'), plural(2, 'launch', 'launches')]).toEqual([
      '1 launch',
      '2 launches',
    ]);
  });
});

describe('places', () => {
  it('shortens paths from the left', () => {
    expect(shortPath('/home/user/train/capture.py')).toBe('…/train/capture.py');
    expect(shortPath('/home/user/train/capture.py', 1)).toBe('…/capture.py');
    expect(shortPath('capture.py')).toBe('capture.py');
    expect(location('a.py', null)).toBe('a.py');
  });

  it('makes sentences of what the server says', () => {
    expect(sentence('the trace is cut off')).toBe('The trace is cut off.');
    expect(sentence('Reload later.')).toBe('Reload later.');
    expect(sentence(' ')).toBe('');
  });

  it('writes dates so that they sort', () =>
    expect(dateTime(1795230236)).toMatch(/^2026-11-\d\d \d\d:\d\d:\d\d$/));
});

describe('boldPieces', () => {
  const bold = (text: string) => boldPieces(text).filter((_, i) => i % 2);

  it('finds numbers with their units, and what bounds a step', () => {
    expect(bold('Step 22.4 ms (median of 3) · GPU busy 1.2–12.9 % → launch bound.')).toEqual([
      `22.4${THIN}ms`,
      '3',
      `1.2–12.9${THIN}%`,
      'launch bound',
    ]);
    expect(bold('from 8.32 ms to 14.8 ms: host times')).toEqual([`8.32${THIN}ms`, `14.8${THIN}ms`]);
  });

  it('leaves the index of an input alone', () => {
    expect(bold("for 8 sizes of L['x'].size()[0] (17, 24)")).toEqual(['8', '17', '24']);
  });

  it('leaves what ends a clause alone', () => {
    expect(bold('Step 1,024 ms (mean of 39, told by it); the guard that failed: s == 0.0.')).toEqual([
      `1,024${THIN}ms`,
      '39',
      '0.0',
    ]);
  });

  it('leaves names alone', () => {
    expect(bold('none inside ProfilerStep#3, 0/0 at train.py:27 of conv2d')).toEqual([]);
  });
});
