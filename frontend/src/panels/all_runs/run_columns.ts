/** All runs as a table. */
import type { RunRow } from '../../api/types';
import type { Column } from '../../table/table';
import { dateTime, duration, signed, significant, THIN } from '../../widgets/format';

const compile = (r: RunRow) => r.why_unknown.compile;
const change = (value: number) => signed(value, (size) => `${significant(size)}${THIN}%`);

export const runName = (run: string) => (run === '.' ? '(logdir itself)' : run);

/** Whether there is a trace that was not opened yet. */
export const unread = (r: RunRow) => !r.read && r.span !== null;

export function runColumns(pin: string): Column<RunRow>[] {
  return [
    {
      key: 'run',
      label: 'Run',
      show: (r) => runName(r.run),
      inset: 24,
    },
    { key: 'step_us', label: 'Step', unknown: (r) => r.why_unknown.step },
    {
      key: 'deviation_us',
      label: '±',
      value: (r) => r.times?.deviation_us ?? null,
      scaleWith: 'step_us',
      unknown: (r) => r.why_unknown.step || 'Fewer than two steps were marked',
    },
    {
      key: 'change_percent',
      label: 'vs pinned',
      show: (r) =>
        r.change_percent === null ? '' : change(r.change_percent) + (r.within_noise ? ' (noise)' : ''),
      hidden: !pin,
    },
    {
      key: 'gpu_busy_percent',
      label: 'Busy, %',
      unknown: (r) => r.why_unknown.gpu,
    },
    { key: 'compiled_percent', label: 'Compiled, %', unknown: (r) => r.why_unknown.trace },
    {
      key: 'finding',
      label: 'First finding',
      value: (r) => r.finding ?? (unread(r) ? 'not read yet' : null),
      title: (r) => r.finding ?? '',
      grow: 1,
    },
    { key: 'compile_s', label: 'Compile', unknown: compile },
    { key: 'graph_breaks', label: 'Breaks', kind: 'count', unknown: compile },
    { key: 'recompiles', label: 'Recompiles', kind: 'count', unknown: compile },
    {
      key: 'recorded_s',
      label: 'Recorded',
      show: (r) => dateTime(r.recorded_s ?? 0),
      hidden: true,
    },
    { key: 'ranks', label: 'Ranks', kind: 'count', hidden: true },
  ];
}

/** What is known of a run, for its drawer. */
export const runFacts = (r: RunRow) => [
  {
    label: 'Step',
    value: r.step_us === null ? null : duration(r.step_us),
    unknown: r.why_unknown.step || undefined,
  },
  {
    label: 'Steps',
    value: r.times
      ? `${r.times.steps}: ${duration(r.times.min_us)} to ${duration(r.times.max_us)}, median ${duration(r.times.median_us)}`
      : null,
    unknown: r.why_unknown.step || 'No steps were marked: profile with a schedule',
  },
  { label: 'Ranks', value: String(r.ranks) },
  { label: 'Recorded', value: r.recorded_s === null ? null : dateTime(r.recorded_s), unknown: 'No trace' },
];
