/** One shape for whatever is compared row by row, so that one table shows it all. */
import type { ComparedTables, Comparison, Pair } from '../../api/types';
import {
  bytes,
  count,
  duration,
  percent,
  seconds,
  signed,
  significant,
  THIN,
  UNKNOWN,
} from '../../widgets/format';
import { FIGURES } from '../../names/words';
import type { Column, Kind } from '../../table/table';
import { categoryLabel, deviceLabel } from '../../names/categories';

export interface Row {
  name: string;
  short?: string;
  what: string;
  change: string;
  pairs: Pair[];
  /** What stands behind the row on each side, in the drawer. */
  a?: string[];
  b?: string[];
  ids?: Comparison['compilations'][number];
}

interface Measure {
  key: string;
  label: string;
  kind: Kind;
}

export interface TableOf {
  key: string;
  label: string;
  /** What the column of names and the one beside it say. */
  heads: [name: string, what: string];
  measures: Measure[];
  rows: Row[];
}

const measure = (key: string, label: string, kind: Kind = 'us'): Measure => ({ key, label, kind });
const pair = (a: number | null, b: number | null): Pair => ({
  a,
  b,
  delta: a === null || b === null ? null : b - a,
});

/** By its first number, a time. */
export function changeOf({ a, b, delta }: Pair): string {
  if (!a !== !b) return a ? 'vanished' : 'appeared';
  return !delta ? 'equal' : delta < 0 ? 'faster' : 'slower';
}

const row = (name: string, what: string, pairs: Pair[], more: Partial<Row> = {}): Row => ({
  ...{ name, what, pairs, change: changeOf(pairs[0]!) },
  ...more,
});

/** As a tree is written. */
const indented = (path: string) => {
  const names = path.split('/');
  return '\u2003'.repeat(names.length - 1) + names.at(-1);
};

const unique = (names: string[]) => [...new Set(names)].join(', ');

export function tables(comparison: Comparison, more: ComparedTables): TableOf[] {
  return [
    {
      ...{ key: 'kernels', label: 'Kernels', heads: ['Kernels of', 'Category'] },
      measures: [measure('time_us', 'Time'), measure('launches', 'Launches', 'count')],
      rows: more.kernels.map(({ a, b, category }) =>
        row(
          unique([...a.operators, ...b.operators]) || unique([...a.kernels, ...b.kernels]),
          categoryLabel(category),
          [pair(a.time_us, b.time_us), pair(a.launches, b.launches)],
          { a: a.kernels, b: b.kernels },
        ),
      ),
    },
    {
      ...{ key: 'categories', label: 'Categories', heads: ['Category', ''] },
      measures: [measure('time_us', 'Time'), measure('launches', 'Launches', 'count')],
      rows: comparison.kernel_categories.map((r) =>
        row(categoryLabel(r.category), '', [r.time_us, r.launches]),
      ),
    },
    {
      ...{ key: 'operators', label: 'Operators', heads: ['Operator', 'Kind'] },
      measures: [
        measure('self_host_us', 'Self host'),
        measure('self_device_us', 'Self GPU'),
        measure('calls', 'Calls', 'count'),
      ],
      rows: more.operators.map((r) => row(r.name, r.kind, [r.self_host_us, r.self_device_us, r.calls])),
    },
    {
      ...{ key: 'modules', label: 'Modules', heads: ['Module', ''] },
      measures: [measure('host_us', 'Host'), measure('device_us', 'GPU'), measure('calls', 'Calls', 'count')],
      rows: more.modules.map((r) =>
        row(r.path, '', [r.host_us, r.device_us, r.calls], { short: indented(r.path) }),
      ),
    },
    {
      ...{ key: 'compilations', label: 'Compilations', heads: ['Function', 'Direction'] },
      measures: [measure('duration_s', 'Time', 's'), measure('graph_ops', 'Graph ops', 'count')],
      rows: comparison.compilations.map((r) =>
        row(r.function, r.direction, [r.duration_s, pair(r.a?.graph_ops ?? null, r.b?.graph_ops ?? null)], {
          ids: r,
          change: r.a ? (r.b ? changeOf(r.duration_s) : 'vanished') : 'appeared',
        }),
      ),
    },
  ];
}

