/** What the picture shows, in words. */
import { count, plural } from '../../widgets/format';
import { exact } from '../../widgets/timeline/paint';
import type { LaidLane } from '../../widgets/timeline/lanes';
import type { Reader } from '../../widgets/timeline/read';
import { time } from './looks';

export interface Words {
  text: string;
  /** The colours that are in view, by number. */
  colors: number[];
}

export function inWords(read: Reader, lanes: Pick<LaidLane, 'id' | 'title' | 'look'>[]): Words {
  const { from, to } = read.view;
  const colors = new Set<number>();
  const lines = lanes.map(({ id, title, look }) => {
    if (look === 'plot') return `${title}: a plot`;
    const tally = read.tally(id, colors);
    if (!tally) return `${title}: further down`;
    const { slices, names } = tally;
    if (slices === 0) return `${title}: nothing in view`;
    const more = slices > names.length ? ' …' : '';
    return `${title}: ${plural(slices, look === 'marks' ? 'mark' : 'slice')} (${names.join(', ')}${more})`;
  });
  const head = `${time(to - from)} in view, from ${exact(from)} to ${exact(to)}, on ${count(lanes.length)} lanes.`;
  return {
    text: [head, ...lines.map((line) => `${line}.`)].join(' '),
    colors: [...colors].sort((a, b) => a - b),
  };
}
