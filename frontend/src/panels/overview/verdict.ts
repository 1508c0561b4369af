/** The first sentence of the tab: the result in numbers. */
import { countCompilations } from '../../api/counts';
import type { Compile, Span, Verdict } from '../../api/types';
import { duration, percent, plural, seconds, significant, THIN } from '../../widgets/format';
import { median } from '../../widgets/charts/buckets';

export interface Part {
  text: string;
  /** A number that answers the question. */
  strong?: boolean;
}

const strong = (text: string): Part => ({ text, strong: true });
const plain = (text: string): Part => ({ text });

export function verdict(span: Span | null, compile: Compile | null, bound: Verdict | null = null): Part[] {
  return [...(span ? spanParts(span, bound) : []), ...compileParts(span, compile)];
}

function spanParts(span: Span, bound: Verdict | null): Part[] {
  const step = median(span.steps.map((s) => s.wall_us));
  const first =
    step === null
      ? [plain('Span '), strong(duration(span.wall_us))]
      : [plain('Step '), strong(duration(step)), plain(medianOf(span.steps.length))];
  const so = bound ? [plain(' → '), strong(`${bound.bound} bound`)] : [];
  return [...first, plain(' · '), ...gpuParts(span), ...so, plain('. ')];
}

/** A single step is what it is. */
function medianOf(steps: number): string {
  return steps > 1 ? ` (median of ${steps})` : '';
}

function gpuParts({ gpu, warnings }: Span): Part[] {
  // What a cut-off file does not hold may have happened all the same.
  if (gpu.length === 0)
    return [plain(warnings.length > 0 ? 'GPU time not known: see the warning' : 'no GPU events')];
  if (gpu.length === 1) return [plain('GPU busy '), strong(percent(gpu[0]!.busy_percent))];
  const busy = gpu.flatMap((g) => g.busy_percent ?? []);
  if (busy.length === 0) return [plain(`${gpu.length} devices did nothing that lasted`)];
  const range = `${significant(Math.min(...busy))}–${significant(Math.max(...busy))}${THIN}%`;
  return [plain('GPU busy '), strong(range), plain(` on ${gpu.length} devices`)];
}

function compileParts(span: Span | null, compile: Compile | null): Part[] {
  if (!compile) return [plain('No compile data.')];
  const n = countCompilations(compile);
  if (n === 0) return [plain('Nothing was compiled.')];
  const total = [
    plain('Compile '),
    strong(seconds(compile.total_s)),
    plain(` (${plural(n, 'compilation')})`),
  ];
  return [...total, plain(overlap(span)), plain('.')];
}

/** How much of the compile time fell into what was profiled; silent where that is unknown. */
function overlap(span: Span | null): string {
  const known = span?.compile_overlap;
  if (!span || !known) return '';
  const steps = span.steps.length > 0;
  const us = steps ? known.in_steps_us : known.in_span_us;
  if (us === 0) return steps ? ', none inside the profiled steps' : ', none inside this span';
  return `, ${duration(us)} of it inside ${steps ? stepNames(known.steps) : 'this span'}`;
}

function stepNames(names: string[]): string {
  if (names.length === 0) return 'the profiled steps';
  return names.length <= 2 ? names.join(' and ') : `${names[0]} and ${names.length - 1} more steps`;
}

export function countCache(compile: Compile): { hits: number; lookups: number } {
  const results = compile.compilations.flatMap((c) => c.cache);
  return { hits: results.filter((r) => r.result === 'hit').length, lookups: results.length };
}
