/** Break sites: what the log says of a break, joined to what it costs when the program runs. */
import type { Compile, GraphBreak, GraphBreakSite, Span } from '../../api/types';
import { duration, location, percent, plural, shortPath, significant } from '../../widgets/format';
import { BREAK_KINDS } from '../../names/words';
import type { Column } from '../../table/table';

/** One row per site; `breaks` are the compilations that hit it. */
export interface SiteRow extends GraphBreakSite {
  key: string;
  source: string | null;
  breaks: GraphBreak[];
}

const sameSite = (site: GraphBreakSite) => (b: GraphBreak) =>
  b.file === site.file && b.line === site.line && b.reason === site.reason;

/** Without a trace the sites are those of the log, none with a price. */
export function siteRows(compile: Compile | null, span: Span | null): SiteRow[] {
  const reported = compile?.graph_breaks ?? [];
  const sites = span ? [...span.graph_break_sites, ...unplaced(span, reported)] : logSites(reported);
  return sites.map((site) => {
    const breaks = reported.filter(sameSite(site));
    const key = `${site.file}:${site.line ?? ''}:${site.reason}`;
    return { ...site, key, breaks, source: breaks.find((b) => b.source)?.source ?? null };
  });
}

/** Breaks that no compile id claims (recovered from counters) are in the log's list only. */
function unplaced(span: Span, reported: GraphBreak[]): GraphBreakSite[] {
  return logSites(reported.filter((b) => !span.graph_break_sites.some((site) => sameSite(site)(b))));
}

function logSites(reported: GraphBreak[]): GraphBreakSite[] {
  const sites = new Map<string, GraphBreakSite>();
  for (const b of reported) {
    const key = `${b.file}:${b.line ?? ''}:${b.reason}`;
    const site = sites.get(key) ?? {
      ...NO_PRICE,
      file: b.file,
      line: b.line,
      reason: b.reason,
      kind: b.kind,
      compile_ids: [],
    };
    if (!site.compile_ids.includes(b.compile_id)) site.compile_ids = [...site.compile_ids, b.compile_id];
    sites.set(key, site);
  }
  return [...sites.values()];
}

const NO_PRICE = {
  calls: null,
  calls_per_step: null,
  host_us: null,
  step_mean_us: null,
  step_median_us: null,
  step_p95_us: null,
  step_gpu_idle_us: null,
  share_percent: null,
  gpu_idle_us: null,
  first_us: null,
  last_us: null,
};

/** "4 graph break sites cost 555 µs a step, 9.22 % of it." */
export function verdict(rows: SiteRow[], span: Span | null): { strong: string; rest: string } {
  const what = plural(rows.length, 'graph break site');
  const priced = rows.filter((row) => row.host_us !== null);
  if (!span) return { strong: what, rest: '. Without a trace there is no price.' };
  if (span.graph_break_costs === null)
    return { strong: what, rest: '. Their price is not known: see below.' };
  if (priced.length === 0) return { strong: what, rest: ', none executed inside this span.' };
  const steps = span.steps.length;
  if (steps === 0) {
    const host = priced.reduce((sum, row) => sum + row.host_us!, 0);
    return {
      strong: `${what} cost ${duration(host)}`,
      rest: ' of host time in this span (no steps were marked).',
    };
  }
  const host = priced.reduce((sum, row) => sum + (row.step_mean_us ?? 0), 0);
  const share = priced.reduce((sum, row) => sum + (row.share_percent ?? 0), 0);
  return {
    strong: `${what} cost ${duration(host)} a step`,
    rest: `, ${percent(share)} of it (mean of ${steps}).`,
  };
}

const NOT_RUN = 'It was not executed inside this span';
const NO_STEP = `${NOT_RUN}, or no steps were marked`;

/** Those that can say something: a log tells reasons, a trace prices, and those of a step where there are steps. */
export function siteColumns(compile: Compile | null, span: Span | null): Column<SiteRow>[] {
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

const COLUMNS: Column<SiteRow>[] = [
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
    unknown: 'There is no compile log',
  },
  {
    key: 'step_mean_us',
    label: 'Per step',
    kind: 'us',
    help: 'Host time from the end of the graph before the break to the start of the one after it; mean over the steps',
    value: (r) => r.step_mean_us,
    bar: true,
    total: 'sum',
    unknown: NO_STEP,
  },
  {
    key: 'step_median_us',
    label: 'Median',
    kind: 'us',
    help: 'Median over the steps',
    value: (r) => r.step_median_us,
    scaleWith: 'step_mean_us',
    unknown: NO_STEP,
  },
  {
    key: 'step_p95_us',
    label: 'p95',
    kind: 'us',
    help: '95th percentile over the steps',
    value: (r) => r.step_p95_us,
    scaleWith: 'step_mean_us',
    unknown: NO_STEP,
  },
  {
    key: 'share_percent',
    label: '% of steps',
    kind: 'percent',
    value: (r) => r.share_percent,
    total: 'sum',
    unknown: NO_STEP,
  },
  { key: 'host_us', label: 'Total', kind: 'us', value: (r) => r.host_us, total: 'sum', unknown: NOT_RUN },
  {
    key: 'step_gpu_idle_us',
    label: 'GPU idle',
    kind: 'us',
    help: 'How long in a step no device did anything while the break lasted; mean over the steps',
    value: (r) => r.step_gpu_idle_us,
    total: 'sum',
    scaleWith: 'step_mean_us',
    unknown: `${NO_STEP}, or there is no GPU`,
  },
  {
    key: 'gpu_idle_us',
    label: 'GPU idle in all',
    kind: 'us',
    help: 'How long no device did anything while the break lasted, all calls together',
    value: (r) => r.gpu_idle_us,
    total: 'sum',
    unknown: `${NOT_RUN}, or there is no GPU`,
  },
  {
    key: 'calls_per_step',
    label: 'Calls a step',
    kind: 'count',
    value: (r) => r.calls_per_step,
    show: (r) => significant(r.calls_per_step!),
    unknown: NO_STEP,
  },
  {
    key: 'calls',
    label: 'Calls',
    kind: 'count',
    value: (r) => r.calls,
    unknown: NOT_RUN,
  },
  {
    key: 'source',
    label: 'Source',
    value: (r) => r.source?.trim() ?? null,
    unknown: 'The text of this line was not recorded',
    grow: 1,
  },
  { key: 'reason', label: 'Reason', value: (r) => r.reason || null, grow: 1, title: (r) => r.reason },
  {
    key: 'compile_ids',
    label: 'Compilations',
    value: (r) => r.compile_ids.join(', '),
    help: 'Compile ids whose graph broke here',
  },
];
