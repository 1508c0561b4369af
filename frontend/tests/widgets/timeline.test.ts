import { describe, expect, it, vi } from 'vitest';
import { rgb } from '../../src/widgets/timeline/ink';
import { layLanes, readLanes, writeLanes, type LaneLook } from '../../src/widgets/timeline/lanes';
import { Motion } from '../../src/widgets/timeline/motion';
import { exact } from '../../src/widgets/timeline/paint';
import { neighbour, Reader } from '../../src/widgets/timeline/read';
import { after, decode, lengthOf, levelFor, Tiles, type Fetch } from '../../src/widgets/timeline/tiles';
import { tickStep, around, kept, moved, zoomed } from '../../src/widgets/canvas/view';

type Row = [lane: number, line: number, start: number, dur: number, name: string, count?: number];
const SIZES: Record<string, [size: number, array: new (values: number[]) => { buffer: ArrayBufferLike }]> = {
  u1: [1, Uint8Array],
  u2: [2, Uint16Array],
  i4: [4, Int32Array],
  i5: [5, Uint32Array],
  f4: [4, Float32Array],
  f8: [8, Float64Array],
};

/** What the server would answer: see docs/reference/routes.md. */
function encode(
  rows: Row[],
  points: [lane: number, at: number, value: number][] = [],
  from = 0,
): ArrayBuffer {
  const names = [...new Set(rows.map((row) => row[4]))];
  const pick = (k: 0 | 1 | 2 | 3) => rows.map((row) => row[k]);
  const values = points.map((point) => point[2]);
  const columns: Record<string, [dtype: string, values: number[]]> = {
    lane: ['u2', pick(0)],
    depth: ['u2', pick(1)],
    start: ['i5', pick(2)],
    dur: ['f8', pick(3)],
    name: ['i4', rows.map((row) => names.indexOf(row[4]))],
    color: ['u1', rows.map(() => 0)],
    count: ['i4', rows.map((row) => row[5] ?? 1)],
    busy: ['u2', rows.map(() => 65535)],
    row: ['i4', rows.map((_, i) => 100 + i)],
    counter_lane: ['u2', points.map((point) => point[0])],
    counter_start: ['f8', points.map((point) => point[1])],
    counter_max: ['f4', values],
    counter_last: ['f4', values],
  };
  let offset = 0;
  const header: Record<string, unknown> = {};
  for (const [name, [dtype, column]] of Object.entries(columns)) {
    header[name] = { dtype, offset, length: column.length };
    offset += Math.ceil((column.length * SIZES[dtype]![0]) / 8) * 8;
  }
  let json = JSON.stringify({ aligned: [from, from + 1], bucket_ns: 1, names, columns: header });
  json += ' '.repeat((8 - ((4 + new TextEncoder().encode(json).length) % 8)) % 8);
  const head = new TextEncoder().encode(json);
  const bytes = new Uint8Array(4 + head.length + offset);
  new DataView(bytes.buffer).setUint32(0, head.length, true);
  bytes.set(head, 4);
  for (const [name, [dtype, column]] of Object.entries(columns)) {
    const place = 4 + head.length + (header[name] as { offset: number }).offset;
    if (dtype === 'i5') {
      const high = column.map((value) => Math.floor(value / 2 ** 32));
      bytes.set(
        new Uint8Array(Uint32Array.from(column, (value, i) => value - high[i]! * 2 ** 32).buffer),
        place,
      );
      bytes.set(new Uint8Array(Int8Array.from(high).buffer), place + 4 * column.length);
    } else bytes.set(new Uint8Array(new SIZES[dtype]![1](column).buffer), place);
  }
  return bytes.buffer;
}

const lane = (id: number, lines = 1, look: LaneLook['look'] = 'slices'): LaneLook => ({
  id,
  title: `lane ${id}`,
  group: '',
  look,
  lines,
  unit: '',
  note: '',
  later: false,
});

