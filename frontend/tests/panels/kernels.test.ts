import { expect, test } from 'vitest';
import type { DevicePeak, Kernel } from '../../src/api/types';
import { arithmeticChart, memoryChart } from '../../src/panels/kernels/roofline';

const peak = {
  bandwidth_gb_s: 4000,
  bf16_tflop_s: 1000,
  tf32_tflop_s: null,
  fp32_tflop_s: null,
} as DevicePeak;

function row(name: string, achieved: Partial<Kernel>): Kernel {
  const nothing = { bandwidth_gb_s: null, bandwidth_from: null, tflop_s: null, flop_per_byte: null };
  return { name, time_us: 10, ...nothing, precision: null, ...achieved } as Kernel;
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

test('without known peaks there are dots and no ceiling', () => {
  const unknown = { ...peak, bandwidth_gb_s: null, bf16_tflop_s: null };
  const one = row('a', { bandwidth_gb_s: 100, bytes_per_launch: 10, tflop_s: 1, flop_per_byte: 2 });
  for (const chart of [memoryChart([one], unknown), arithmeticChart([one], unknown)]) {
    expect(chart.dots).toHaveLength(1);
    expect(chart.ceilings).toEqual([]);
  }
});
