/** Why a GPU idles: words and colours, the same everywhere. */
import { meaningOf } from '../api/meanings.svelte';
import type { Cause } from '../api/types';

export type Look = [label: string, color: string];

/** In the order in which a moment is told: the first that holds. */
export const CAUSES: Record<Cause, Look> = {
  compile: ['compile', 'var(--phase-inductor)'],
  communication_wait: ['communication wait', 'var(--cat-communication)'],
  synchronise: ['synchronise', 'var(--phase-aot_autograd)'],
  data_loading: ['data loading', 'var(--phase-triton)'],
  guards_wrapper: ['guards and wrapper', 'var(--phase-dynamo)'],
  break_eager: ['break or eager op', 'var(--warn-line)'],
  launch_call: ['operators, launching', 'var(--phase-autotune)'],
  python: ['Python', 'var(--phase-cache)'],
  nothing_launched: ['nothing launched', 'var(--idle)'],
};

export const causeLabel = (cause: Cause): string => CAUSES[cause][0];
export const causeHelp = (cause: Cause): string => meaningOf('idle_causes', cause);
