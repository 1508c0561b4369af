/** The table of operators: torch's `key_averages()`, and its splits. */
import type { Operator, Operators } from '../../api/types';
import type { Column } from '../../table/table';

export const SPLITS = [
  { key: '', label: 'By name', part: '' },
  { key: 'shape', label: 'Input shapes', part: 'Input shapes' },
  { key: 'call_site', label: 'Call site', part: 'Called in' },
  { key: 'label', label: 'Label', part: 'Label' },
  { key: 'compilation', label: 'Compiled or eager', part: 'Compile id' },
] as const;
export type Split = (typeof SPLITS)[number]['key'];

export const operatorKey = (row: Operator) => [row.name, row.kind, row.part ?? ''].join(',');

const NO_GPU = 'The trace has no GPU events';
const NO_MEMORY = 'Profile with profile_memory=True';

/** whole: what their shares are of. */
export function operatorColumns(answer: Operators, whole = 'steps'): Column<Operator>[] {
  const { recorded, rows, split } = answer;
  const device = !recorded.gpu;
  const cpuMemory = !rows.some((row) => row.cpu_memory_bytes);
  const gpuMemory = !rows.some((row) => row.device_memory_bytes);
  const us = (key: string, label: string, more: Partial<Column<Operator>> = {}) => ({
    key,
    label,
    kind: 'us' as const,
    value: (row: Operator) => row[key as keyof Operator] as number | null,
    unknown: NO_GPU,
    ...more,
  });
  const bytes = (key: keyof Operator, label: string, hidden: boolean, total?: 'sum') => ({
    key,
    label,
    kind: 'bytes' as const,
    help: 'Allocated less freed while it ran',
    value: (row: Operator) => row[key] as number | null,
    unknown: NO_MEMORY,
    hidden,
    total,
  });
  const columns: Column<Operator>[] = [
    { key: 'name', label: 'Operator', value: (row) => row.name, grow: 2 },
    { key: 'kind', label: 'Kind', value: (row) => row.kind, hidden: true },
    us('self_host_us', 'Self host', { bar: true, total: 'sum', help: 'Without what it called' }),
    {
      key: 'step_percent',
      label: `% of ${whole}`,
      kind: 'percent',
      help: 'Its own host time; threads run side by side',
      value: (row) => row.step_percent,
    },
    us('host_us', 'Host', { help: 'With all that it called' }),
    { key: 'calls', label: 'Calls', kind: 'count', value: (row) => row.calls, total: 'sum' },
    us('mean_us', 'Mean', { hidden: true, help: 'Host time a call' }),
    us('self_device_us', 'Self GPU', {
      bar: true,
      total: 'sum',
      hidden: device,
      help: 'GPU work that it launched itself',
    }),
    us('device_us', 'GPU', { hidden: device }),
    {
      key: 'tensor_core_percent',
      label: '% tensor cores',
      kind: 'percent',
      help: 'Of its own kernels that multiply matrices, by their names',
      value: (row) => row.tensor_core_percent,
      unknown: 'No name of its kernels tells',
      hidden: !rows.some((row) => row.matrix_us),
    },
    bytes('self_cpu_memory_bytes', 'Self CPU memory', cpuMemory, 'sum'),
    bytes('cpu_memory_bytes', 'CPU memory', true),
    bytes('self_device_memory_bytes', 'Self GPU memory', gpuMemory, 'sum'),
    bytes('device_memory_bytes', 'GPU memory', true),
    {
      key: 'flops',
      label: 'GFLOPs',
      kind: 'count',
      help: 'By torch’s own rules',
      value: (row) => row.flops,
      show: (row) => (row.flops ? (row.flops / 1e9).toPrecision(3) : ''),
      unknown: 'Profile with record_shapes=True',
      hidden: !rows.some((row) => row.flops),
    },
  ];
  if (split) {
    columns.splice(1, 0, {
      key: 'part',
      label: SPLITS.find(({ key }) => key === split)!.part,
      value: (row) => row.part,
      unknown: split === 'compilation' ? 'Eager, or the compilation is not known' : 'Not known',
      grow: 1,
    });
  }
  return columns;
}