describe('the view', () => {
  const all = { from: -1000, to: 9000 };
  it('zooms around a time and stays inside', () => {
    expect(zoomed({ from: 0, to: 1000 }, 0.5, 1000, all)).toEqual({ from: 500, to: 1000 });
    expect(zoomed({ from: 0, to: 1000 }, 100, 500, all)).toEqual(all);
    expect([tickStep(100, 10), tickStep(99, 3), tickStep(7, 5)]).toEqual([10, 50, 2]);
    expect(zoomed({ from: 0, to: 100 }, 0.001, 50, all)).toEqual({ from: 25, to: 75 });
    expect(moved({ from: 0, to: 1000 }, -5000, all)).toEqual({ from: -1000, to: 0 });
    expect(kept({ from: 8500, to: 9500 }, all)).toEqual({ from: 8000, to: 9000 });
    expect(around(100, 100, all)).toEqual({ from: 75, to: 125 });
  });

  it('moves while a key is held, and a step for a tap', () => {
    const motion = new Motion();
    expect([motion.press('d'), motion.press('x')]).toEqual([true, false]);
    const tapped = motion.after({ from: 0, to: 1000 }, 0, 500, all, 'd');
    expect(tapped.from).toBeGreaterThan(50);
    expect(tapped.to - tapped.from).toBe(1000);
    const held = motion.after({ from: 0, to: 1000 }, 16, 500, all);
    expect(held.from).toBeGreaterThan(0);
    expect(held.from).toBeLessThan(tapped.from);
    motion.release('d');
    expect(motion.moving).toBe(false);
  });

  it('says times in full', () => {
    expect([1234567891, -1500, 0].map((ns) => exact(ns).replace('\u202f', ' '))).toEqual([
      '1.234567891 s',
      '-1.5 µs',
      '0 µs',
    ]);
  });
});

it('takes colours as they are written and as they are shortened', () => {
  expect([rgb('#ffffff'), rgb('#fff'), rgb('#5a96d2')]).toEqual([
    [255, 255, 255],
    [255, 255, 255],
    [90, 150, 210],
  ]);
});

describe('windows', () => {
  it('are read by lane and line, with empty lines and lanes in between', () => {
    const parts = decode(
      encode(
        [
          [2, 0, 10, 5, 'a'],
          [2, 2, 11, 1, 'b', 7],
          [2, 2, 13, 1, 'a'],
          [5, 0, 0, 1, 'c'],
        ],
        [
          [3, 0, 1],
          [3, 8, 4],
        ],
      ),
      [2, 3, 4, 5],
    );
    expect([...parts.values()].map(({ lines }) => lines)).toEqual([[0, 1, 1, 3], [], [], [3, 4]]);
    expect([...parts.values()].map(({ first, end }) => [first, end])).toEqual([
      [0, 0],
      [0, 2],
      [0, 0],
      [0, 0],
    ]);
    const { window } = parts.get(2)!;
    expect([window.names[window.name[1]!], window.count[1], window.row[2]]).toEqual(['b', 7, 102]);
    expect(Array.from(parts.get(3)!.window.greatest)).toEqual([1, 4]);
  });

  it('come in the shortest types, times from the start of the window', () => {
    const times = [-4e9, 12, 5e9];
    const parts = decode(encode(times.map((time) => [0, 0, time, 1, 'a'])), [0]);
    expect([...parts.get(0)!.window.start]).toEqual(times);
    const low = new Uint8Array(encode([[0, 0, 7, 1, 'a']], [], 1000));
    expect([...decode(low.buffer, [0]).get(0)!.window.start]).toEqual([1007]);
  });

  it('are found by time', () => {
    expect([-1, 0, 1, 5].map((value) => after([0, 1, 1, 5], value, 0, 4))).toEqual([0, 1, 3, 4]);
    expect([levelFor({ from: 0, to: 1e6 }, 1000), levelFor({ from: 0, to: 100 }, 1000)]).toEqual([10, 0]);
  });
});

