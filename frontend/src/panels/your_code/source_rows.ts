/** The program's lines with their gutter. */
import type { Program, ProgramLine } from '../../api/types';
import type { Column } from '../../table/table';
import { plural } from '../../widgets/format';

/** "/home/user/train.py:27" → "train.py:27". */
export const shortPlace = (key: string) => key.split('/').pop()!;
export const placeOf = ({ key }: ProgramLine) => shortPlace(key);
/** Without a text, return the function that the line is in. */
export const codeOf = ({ text, function: name, whole_function }: ProgramLine): string | null =>
  text?.trim() ?? (name ? (whole_function ? `${name} as a whole` : `in ${name}`) : null);

/** Count the breaks, recompiles and guards of a line. */
const markWords = (row: ProgramLine): [string, number][] => [
  [plural(row.breaks.length, 'break'), row.breaks.length],
  [plural(row.recompiles.length, 'recompile'), row.recompiles.length],
  [
    plural(
      row.guards.reduce((sum, { guards }) => sum + guards, 0),
      'guard',
    ),
    row.guards.length,
  ],
];

const HOST_FROM = {
  stacks: 'While the function was the innermost one of yours, its backward included',
  launches: 'The calls that launched its kernels: stacks, which tell more, were not recorded',
};
const NO_LAUNCH = 'No kernel is known to compute it';

export function sourceColumns({ host_from, has_steps, rows }: Program): Column<ProgramLine>[] {
  const each = has_steps ? 'a step' : 'in this span';
  const kernels = (key: 'forward_us' | 'backward_us', label: string): Column<ProgramLine> => ({
    key,
    label,
    bar: true,
    total: 'sum',
    scaleWith: 'kernel_us',
    help: `Kernel time ${each}; a kernel of several lines counts for each in equal parts`,
    unknown: NO_LAUNCH,
  });
  return [
    { key: 'line', label: 'Line', value: (r) => r.key, show: placeOf, title: (r) => r.key },
    kernels('forward_us', 'Forward'),
    kernels('backward_us', 'Backward'),
    { key: 'kernel_us', label: 'Both', total: 'sum', hidden: true },
    { key: 'share_percent', label: '% of kernels', total: 'sum', hidden: true },
    {
      key: 'host_us',
      label: 'Host',
      help: host_from ? HOST_FROM[host_from] : undefined,
      total: 'sum',
      unknown: host_from === 'stacks' ? 'Stacks tell functions, not lines' : NO_LAUNCH,
    },
    {
      key: 'above_floor_us',
      label: 'Above floor',
      hidden: rows.every((row) => row.above_floor_us === null),
    },
    {
      key: 'kernels',
      label: 'Kernels',
      kind: 'count',
      value: (r) => r.kernels.length || null,
    },
    {
      key: 'text',
      label: 'Your code',
      value: codeOf,
      title: (r) =>
        [r.text?.trim() ?? r.why_no_text, ...r.shared.map(({ key }) => `shared with ${key}`)].join('\n'),
      unknown: (r) => r.why_no_text ?? '',
      grow: 2,
    },
    {
      key: 'marks',
      label: 'torch.compile',
      value: (r) =>
        markWords(r)
          .filter(([, n]) => n)
          .map(([text]) => text)
          .join(', ') || null,
      title: (r) => [...r.breaks, ...r.recompiles].map(({ reason }) => reason).join('\n'),
    },
  ];
}
