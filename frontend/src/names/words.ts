/** The panels: what each is called, and their order. */
import type { Panel } from '../api/types';

export const PANEL_TITLES: Record<Panel, string> = {
  overview: 'Overview',
  findings: 'Findings',
  compare: 'Compare',
  all_runs: 'All runs',
  step: 'Step',
  timeline: 'Timeline',
  memory: 'Memory',
  ranks: 'Ranks',
  your_code: 'Your code',
  kernels: 'Kernels',
  operators: 'Operators',
  compile_time: 'Compile time',
  compilations: 'Compilations',
  graph_breaks: 'Graph breaks',
  recompiles: 'Recompiles',
  generated_code: 'Generated code',
};
/** The sidebar: what a group is called, and its panels in their order. */
export const GROUPS: { title: string; panels: Panel[] }[] = [
  { title: '', panels: ['overview', 'findings', 'compare', 'all_runs'] },
  { title: 'Run', panels: ['step', 'timeline', 'memory', 'ranks'] },
  { title: 'Code', panels: ['your_code', 'kernels', 'operators'] },
  {
    title: 'Compile',
    panels: ['compile_time', 'compilations', 'graph_breaks', 'recompiles', 'generated_code'],
  },
];
const isPanel = (text: string): text is Panel => Object.hasOwn(PANEL_TITLES, text);
/** The panel of an address. */
export const panelNamed = (text: string): Panel => (isPanel(text) ? text : 'overview');
