import { describe, expect, it } from 'vitest';
import type { Compile, Compilation, Gpu, Span } from '../../src/api/types';
import { countCache, verdict } from '../../src/panels/overview/verdict';
import { countCompilations } from '../../src/api/counts';
import { phaseTotals } from '../../src/names/phases';

const gpu = { device: 0, name: 'NVIDIA H200', busy_percent: 2.609 } as Gpu;
const step = (name: string, wall_us: number) => ({ name, start_us: 0, wall_us, gpu_busy_us: null });
const steps = [
  step('ProfilerStep#2', 7086.66),
  step('ProfilerStep#3', 5595.65),
  step('ProfilerStep#4', 5379.6),
];
const makeSpan = (over: Partial<Span>) =>
  ({ gpu: [gpu], warnings: [], steps, wall_us: 21e6, compile_overlap: null, ...over }) as unknown as Span;
const row = (compile_id: string, direction = 'forward', epoch = 0) =>
  ({ compile_id, direction, epoch, cache: [], phases_s: null }) as unknown as Compilation;
const makeCompile = (compilations: Compilation[]) => ({ total_s: 4.5565, compilations }) as Compile;
const text = (span: Span | null, compile: Compile | null) =>
  verdict(span, compile)
    .map((part) => part.text)
    .join('')
    .replaceAll('\u202f', ' ');

describe('the sentence', () => {
  const compile = makeCompile([row('0/0'), row('0/0', 'backward'), row('1/0')]);

  it('says step, busy share and compile time', () => {
    const none = { in_span_us: 5, in_steps_us: 0, steps: [] };
    expect(text(makeSpan({ compile_overlap: none }), compile)).toBe(
      'Step 5.60 ms (median of 3) · GPU busy 2.61 %. Compile 4.56 s (2 compilations), none inside the profiled steps.',
    );
  });

  it('names the steps that compiled', () => {
    const some = { in_span_us: 2e6, in_steps_us: 1.2e6, steps: ['ProfilerStep#2'] };
    expect(text(makeSpan({ compile_overlap: some }), compile)).toContain(
      ', 1.20 s of it inside ProfilerStep#2.',
    );
  });

  it('does not claim what is unknown', () => {
    expect(text(makeSpan({}), compile)).toMatch(/\(2 compilations\)\.$/);
    expect(text(makeSpan({}), null)).toMatch(/No compile data\.$/);
    expect(text(makeSpan({ gpu: [] }), null)).toContain('no GPU events');
    const cut = [{ file: 't.json', problem: 'the trace is cut off', kept: '', next_step: '' }];
    expect(text(makeSpan({ gpu: [], warnings: cut }), null)).toContain('GPU time not known');
    expect(text(null, makeCompile([]))).toBe('Nothing was compiled.');
  });

  it('treats a span without steps as one window', () => {
    const some = { in_span_us: 3e6, in_steps_us: 0, steps: [] };
    expect(text(makeSpan({ steps: [], compile_overlap: some }), compile)).toBe(
      'Span 21.0 s · GPU busy 2.61 %. Compile 4.56 s (2 compilations), 3.00 s of it inside this span.',
    );
  });

  it('gives the range over several devices', () => {
    const two = [gpu, { ...gpu, device: 1, busy_percent: 34 }];
    expect(text(makeSpan({ gpu: two }), null)).toContain('GPU busy 2.61–34.0 % on 2 devices');
  });
});

it('counts frames, not rows; ids begin anew with each epoch', () => {
  expect(countCompilations(makeCompile([row('0/0'), row('0/0', 'backward'), row('0/0', 'forward', 1)]))).toBe(
    2,
  );
});

it('counts cache lookups and sums phases', () => {
  const hit = {
    ...row('0/0'),
    cache: [{ result: 'hit' }, { result: 'miss' }],
    phases_s: { other: 9, dynamo: 1 },
  };
  const compile = makeCompile([
    hit as unknown as Compilation,
    { ...row('1/0'), phases_s: { dynamo: 2, inductor: 4 } },
  ]);
  expect(countCache(compile)).toEqual({ hits: 1, lookups: 2 });
  expect(phaseTotals(compile)).toEqual([
    ['inductor', 4],
    ['dynamo', 3],
    ['other', 9],
  ]);
});
