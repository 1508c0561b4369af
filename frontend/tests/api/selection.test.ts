import { describe, expect, it } from 'vitest';
import { select } from '../../src/api/selection';
import type { RunRef, Runs, SpanRef, WorkerRef } from '../../src/api/types';

const span = (id: string, modified_s: number): SpanRef => ({
  span: id,
  trace_file: id,
  size_bytes: 1,
  modified_s,
});
const worker = (name: string, spans: SpanRef[]): WorkerRef => ({
  worker: name,
  rank: null,
  has_compile: false,
  spans,
});
const runs = (list: Pick<RunRef, 'run' | 'workers'>[]): Runs => ({
  schema_version: 1,
  plugin_version: '',
  runs: list.map((one) => ({ ...one, ranks: 0, job_bytes: 0, compiling: '' })),
  warnings: [],
});

const logdir = runs([
  { run: 'old', workers: [worker('w', [span('1', 10), span('2', 20)])] },
  { run: 'new', workers: [worker('log_only', []), worker('w', [span('3', 40), span('4', 30)])] },
]);
const ids = (s: ReturnType<typeof select>) => [s.run?.run, s.worker?.worker, s.span?.span, s.missing];
const open = { run: '', worker: '', span: '' };

describe('what is selected', () => {
  it('is the newest where the address is silent', () => {
    expect(ids(select(logdir, open))).toEqual(['new', 'w', '3', null]);
    expect(ids(select(logdir, { ...open, run: 'old' }))).toEqual(['old', 'w', '2', null]);
  });

  it('is what the address says', () => {
    expect(ids(select(logdir, { run: 'old', worker: 'w', span: '1' }))).toEqual(['old', 'w', '1', null]);
    expect(ids(select(logdir, { run: 'new', worker: 'log_only', span: '' }))).toEqual([
      'new',
      'log_only',
      undefined,
      null,
    ]);
  });

  it('names what is gone and replaces nothing silently', () => {
    expect(ids(select(logdir, { ...open, run: 'gone' }))).toEqual([undefined, undefined, undefined, 'run']);
    expect(ids(select(logdir, { ...open, run: 'old', worker: 'x' }))).toEqual([
      'old',
      undefined,
      undefined,
      'worker',
    ]);
    expect(ids(select(logdir, { run: 'old', worker: 'w', span: '9' }))).toEqual([
      'old',
      'w',
      undefined,
      'span',
    ]);
  });

  it('is nothing in an empty logdir', () => {
    expect(ids(select(runs([]), open))).toEqual([undefined, undefined, undefined, null]);
  });

  it('takes the time of a span from its id', () => {
    const copied = [span('1795230236326796082', 99), span('1795230239495114901', 1)];
    const one = runs([{ run: '.', workers: [worker('w', copied)] }]);
    expect(select(one, open).span?.span).toBe('1795230239495114901');
  });
});
