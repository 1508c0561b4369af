/** What held a GPU up, as a table. */
import type { HeldUp } from '../../../api/types';
import { HOST_CAUSES, hostHelp } from '../../../names/host_causes';
import type { Column } from '../../../table/table';
import { location, shortPath } from '../../../widgets/format';
import { heldUpName } from './held_up_names';

export const HELD_UP_COLUMNS: Column<HeldUp>[] = [
  {
    key: 'name',
    label: 'Culprit',
    value: (r) => r.name || HOST_CAUSES[r.cause][0],
    show: heldUpName,
    title: (r) => `${HOST_CAUSES[r.cause][0]}: ${hostHelp(r.cause)}`,
    grow: 2,
  },
  { key: 'device', label: 'Device', kind: 'count', hidden: true },
  { key: 'idle_us', label: 'Idle', total: 'sum' },
  {
    key: 'share_percent',
    label: '% of idle',
    bar: true,
    total: 'sum',
  },
  {
    key: 'cause',
    label: 'What',
    show: (r) => HOST_CAUSES[r.cause][0],
    meaning: (r) => hostHelp(r.cause),
  },
  {
    key: 'line',
    label: 'Your line',
    value: (r) => (r.file ? location(shortPath(r.file, 1), r.line) : null),
    title: (r) => (r.file ? location(r.file, r.line) : ''),
  },
  { key: 'calls', label: 'Calls', kind: 'count' },
  { key: 'pattern', label: 'When', value: (r) => r.pattern || null },
  { key: 'longest_us', label: 'Longest', scaleWith: 'idle_us' },
];
