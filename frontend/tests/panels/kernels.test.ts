import { expect, test } from 'vitest';
import { haystack } from '../../src/table/table';
import type { DevicePeak, Kernel } from '../../src/api/types';
import { groupRows } from '../../src/panels/kernels/kernel_groups';
import { KERNEL_COLUMNS } from '../../src/panels/kernels/kernel_rows';
import { HEIGHT, roofline, WIDTH } from '../../src/panels/kernels/roofline';

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

test('a kernel stands on the roof that it reaches, and above it where a cache feeds it', () => {
  const rows = [
    row('gemm', { bandwidth_gb_s: 10, tflop_s: 1000, flop_per_byte: 1000, precision: 'bf16' }),
    row('at the peak', { bandwidth_gb_s: 4000, bandwidth_from: 'inductor' }),
    row('cached', { bandwidth_gb_s: 8000, bandwidth_from: 'inductor' }),
    row('copy', { bandwidth_gb_s: 20, bandwidth_from: 'copy' }),
    row('unknown', {}),
  ];
  const chart = roofline(rows, peak);
  expect(chart.dots.map((dot) => dot.row.name)).toEqual(['gemm', 'at the peak', 'cached']);
  const [gemm, full, cached] = chart.dots;
  const roof = chart.roofs[0]!;
  expect(roof.label).toBe('BF16 1000 TFLOP/s');
  expect(roof.path).toContain(`${gemm!.y}H${WIDTH - 10}`);
  const [x0, y0, x1, y1] = roof.path.match(/[\d.]+/g)!.map(Number);
  const onSlope = y0! + ((full!.x - x0!) / (x1! - x0!)) * (y1! - y0!);
  expect(full!.y).toBeCloseTo(onSlope, 6);
  expect(cached!.y).toBeLessThan(full!.y);
  expect(full!.counted).toBe(false);
});

test('a kernel above the peak is marked, not clipped', () => {
  const column = KERNEL_COLUMNS.find(({ key }) => key === 'bandwidth_percent')!;
  const shown = [153.26, 99.94, 0.01].map((bandwidth_percent) =>
    column.show!({ bandwidth_percent } as Kernel),
  );
  expect(shown).toEqual(['▴ 153.3', '99.9', '<0.1']);
});

test('a kernel that moves next to nothing stands at the edge', () => {
  const chart = roofline(
    [
      row('fast', { bandwidth_gb_s: 4000, bandwidth_from: 'inductor' }),
      row('tiny', { bandwidth_gb_s: 1e-4, bandwidth_from: 'inductor' }),
    ],
    peak,
  );
  expect(chart.ys.length).toBeLessThan(11);
  expect(chart.dots[1]!.y).toBeLessThanOrEqual(HEIGHT);
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

test('without known peaks there are dots and no roofs', () => {
  const chart = roofline([row('a', { bandwidth_gb_s: 100, bandwidth_from: 'shapes' })], null);
  expect([chart.dots.length, chart.roofs.length]).toEqual([1, 0]);
  expect(Number.isFinite(chart.dots[0]!.y)).toBe(true);
});

test('a search looks at rows without a number too', () => {
  const row = {
    ...{ name: 'triton_poi_fused_add_0', category: 'triton_pointwise', bandwidth_percent: null },
    ...{ lines: [], aten_ops: [], achieved: { bandwidth_gb_s: null } },
  } as unknown as Kernel;
  expect(haystack(row, KERNEL_COLUMNS)).toContain('fused_add');
});
