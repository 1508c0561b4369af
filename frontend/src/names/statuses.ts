/** What came of a compilation, in words; the colour only repeats them. */
import { meaningOf } from '../api/meanings.svelte';
import type { Status } from '../api/types';

type Tone = 'good' | 'warn' | 'bad' | 'muted';

const STATUS: Record<Status, [word: string, tone: Tone]> = {
  ok: ['compiled', 'good'],
  break: ['graph break', 'warn'],
  empty: ['no graph', 'muted'],
  recovered: ['recovered', 'muted'],
  unfinished: ['unfinished', 'warn'],
  exported: ['exported', 'good'],
  elsewhere: ['compiled elsewhere', 'muted'],
  failed: ['failed', 'bad'],
  limit: ['limit hit', 'bad'],
};

export const statusWord = (status: Status): string => STATUS[status][0];

const COUNTED: Partial<Record<Status, string>> = {
  break: 'with a graph break',
  empty: 'without a graph',
  limit: 'hit the recompile limit',
};

/** "4 with a graph break" */
export function countedStatus(status: Status, n: number): string {
  return `${n} ${COUNTED[status] ?? statusWord(status)}`;
}

export const statusTone = (status: Status): Tone => STATUS[status][1];

export const statusHelp = (status: Status): string => meaningOf('statuses', status);

/** How many of each, the worst first: "1 failed, 4 with a graph break, 9 compiled". */
export function statusesInOrder(statuses: Status[]): [status: Status, n: number][] {
  const order: Status[] = [
    'failed',
    'limit',
    'unfinished',
    'break',
    'ok',
    'exported',
    'empty',
    'recovered',
    'elsewhere',
  ];
  return order
    .map((status): [Status, number] => [status, statuses.filter((other) => other === status).length])
    .filter(([, n]) => n > 0);
}
