const LABELS: Record<string, [label: string, help: string]> = {
  dynamo: ['Dynamo', 'Tracing Python bytecode into a graph, and building guards'],
  aot_autograd: ['AOTAutograd', 'Joint forward and backward graph, functionalisation, partitioning'],
  inductor: ['Inductor', 'Lowering, fusion, scheduling and code generation'],
  triton: ['Triton, C++', 'Compiling and loading the generated kernels'],
  autotune: ['Autotune', 'Measuring kernel configurations to choose the fastest'],
  cache: ['Cache', 'Looking up and writing the compile caches'],
  backend: ['Backend', 'The backend’s own compilation'],
  other: ['Other', 'The rest of the frame’s compile time, in no phase above'],
};

export function phaseLabel(phase: string): string {
  return LABELS[phase]?.[0] ?? phase.replaceAll('_', ' ');
}

export function phaseHelp(phase: string): string {
  return LABELS[phase]?.[1] ?? '';
}

const CACHES: Record<string, string> = { fx_graph: 'FX graph', aotautograd: 'AOTAutograd' };

export function cacheLabel(cache: string): string {
  return CACHES[cache] ?? cache;
}

/** The order of the pipeline, the rest last. */
const ORDER = Object.keys(LABELS);

export function byPipeline(a: string, b: string): number {
  const rank = (phase: string) => (ORDER.includes(phase) ? ORDER.indexOf(phase) : ORDER.length - 1.5);
  return rank(a) - rank(b);
}
