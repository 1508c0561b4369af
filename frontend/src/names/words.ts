/** What small sets of the server's words mean to people. */
import type {
  BreakKind,
  DifferenceKind,
  EagerKind,
  EagerReason,
  LineOrigin,
  Panel,
  WorkFrom,
} from '../api/types';

export const PANEL_TITLES: Record<Panel, string> = {
  runs: 'All runs',
  overview: 'Overview',
  findings: 'Findings',
  compile_time: 'Compile time',
  compilations: 'Compilations',
  code: 'Texts',
  graph_breaks: 'Graph breaks',
  recompiles: 'Recompiles',
  dynamic_shapes: 'Dynamic shapes',
  compiled_regions: 'Regions',
  source: 'Source',
  kernels: 'Kernels',
  gpu_utilization: 'GPU utilization',
  cpu: 'CPU',
  cuda_graphs: 'CUDA graphs',
  step_breakdown: 'Steps',
  what_if: 'What if',
  ranks: 'Ranks',
  timeline: 'Timeline',
  operators: 'Operators',
  python: 'Python',
  memory: 'Memory',
  modules: 'Modules',
  exports: 'Exports',
  triton: 'Triton',
  compare: 'Compare',
  pays: 'Does it pay',
};
/** The sidebar: what a group is called, and its panels in their order. The first one opens with the group. */
export const GROUPS: { title: string; panels: Panel[] }[] = [
  { title: 'Summary', panels: ['overview', 'findings', 'what_if', 'pays', 'compare', 'runs'] },
  {
    title: 'Run',
    panels: ['step_breakdown', 'gpu_utilization', 'cuda_graphs', 'cpu', 'timeline', 'memory', 'ranks'],
  },
  { title: 'Code', panels: ['source', 'kernels', 'operators', 'python', 'modules', 'triton'] },
  {
    title: 'Compile',
    panels: [
      'compilations',
      'compile_time',
      'graph_breaks',
      'recompiles',
      'dynamic_shapes',
      'compiled_regions',
      'exports',
      'code',
    ],
  },
];
const isPanel = (text: string): text is Panel => Object.hasOwn(PANEL_TITLES, text);
/** Panels that are parts of other ones now: their addresses still lead there. */
const MOVED: Record<string, Panel> = { startup: 'compile_time' };
/** The panel of an address. */
export const panelNamed = (text: string): Panel => MOVED[text] ?? (isPanel(text) ? text : 'overview');

export const BREAK_KINDS: Record<BreakKind, string> = {
  explicit: 'graph_break()',
  disabled: 'compiler.disable',
  print: 'print or logging',
  item: '.item()',
  data_dependent: 'data-dependent',
  builtin: 'unsupported builtin',
  call: 'call not followed',
  operator: 'unsupported operator',
  context_manager: 'context manager',
  exception: 'exception',
  generator: 'generator',
  other: 'other',
};

export const EAGER_KINDS: Record<EagerKind, string> = {
  op: 'operator',
  backward: 'autograd backward',
  optimizer: 'optimizer',
  dataloader: 'data loader',
  in_region: 'at a graph break',
};

/** Why an operator ran eager. */
export const EAGER_REASONS: Record<EagerReason, string> = {
  graph_break: 'graph break',
  recompile_limit: 'recompile limit',
  skipped: 'frame skipped',
  failed: 'failed to compile',
  profiler_hook: 'a profiler’s hook',
  not_compiled: 'not compiled',
};

/** In what ranks differ. */
export const DIFFERENCE_KINDS: Record<DifferenceKind, string> = {
  compilation: 'compilation',
  cache: 'cache',
  collectives: 'collectives',
  execution_order: 'execution order',
};

/** Where it is known from what a kernel moves and computes. */
export const WORK_FROM: Record<WorkFrom, string> = {
  inductor: 'as inductor computed it',
  shapes: 'estimated from shapes',
  copy: 'as the copy says',
};

/** Where the user's lines of a kernel are from. */
export const LINES_FROM: Record<LineOrigin, string> = {
  provenance: 'torch’s provenance records',
  comments: 'the comments in the code and the graph after post-grad passes',
};
