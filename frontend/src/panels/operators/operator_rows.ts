/** The table of operators: torch's `key_averages()`, and its splits. */
import type { Operator, Operators } from '../../api/types';
import { toCompilation } from '../../links/addresses';
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
const MEMORY = { help: 'Allocated less freed while it ran', unknown: 'Profile with profile_memory=True' };

/** whole: what their shares are of. */
export function operatorColumns(answer: Operators, whole = 'steps'): Column<Operator>[] {
  const { recorded, rows, split } = answer;
  const device = !recorded.gpu;
  const cpuMemory = !rows.some((row) => row.cpu_memory_bytes);
  const gpuMemory = !rows.some((row) => row.device_memory_bytes);
  const columns: Column<Operator>[] = [
    { key: 'name', label: 'Operator', grow: 2 },
    { key: 'kind', label: 'Kind', hidden: true },
    { key: 'self_host_us', label: 'Self host', bar: true, total: 'sum', help: 'Without what it called' },
    { key: 'step_percent', label: `% of ${whole}`, help: 'Its own host time; threads run side by side' },
    { key: 'host_us', label: 'Host', help: 'With all that it called' },
    { key: 'calls', label: 'Calls', kind: 'count', total: 'sum' },
    { key: 'mean_us', label: 'Mean', hidden: true, help: 'Host time a call' },
    {
      key: 'self_device_us',
      label: 'Self GPU',
      bar: true,
      total: 'sum',
      hidden: device,
      help: 'GPU work that it launched itself',
      unknown: NO_GPU,
    },
    { key: 'device_us', label: 'GPU', hidden: device, unknown: NO_GPU },
    {
      key: 'tensor_core_percent',
      label: '% tensor cores',
      help: 'Of its own kernels that multiply matrices, by their names',
      unknown: 'No name of its kernels tells',
      hidden: !rows.some((row) => row.matrix_us),
    },
    { key: 'self_cpu_memory_bytes', label: 'Self CPU memory', hidden: cpuMemory, total: 'sum', ...MEMORY },
    { key: 'cpu_memory_bytes', label: 'CPU memory', hidden: true, ...MEMORY },
    { key: 'self_device_memory_bytes', label: 'Self GPU memory', hidden: gpuMemory, total: 'sum', ...MEMORY },
    { key: 'device_memory_bytes', label: 'GPU memory', hidden: true, ...MEMORY },
    {
      key: 'flops',
      label: 'GFLOPs',
      kind: 'count',
      help: 'By torch’s own rules',
      show: (row) => (row.flops ? (row.flops / 1e9).toPrecision(3) : ''),
      unknown: 'Profile with record_shapes=True',
      hidden: !rows.some((row) => row.flops),
    },
  ];
  if (split) {
    columns.splice(1, 0, {
      key: 'part',
      label: SPLITS.find(({ key }) => key === split)!.part,
      unknown: split === 'compilation' ? 'Eager, or the compilation is not known' : 'Not known',
      link: ({ part }) => (split === 'compilation' && part ? toCompilation({ compile_id: part }) : null),
      grow: 1,
    });
  }
  return columns;
}