/** A server of a trace: slices of 100 ns every 200 ns on two lines, the second one half as long. */
function trace(all: { from: number; to: number }) {
  const asked: { from: number; to: number; lanes: number[]; signal: AbortSignal }[] = [];
  const answers: (() => void)[] = [];
  const fetch: Fetch = (from, to, _width, lanes, signal) => {
    asked.push({ from, to, lanes, signal });
    const rows: Row[] = lanes.flatMap((id) =>
      [0, 1].flatMap((line) => {
        const rows: Row[] = [];
        const first = Math.max(all.from, Math.floor(from / 200) * 200);
        for (let start = first; start < Math.min(to, all.to); start += 200)
          if (start + 100 > from) rows.push([id, line, start, line ? 50 : 100, `${id}.${line}.${start}`]);
        return rows;
      }),
    );
    return new Promise((resolve) => answers.push(() => resolve(encode(rows))));
  };
  const settle = async () => {
    while (answers.length > 0) {
      answers.splice(0).forEach((answer) => answer());
      await new Promise((done) => setTimeout(done));
    }
  };
  return { fetch, asked, settle };
}

describe('tiles', () => {
  const all = { from: -10_000, to: 50_000 };
  const view = { from: 2000, to: 3000 };

  it('are asked for nearest first, and drawn coarser until they come', async () => {
    const { fetch, asked, settle } = trace(all);
    const changed = vi.fn();
    const tiles = new Tiles(all, fetch, changed, () => undefined);
    expect(tiles.root).toBe(6);
    tiles.want(view, 1000, [0, 1]);
    expect(asked.map(({ from, to }) => [from, to])).toEqual([
      [1024, 2048],
      [2048, 3072],
      [-65536, 0],
    ]);
    expect(tiles.complete(view, 1000, [0, 1])).toBe(false);
    await settle();
    expect(changed).toHaveBeenCalled();
    expect(tiles.complete(view, 1000, [0, 1])).toBe(true);
    expect(tiles.get(0, 2, 7)).toBeUndefined();
    tiles.want(view, 1000, [0, 1]);
    await settle();
    tiles.want(view, 1000, [0, 1]);
    await settle();
    // Everything that is beside the view is there: nothing is asked for twice.
    const before = asked.length;
    tiles.want(view, 1000, [0, 1]);
    expect(asked.length).toBe(before);
    expect(tiles.nearest(0, 40, 0)).toBe(tiles.get(6, 0, 0));
    // A lane more is asked for alone.
    tiles.want(view, 1000, [0, 1, 2]);
    expect(asked.at(-1)!.lanes).toEqual([2]);
  });

  it('that are of no use any more are not waited for', async () => {
    const { fetch, asked, settle } = trace(all);
    const tiles = new Tiles(
      all,
      fetch,
      () => undefined,
      () => undefined,
    );
    tiles.want(view, 1000, [0]);
    tiles.want({ from: 40_000, to: 41_000 }, 1000, [0]);
    expect(asked.slice(0, 2).map(({ signal }) => signal.aborted)).toEqual([true, true]);
    await settle();
    expect(tiles.get(0, 2, 0)).toBeUndefined();
  });

  it('that fail are asked for again, later', async () => {
    vi.useFakeTimers();
    const { fetch: working } = trace(all);
    const failed = vi.fn();
    const changed = vi.fn(() => tiles.want(view, 1000, [0]));
    let broken = true;
    const fetch = vi.fn<Fetch>((...asked) => {
      if (broken) return Promise.reject(new Error('gone'));
      void working(...asked);
      return Promise.resolve(encode([]));
    });
    const tiles: Tiles = new Tiles(all, fetch, changed, failed);
    tiles.want(view, 1000, [0]);
    await vi.advanceTimersByTimeAsync(1000);
    expect([fetch.mock.calls.length, failed.mock.calls.length]).toEqual([3, 3]);
    broken = false;
    await vi.advanceTimersByTimeAsync(4000);
    expect(failed).toHaveBeenLastCalledWith(null);
    expect(tiles.complete(view, 1000, [0])).toBe(true);
    vi.useRealTimers();
  });

  it('tell what is where, and what is next', async () => {
    const { fetch, settle } = trace(all);
    const tiles = new Tiles(
      all,
      fetch,
      () => undefined,
      () => undefined,
    );
    for (let n = 0; n < 4; n++) {
      tiles.want(view, 1000, [0, 1]);
      await settle();
    }
    const read = new Reader(tiles, view, 1000);
    expect(read.at(0, 0, 2050)?.name).toBe('0.0.2000');
    expect(read.at(0, 0, 2150)).toBeNull();
    expect(read.at(0, 0, 2198, 3)?.name).toBe('0.0.2200');
    expect(read.at(0, 0, 2102, 3)?.name).toBe('0.0.2000');
    const colors = new Set<number>();
    expect(read.tally(0, colors)).toEqual({ slices: 10, names: ['0.0.2000', '0.1.2000', '0.0.2200'] });
    expect(read.all(0, 3).length).toBe(3);
    // Every slice in view once, although the view spans two tiles.
    expect(
      read
        .all(1, 99)
        .map((slice) => slice.start)
        .sort((a, b) => a - b),
    ).toEqual([2000, 2200, 2400, 2600, 2800].flatMap((start) => [start, start]));
    const laid = layLanes([lane(0, 2), lane(1, 2)], usual([0, 1]), 0);
    const slice = read.at(0, 0, 2050)!;
    const go = (...steps: ('left' | 'right' | 'up' | 'down')[]) =>
      steps.reduce((from, step) => neighbour(read, laid, from, step) ?? from, slice).name;
    expect(go('right')).toBe('0.0.2200');
    expect(go('left')).toBe('0.0.1800');
    expect(go('down')).toBe('0.1.2000');
    expect(go('down', 'down')).toBe('1.0.2000');
    expect(go('down', 'down', 'up')).toBe('0.1.2000');
    expect(go('up')).toBe('0.0.2000');
    expect(neighbour(read, laid, null, 'down')?.lane).toBe(0);
    expect(lengthOf(3)).toBe(8192);
  });
});

