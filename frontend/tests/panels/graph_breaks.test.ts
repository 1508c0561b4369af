import { describe, expect, it } from 'vitest';
import type { Compile, GraphBreak, GraphBreakSite, Span } from '../../src/api/types';
import { siteRows, verdict } from '../../src/panels/graph_breaks/sites';

const brokenAt = (compile_id: string, line: number, reason = 'Data-dependent branching') =>
  ({ compile_id, epoch: 0, reason, file: '/u/train.py', line, source: ' if x.max() > 1:' }) as GraphBreak;

const site = (line: number, host_us: number | null, share_percent: number | null = 10) =>
  ({
    file: '/u/train.py',
    line,
    reason: 'Data-dependent branching',
    compile_ids: ['0/0', '0/1'],
    calls: host_us === null ? null : 4,
    host_us,
    step_mean_us: host_us === null ? null : host_us / 2,
    share_percent,
  }) as GraphBreakSite;

const compile = (...graph_breaks: GraphBreak[]) => ({ graph_breaks }) as Compile;
const span = (sites: GraphBreakSite[], steps = 2) =>
  ({
    graph_break_sites: sites,
    graph_break_costs: [],
    steps: Array.from({ length: steps }),
  }) as unknown as Span;

describe('siteRows', () => {
  it('joins a site with every compilation that broke there', () => {
    const [row, ...rest] = siteRows(compile(brokenAt('0/0', 7), brokenAt('0/1', 7)), span([site(7, 60)]));
    expect(rest).toEqual([]);
    expect(row!.breaks.map((b) => b.compile_id)).toEqual(['0/0', '0/1']);
    expect(row!.source).toBe(' if x.max() > 1:');
  });

  it('groups the breaks of a log without a trace, none with a price', () => {
    const rows = siteRows(compile(brokenAt('0/0', 7), brokenAt('0/1', 7), brokenAt('1/0', 9)), null);
    expect(rows.map((r) => [r.line, r.compile_ids, r.host_us])).toEqual([
      [7, ['0/0', '0/1'], null],
      [9, ['1/0'], null],
    ]);
  });

  it('keeps what only the log knows beside what the trace prices', () => {
    const rows = siteRows(compile(brokenAt('0/0', 7), brokenAt('', 9, 'recovered')), span([site(7, 60)]));
    expect(rows.map((r) => [r.line, r.host_us])).toEqual([
      [7, 60],
      [9, null],
    ]);
  });
});

describe('verdict', () => {
  const words = (...args: Parameters<typeof verdict>) => {
    const { strong, rest } = verdict(...args);
    return (strong + rest).replaceAll('\u202f', ' ');
  };

  it('says what the breaks cost a step', () => {
    const s = span([site(7, 60), site(9, 40)]);
    expect(words(siteRows(null, s), s)).toBe(
      '2 graph break sites cost 50.0 µs a step, 20.0 % of it (mean of 2).',
    );
  });

  it('says so when nothing was executed, no step was marked, or nobody knows', () => {
    const idle = span([site(7, null, null)]);
    expect(words(siteRows(null, idle), idle)).toContain('none executed');
    const unmarked = span([site(7, 60, null)], 0);
    expect(words(siteRows(null, unmarked), unmarked)).toContain('cost 60.0 µs of host time in this span');
    const unknown = { ...span([site(7, null, null)]), graph_break_costs: null } as Span;
    expect(words(siteRows(null, unknown), unknown)).toContain('price is not known');
    expect(words(siteRows(compile(brokenAt('0/0', 7)), null), null)).toContain('Without a trace');
  });
});
