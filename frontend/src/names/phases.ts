/** Phases of a compilation, in the order of the pipeline. */
import type { Phase } from '../api/types';
import { percent, seconds } from '../widgets/format';

const PHASES: Record<Phase, [label: string, help: string]> = {
  dynamo: ['Dynamo', 'Tracing Python bytecode into a graph, and building guards'],
  aot_autograd: ['AOTAutograd', 'Joint forward and backward graph, functionalisation, partitioning'],
  inductor: ['Inductor', 'Lowering, fusion, scheduling and code generation'],
  triton: ['Triton, C++', 'Compiling and loading the generated kernels'],
  autotune: ['Autotune', 'Measuring kernel configurations to choose the fastest'],
  cache: ['Cache', 'Looking up and writing the compile caches'],
  other: ['Other', 'The rest of the frame’s compile time, in no phase above'],
};

const ORDER = Object.keys(PHASES) as Phase[];
export const byPipeline = (a: Phase, b: Phase): number => ORDER.indexOf(a) - ORDER.indexOf(b);
export const phaseLabel = (phase: Phase): string => PHASES[phase][0];
export const phaseHelp = (phase: Phase): string => PHASES[phase][1];

export type PhaseTimes = [phase: Phase, seconds: number][];

/** Those that took any time, in the order of the pipeline. */
export const phaseTimes = (phases: Partial<Record<Phase, number>> | null | undefined): PhaseTimes =>
  ORDER.map((phase): PhaseTimes[number] => [phase, phases?.[phase] ?? 0]).filter(([, s]) => s > 0);

const CACHES: Record<string, string> = { fx_graph: 'FX graph', aotautograd: 'AOTAutograd' };

export function cacheLabel(cache: string): string {
  return CACHES[cache] ?? cache;
}

/** What is in no phase stands last. */
export function largestFirst(phases: PhaseTimes): PhaseTimes {
  const rank = ([phase, s]: PhaseTimes[number]) => (phase === 'other' ? -1 : s);
  return phases.toSorted((a, b) => rank(b) - rank(a));
}

/** Exclusive times by phase as bars; they sum to the whole. */
export function phaseBars(phases: PhaseTimes) {
  const sum = phases.reduce((all, [, s]) => all + s, 0);
  return phases.map(([phase, s]) => ({
    key: phase,
    label: phaseLabel(phase),
    value: s,
    text: `${seconds(s)} · ${percent((100 * s) / sum)}`,
    color: `var(--phase-${phase})`,
    title: phaseHelp(phase),
  }));
}
