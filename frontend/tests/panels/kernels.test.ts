import { expect, test } from 'vitest';
import { haystack } from '../../src/table/table';
import type { DevicePeak, Kernel } from '../../src/api/types';
import { groupRows, KERNEL_COLUMNS, rowOfBefore } from '../../src/panels/kernels/kernel_rows';
import { arithmeticChart, memoryChart } from '../../src/panels/kernels/roofline';

const peak = {
  bandwidth_gb_s: 4000,
  bf16_tflop_s: 1000,
  tf32_tflop_s: null,
  fp32_tflop_s: null,
} as DevicePeak;

function row(name: string, achieved: Partial<Kernel['achieved']>): Kernel {
  const nothing = { bandwidth_gb_s: null, bandwidth_from: null, tflop_s: null, flop_per_byte: null };
  return { name, time_us: 10, achieved: { ...nothing, precision: null, ...achieved } } as Kernel;
}

test('a kernel stands on the ceiling that it reaches, and above it where a cache feeds it', () => {
  const moves = (name: string, bandwidth_gb_s: number, bytes_per_launch: number) =>
    row(name, { bandwidth_gb_s, bytes_per_launch, bandwidth_from: 'inductor' });
  const rows = [moves('full', 4000, 1e6), moves('cached', 8000, 1e5), moves('slow', 40, 1e3)];
  const copy = row('copy', { bandwidth_gb_s: 20, bytes_per_launch: 10, bandwidth_from: 'copy' });
  const chart = memoryChart([...rows, copy, row('unknown', {})], peak);
  expect(chart.dots.map((dot) => dot.row.name)).toEqual(['full', 'cached', 'slow']);
  const [full, cached, slow] = chart.dots;
  expect(chart.ceilings).toEqual([expect.objectContaining({ label: '4000 GB/s', y: full!.y })]);
  expect(cached!.y).toBeLessThan(full!.y);
  expect(slow!.x).toBeLessThan(cached!.x);
});

test('arithmetic is drawn where operations are known, under the slope of memory and the level of its type', () => {
  const rows = [
    row('gemm', { bandwidth_gb_s: 1000, tflop_s: 1000, flop_per_byte: 1000, precision: 'bf16' }),
    row('thin', { bandwidth_gb_s: 4000, tflop_s: 40, flop_per_byte: 10, precision: 'bf16' }),
    row('pointwise', { bandwidth_gb_s: 4000 }),
  ];
  const chart = arithmeticChart(rows, peak);
  const [gemm, thin] = chart.dots;
  expect(chart.dots).toHaveLength(2);
  const roof = chart.ceilings[0]!;
  expect(roof.label).toBe('BF16 1000 TFLOP/s');
  expect(roof.y).toBe(gemm!.y);
  const [x0, y0, x1, y1] = roof.path.match(/[\d.]+/g)!.map(Number);
  expect(thin!.y).toBeCloseTo(y0! + ((thin!.x - x0!) / (x1! - x0!)) * (y1! - y0!), 6);
});

test('a kernel above the peak is marked, not clipped', () => {
  const column = KERNEL_COLUMNS.find(({ key }) => key === 'bandwidth_percent')!;
  const shown = [153.26, 99.94, 0.01].map((bandwidth_percent) =>
    column.show!({ bandwidth_percent } as Kernel),
  );
  expect(shown).toEqual(['▴ 153.3', '99.9', '<0.1']);
});

const kernel = (name: string, time_us: number, modules: string[], more: Partial<Kernel> = {}) =>
  ({
    name,
    category: 'gemm',
    device: 0,
    share_percent: time_us,
    wall_percent: time_us,
    time_us,
    launches: 2,
    min_us: time_us / 4,
    max_us: time_us / 2,
    modules,
    ...more,
  }) as unknown as Kernel;

test('groups are sums; what belongs to none is one of its own', () => {
  const rows = [kernel('a', 8, ['up']), kernel('b', 4, ['up']), kernel('c', 2, [], { category: 'aten' })];
  const [up, none] = groupRows(rows, 'module');
  expect([up!.time_us, up!.launches, up!.min_us, up!.max_us, up!.wall]).toEqual([12, 4, 1, 4, 12]);
  expect(none!.key).toBe('(not known)');
  expect(groupRows(rows, 'category').map((group) => [group.key, group.rows.length])).toEqual([
    ['GEMM', 2],
    ['ATen', 1],
  ]);
});

test('without known peaks there are dots and no ceiling', () => {
  const unknown = { ...peak, bandwidth_gb_s: null, bf16_tflop_s: null };
  const one = row('a', { bandwidth_gb_s: 100, bytes_per_launch: 10, tflop_s: 1, flop_per_byte: 2 });
  for (const chart of [memoryChart([one], unknown), arithmeticChart([one], unknown)]) {
    expect(chart.dots).toHaveLength(1);
    expect(chart.ceilings).toEqual([]);
  }
});

test('a search looks at rows without a number too', () => {
  const row = {
    ...{ name: 'triton_poi_fused_add_0', category: 'triton_pointwise', bandwidth_percent: null },
    ...{ lines: [], aten_ops: [], achieved: { bandwidth_gb_s: null } },
  } as unknown as Kernel;
  expect(haystack(row, KERNEL_COLUMNS)).toContain('fused_add');
});

test('an address of before, with whole names and graph keys or without the latter, finds its row', () => {
  const name = `void at::native::${'vectorized_elementwise_kernel<4, '.repeat(20)}x>`;
  const known = {
    device: 0,
    name,
    compile_id: '0/0',
    graph_key: 'fd3gcxno4tmsn4n4p2lujmnxc4tt5ez3szcl4k6x2',
  };
  const rows = [{ ...known, name: `${name}y` }, known] as unknown as Kernel[];
  expect(rowOfBefore(rows, `0,${name},0/0,${known.graph_key}`)).toBe(rows[1]);
  expect(rowOfBefore(rows, `0,${name}`)).toBe(rows[1]);
  expect(rowOfBefore(rows, `1,${name}`)).toBeUndefined();
});