/** Each number as A, B and the change from A to B. */
export function columns({ heads, measures, rows }: TableOf): Column<Row>[] {
  const sides = [
    ['a', ' A'],
    ['b', ' B'],
    ['delta', ' change'],
  ] as const;
  return [
    {
      key: 'name',
      label: heads[0],
      value: (r) => r.name,
      show: (r) => r.short ?? r.name,
      title: (r) => [r.name, ...(r.a ?? []), ...(r.b ?? [])].join('\n'),
      grow: 2,
    },
    ...(heads[1] ? [{ key: 'what', label: heads[1], value: (r: Row) => r.what }] : []),
    { key: 'change', label: 'Change', value: (r) => r.change },
    ...(rows[0]?.ids
      ? [
          {
            key: 'code',
            label: 'Code',
            value: (r: Row) => (r.ids?.a && r.ids.b ? 'Compare code' : null),
            unknown: 'Only one side has it',
          },
        ]
      : []),
    ...measures.flatMap(({ key, label, kind }, i) =>
      sides.map(([side, word]): Column<Row> => ({
        key: `${key}_${side}`,
        label: label + word,
        kind,
        scaleWith: `${key}_a`,
        value: (r) => r.pairs[i]![side],
        unknown: 'Not recorded on a side',
        hidden: (i > 0 && side === 'delta') || rows.every((r) => r.pairs[i]![side] === null),
        // What modules took holds what those inside of them took.
        total: /^(time|self)/.test(key) ? 'sum' : undefined,
      })),
    ),
  ];
}

const textOf = (name: string): ((value: number) => string) =>
  name.endsWith('_us')
    ? duration
    : name.endsWith('_s')
      ? seconds
      : name.endsWith('_percent')
        ? percent
        : name.endsWith('_bytes')
          ? bytes
          : count;

/** A number in words: A, B, and the change. The name's end is its unit. */
function words(name: string, { a, b, delta }: Pair): [a: string, b: string, change: string] {
  const text = textOf(name);
  const share = text === percent;
  const change = share ? (size: number) => `${significant(size)} points` : text;
  const part = (size: number) => `${significant(size)}${THIN}%`;
  const shown = (value: number | null) => (value === null ? UNKNOWN : text(value));
  const more = delta && a && !share ? ` (${signed((100 * delta) / a, part)})` : '';
  return [shown(a), shown(b), delta ? signed(delta, change) + more : delta === null ? UNKNOWN : 'equal'];
}

/** "13.6 ms → 13.0 ms, −550 µs (−4.04 %)" */
export function pairWords(name: string, pair: Pair): string {
  const [a, b, change] = words(name, pair);
  return `${a} → ${b}, ${change}`;
}

/** Each figure: its name, A, B, and the change; step times with their standard deviation. */
export function figureRows({ figures, step_time }: Comparison, memory: ComparedTables['memory']): string[][] {
  const known = figures.map(({ name, value }) => [FIGURES[name], ...words(name, value)]);
  if (step_time && known[0])
    [step_time.a, step_time.b].forEach(({ deviation_us }, i) => {
      known[0]![i + 1] += deviation_us === null ? '' : ` ± ${duration(deviation_us)}`;
    });
  const peaks = memory.flatMap(({ device, peak_bytes, reserved_bytes }) => [
    { label: `Peak memory, ${deviceLabel(device)}`, value: peak_bytes },
    { label: `Peak reserved, ${deviceLabel(device)}`, value: reserved_bytes },
  ]);
  const recorded = peaks.filter(({ value }) => value.a !== null || value.b !== null);
  return [...known, ...recorded.map(({ label, value }) => [label, ...words('peak_bytes', value)])];
}
