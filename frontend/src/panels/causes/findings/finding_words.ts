/** A finding's evidence in words. */
import { data } from '../../../api/data.svelte';
import type { Finding } from '../../../api/types';
import { count, duration, percent, seconds, significant } from '../../../widgets/format';

/** "host_us_per_step" → "host", "166 µs a step" */
export function evidenceFacts(evidence: Finding['evidence']) {
  return Object.entries(evidence).map(([name, value]) => {
    const [, stem, unit = '', per] = /^(.+?)(?:_(us|s|percent))?(_per_step)?$/.exec(name)!;
    return { label: words(stem!), value: write(value, unit) + (per ? perStep() : '') };
  });
}

/** The numbers are for the whole span where there are no steps. */
const steps = () => data.span.value?.steps.length ?? 0;
const perStep = () => (steps() > 0 ? ' a step' : '');

export const stepOrSpan = () => (steps() > 0 ? 'Step' : 'Span');

/** "2.38 ms a step" */
export const saved = (us: number) => duration(us / Math.max(1, steps())) + perStep();

/** "gpu_utilization" → "GPU utilization" */
const words = (name: string) => name.replaceAll('_', ' ').replace(/\bgpu\b/g, 'GPU');

function write(value: number, unit: string): string {
  if (unit === 'us') return duration(value);
  if (unit === 's') return seconds(value);
  if (unit === 'percent') return percent(value);
  return Number.isInteger(value) ? count(value) : significant(value);
}
