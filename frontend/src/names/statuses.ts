/** What came of a compilation, in words; the colour only repeats them. */
import type { Status } from '../api/types';

export type Tone = 'good' | 'warn' | 'bad' | 'muted';

const STATUS: Record<Status, [word: string, tone: Tone, help: string]> = {
  ok: ['compiled', 'good', 'One graph, without a graph break'],
  break: [
    'graph break',
    'warn',
    'Compiled up to a graph break; the rest of the frame is compiled as another one',
  ],
  empty: ['no graph', 'muted', 'Nothing in this frame was worth a graph: it runs as plain Python'],
  recovered: ['recovered', 'muted', 'Compiled before recording began: known only from what torch keeps'],
  unfinished: [
    'unfinished',
    'warn',
    'Its end was not recorded: the process may have ended while it compiled',
  ],
  failed: ['failed', 'bad', 'An error while compiling'],
  limit: ['limit hit', 'bad', 'Compiled too often: from here on this frame runs eager'],
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

export const statusHelp = (status: Status): string => STATUS[status][2];

/** How many of each, the worst first: "1 failed, 4 with a graph break, 9 compiled". */
export function statusesInOrder(counts: Partial<Record<Status, number>>): [status: Status, n: number][] {
  const order: Status[] = ['failed', 'limit', 'unfinished', 'break', 'ok', 'empty', 'recovered'];
  return order.flatMap((status) => (counts[status] ? [[status, counts[status]]] : []));
}
