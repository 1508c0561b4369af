import { expect, test } from 'vitest';
import type { Operator } from '../../src/api/types';
import { operatorColumns } from '../../src/panels/operators/operator_rows';
import { haystack, parseSort, sortRows } from '../../src/table/table';
import { searchIndices } from '../../src/widgets/search';

const row = (i: number): Operator => ({
  name: `aten::op_${(i * 7919) % 997}`,
  kind: 'operator',
  part: `[[${i}, 256], [256, 768]]`,
  calls: 2,
  self_host_us: (i * 7919) % 9973,
  host_us: 9,
  self_device_us: 4,
  device_us: 4,
  matrix_us: 4,
  tensor_core_us: 3,
  self_cpu_memory_bytes: 0,
  cpu_memory_bytes: 0,
  self_device_memory_bytes: -64,
  device_memory_bytes: 64,
  flops: 5,
  mean_us: 4.5,
  step_percent: 1,
  tensor_core_percent: 75,
});
const rows = Array.from({ length: 10_000 }, (_, i) => row(i));
const recorded = { shapes: true, stacks: false, memory: true, labels: false, gpu: true };
const columns = operatorColumns({ headline: '', split: 'shape', rows, recorded });

test('ten thousand operators are sorted and searched', () => {
  const sorted = sortRows(rows, columns, parseSort('-self_host_us'));
  expect(sorted[0]!.self_host_us).toBe(9972);
  const texts = rows.map((one) => haystack(one, columns));
  expect(searchIndices(texts, 'op_996 [[')).toHaveLength(10);
});

test('columns are there for what was recorded, and for nothing else', () => {
  const shown = (kept: typeof recorded, one: Operator) =>
    operatorColumns({ headline: '', split: null, rows: [one], recorded: kept })
      .filter((column) => !column.hidden)
      .map((column) => column.key);
  expect(shown(recorded, rows[0]!)).toContain('self_device_memory_bytes');
  expect(columns[1]!.key).toBe('part');
  const bare = { ...row(0), device_us: null, matrix_us: null, flops: null, device_memory_bytes: null };
  expect(shown({ ...recorded, gpu: false }, bare)).toEqual([
    'name',
    'self_host_us',
    'step_percent',
    'host_us',
    'calls',
  ]);
});
