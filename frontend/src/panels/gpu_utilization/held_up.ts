/** What held a GPU up, as a table. */
import type { HeldUp } from '../../api/types';
import { HOST_CAUSES, hostHelp } from '../../names/host_causes';
import type { Column } from '../../table/table';
import { location, shortPath } from '../../widgets/format';
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
    help: 'Of the device’s idle time in the steps',
    bar: true,
    total: 'sum',
  },
  { key: 'cause', label: 'What', show: (r) => HOST_CAUSES[r.cause][0] },
  {
    key: 'line',
    label: 'Your line',
    value: (r) => (r.file ? location(shortPath(r.file, 1), r.line) : null),
    title: (r) => (r.file ? location(r.file, r.line) : ''),
    unknown: 'No Python stack tells it: record with with_stack=True',
  },
  { key: 'calls', label: 'Calls', kind: 'count', unknown: 'Nothing was recorded' },
  { key: 'pattern', label: 'When', value: (r) => r.pattern || null, unknown: 'There is one step' },
  { key: 'longest_us', label: 'Longest', unknown: 'Nothing was recorded', scaleWith: 'idle_us' },
];
