/** Where the time of a step goes on a rank of a job: words and colours, the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { JobStep } from '../api/types';
import type { Look } from './causes';

export type JobPart = Exclude<keyof JobStep, 'step' | 'rank' | 'span_us' | 'compile_us'>;

/** Nothing is got done in what is hatched. */
const hatched = (line: string, ground: string) =>
  `repeating-linear-gradient(135deg, ${line} 0 2px, ${ground} 2px 6px)`;

/** They sum to the span, in this order. */
export const JOB_PARTS: Record<JobPart, Look> = {
  compute_us: ['compute', 'var(--measure)'],
  overlapped_us: ['overlapped', 'color-mix(in srgb, var(--cat-communication) 45%, var(--measure))'],
  exposed_transfer_us: ['exposed transfer', 'var(--cat-communication)'],
  exposed_wait_us: ['exposed wait', hatched('var(--cat-communication)', 'var(--bg)')],
  exposed_unknown_us: ['exposed unknown', 'var(--cat-other)'],
  exposed_memory_us: ['exposed memory', 'var(--cat-memcpy)'],
  idle_us: ['idle', hatched('var(--line-strong)', 'var(--idle)')],
};

export const jobPartHelp = (part: JobPart): string => meaningOf('job_parts', part);
