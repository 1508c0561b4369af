/** The table of break sites. */
import type { Compile, GraphBreakSite, Span } from '../../../api/types';
import { location, shortPath, significant } from '../../../widgets/format';
import { BREAK_KINDS } from '../../../names/words';
import type { Column } from '../../../table/table';

const NOT_RUN = 'No price is known; a click on the row tells why';
const NO_STEP = `${NOT_RUN}; or no steps were marked`;

/** Columns that have values: reasons need a log, prices a trace, and prices per step need steps. */
export function siteColumns(compile: Compile | null, span: Span | null): Column<GraphBreakSite>[] {
  const steps = (span?.steps.length ?? 0) > 0;
  const present = (key: string) =>
    ['file', 'compile_ids'].includes(key) ||
    (['source', 'kind', 'reason'].includes(key) ? compile : span) !== null;
  const inSteps = ['step_mean_us', 'step_p95_us', 'step_gpu_idle_us', 'share_percent', 'calls_per_step'];
  const inSpan = ['host_us', 'gpu_idle_us', 'calls'];
  return COLUMNS.filter(({ key }) => present(key)).map((column) => ({
    ...column,
    hidden: [...(steps ? inSpan : inSteps), 'step_median_us', 'compile_ids'].includes(column.key),
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
  {
    key: 'step_mean_us',
    label: 'Per step',
    bar: true,
    total: 'sum',
    unknown: NO_STEP,
  },
  {
    key: 'step_median_us',
    label: 'Median',
    scaleWith: 'step_mean_us',
    unknown: NO_STEP,
  },
  {
    key: 'step_p95_us',
    label: 'p95',
    scaleWith: 'step_mean_us',
    unknown: NO_STEP,
  },
  { key: 'share_percent', label: '% of steps', total: 'sum', unknown: NO_STEP },
  { key: 'host_us', label: 'Total', total: 'sum' },
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
