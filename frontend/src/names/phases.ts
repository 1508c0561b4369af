/** Phases of a compilation, in the order of the pipeline. */
import { meaningOf } from '../api/meanings.svelte';
import type { Compilation, Phase } from '../api/types';
import { seconds } from '../widgets/format';

const PHASES: Record<Phase, string> = {
  dynamo: 'Dynamo',
  aot_autograd: 'AOTAutograd',
  inductor: 'Inductor',
  triton: 'Triton, C++',
  autotune: 'Autotune',
  cache: 'Cache',
  other: 'Other',
};

const ORDER = Object.keys(PHASES) as Phase[];
export const phaseLabel = (phase: Phase): string => PHASES[phase];
export const phaseHelp = (phase: Phase): string => meaningOf('phases', phase);

/** The phases that took any time in one of these, in the order of the pipeline. */
export const phasesOf = (rows: Pick<Compilation, 'phases_percent'>[]): Phase[] =>
  ORDER.filter((phase) => rows.some((row) => phase in row.phases_percent));

const CACHES: Record<string, string> = { fx_graph: 'FX graph', aotautograd: 'AOTAutograd' };

function cacheLabel(cache: string): string {
  return CACHES[cache] ?? cache;
}

/** What the caches answered while it was compiled. */
export const cacheFacts = ({ cache }: Compilation) =>
  cache.map(({ cache: name, result, time_saved_s, why, cache_key }) => {
    const saved = time_saved_s === null ? '' : `, saved ${seconds(time_saved_s)}`;
    return { label: cacheLabel(name), value: `${result}${saved}${why ? ` (${why})` : ''}`, title: cache_key };
  });
