/** The table of break sites. */
import type { Compile, GraphBreakSite, Span } from '../../api/types';
import { location, shortPath, significant } from '../../widgets/format';
import { BREAK_KINDS } from '../../names/words';
import type { Column } from '../../table/table';

const NOT_RUN = 'Its cost is unknown; a click on the row tells why';
const NO_STEP = `${NOT_RUN}; or no steps were marked`;

/**
 * Columns that have values: reasons need a log, costs a trace, and direct costs per step need steps. The direct cost is
 * shown where no cost is predicted.
 */
export function siteColumns(compile: Compile | null, span: Span | null): Column<GraphBreakSite>[] {
  const steps = (span?.steps.length ?? 0) > 0;
  const present = (key: string) =>
    ['file', 'compile_ids'].includes(key) ||
    (['source', 'kind', 'reason'].includes(key) ? compile : span) !== null;
  const predicted = span?.graph_break_sites.some((site) => site.saves_us !== null) ?? false;
  const cost = ['saves_us', 'saves_percent'];
  const direct = ['step_mean_us', 'step_gpu_idle_us', 'share_percent'];
  const inSteps = [...direct, 'calls_per_step'];
  const inSpan = ['host_us', 'gpu_idle_us', 'calls'];
  return COLUMNS.filter(({ key }) => present(key)).map((column) => ({
    ...column,
    hidden: [
      ...(steps ? inSpan : inSteps),
      ...(predicted ? [...direct, 'host_us', 'gpu_idle_us'] : cost),
      'compile_ids',
    ].includes(column.key),
  }));
}

const COLUMNS: Column<GraphBreakSite>[] = [
  {
    key: 'file',
    label: 'Line',
    value: (r) => location(r.file, r.line),
    show: (r) => location(shortPath(r.file, 1), r.line),
    title: (r) => location(r.file, r.line),
  },
  {
    key: 'kind',
    label: 'Kind',
    value: (r) => r.kind && BREAK_KINDS[r.kind],
  },
  { key: 'saves_us', label: 'Cost per step', bar: true, unknown: NOT_RUN },
  { key: 'saves_percent', label: '% of the step', unknown: NOT_RUN },
  {
    key: 'step_mean_us',
    label: 'Direct cost per step',
    bar: true,
    unknown: NO_STEP,
  },
  { key: 'share_percent', label: 'Direct cost, % of the profiled step', unknown: NO_STEP },
  { key: 'host_us', label: 'Direct cost in all' },
  {
    key: 'step_gpu_idle_us',
    label: 'GPU idle',
    total: 'sum',
    scaleWith: 'step_mean_us',
    unknown: `${NO_STEP}, or there is no GPU`,
  },
  {
    key: 'gpu_idle_us',
    label: 'GPU idle in all',
    total: 'sum',
    unknown: `${NOT_RUN}, or there is no GPU`,
  },
  {
    key: 'calls_per_step',
    label: 'Calls a step',
    kind: 'count',
    show: (r) => significant(r.calls_per_step!),
    unknown: NO_STEP,
  },
  { key: 'calls', label: 'Calls', kind: 'count' },
  {
    key: 'source',
    label: 'Source',
    value: (r) => r.source?.trim() ?? null,
    grow: 1,
  },
  { key: 'reason', label: 'Reason', value: (r) => r.reason || null, grow: 1, title: (r) => r.reason },
  {
    key: 'compile_ids',
    label: 'Compilations',
    value: (r) => r.compile_ids.join(', '),
  },
];