function usual(order: number[]) {
  return { order, folded: new Set<number>(), hidden: new Set<number>() };
}

describe('lanes', () => {
  const lanes = [lane(0), lane(1, 3), lane(2, 1, 'plot'), lane(3)];

  it('stand below one another, folded ones on one line', () => {
    const laid = layLanes(lanes, { order: [3, 1, 0, 2], folded: new Set([1]), hidden: new Set([0]) }, 0);
    expect(laid.map(({ id, lines, height }) => [id, lines, height])).toEqual([
      [3, 1, 17],
      [1, 1, 17],
      [2, 1, 38],
    ]);
    expect(laid.map(({ top }) => top)).toEqual([0, 24, 48].map((top) => top + (laid[0]!.heads ? 3 : 0)));
  });

  it('keep their arrangement in the address', () => {
    const changed = { order: [3, 1, 0, 2], folded: new Set([1]), hidden: new Set([0]) };
    const text = writeLanes(changed, usual([0, 1, 2, 3]));
    expect(text).toBe('3,1f,0h,2');
    expect(readLanes(text, usual([0, 1, 2, 3]))).toEqual(changed);
    expect(writeLanes(usual([0, 1]), usual([0, 1]))).toBe('');
    // An address of another trace: what is not there is left out, what is not named comes last.
    expect(readLanes('9,1f', usual([0, 1])).order).toEqual([1, 0]);
    expect(readLanes('', usual([0, 1]))).toEqual(usual([0, 1]));
  });
});
