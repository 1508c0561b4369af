/** Phases of a compilation, in the order of the pipeline. */
import type { Compilation, Phase } from '../api/types';
import { seconds } from '../widgets/format';

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

/** The phases that took any time in one of these, in the order of the pipeline. */
export const phasesOf = (rows: Pick<Compilation, 'phases_percent'>[]): Phase[] =>
  ORDER.filter((phase) => rows.some((row) => phase in row.phases_percent));

const CACHES: Record<string, string> = { fx_graph: 'FX graph', aotautograd: 'AOTAutograd' };

export function cacheLabel(cache: string): string {
  return CACHES[cache] ?? cache;
}

/** What the caches answered while it was compiled. */
export const cacheFacts = ({ cache }: Compilation) =>
  cache.map(({ cache: name, result, time_saved_s, why, key }) => {
    const saved = time_saved_s === null ? '' : `, saved ${seconds(time_saved_s)}`;
    return { label: cacheLabel(name), value: `${result}${saved}${why ? ` (${why})` : ''}`, title: key };
  });
