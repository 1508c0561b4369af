import type { Component } from 'svelte';
import { countSites, data } from '../api/data.svelte';
import { findingsOn } from '../api/findings.svelte';
import type { Compile, Panel, Span } from '../api/types';

/** A panel may ignore the props. */
type Content<Props extends object> = Component<Props> | Component<Record<string, never>>;
type Load<Props extends object> = () => Promise<{ default: Content<Props> }>;

/**
 * When it is drawn: where there is compile data; where there is a trace, or wherever there is anything, when all that
 * there is has come; as soon as either half of the data is there; or at once because it asks itself.
 */
type Needs =
  | { needs: 'compile'; load: Load<{ compile: Compile; span: Span | null }> }
  | { needs: 'trace'; load: Load<{ compile: Compile | null; span: Span }> }
  | { needs: 'all' | 'any'; load: Load<{ compile: Compile | null; span: Span | null }> }
  | { needs: 'itself'; load: Load<Record<string, never>> };

/** An entry of the sidebar. A panel whose half of the data is missing is dimmed and explains how to record it. */
export type PanelEntry = Needs & {
  /** The number of problems in it, shown as a badge. */
  wrong?: (compile: Compile | null, span: Span | null) => number | null;
  /** What is counted. */
  means?: string;
  /** Whether it is left out of the sidebar because it would be empty. */
  hidden?: () => boolean;
  /** Why there is nothing to see, other than missing compile data. */
  lacks?: () => string | null;
};

const seriousFindings = () => findingsOn()?.filter(({ severity }) => severity !== 'info').length ?? null;

export const PANELS: Record<Panel, PanelEntry> = {
  overview: { needs: 'all', load: () => import('../panels/overview/Overview.svelte') },
  findings: {
    needs: 'any',
    wrong: seriousFindings,
    means: 'critical findings and warnings',
    load: () => import('../panels/findings/Findings.svelte'),
  },
  compare: { needs: 'itself', load: () => import('../panels/compare/Compare.svelte') },
  all_runs: {
    needs: 'itself',
    hidden: () => (data.runs.value?.runs.length ?? 0) < 2,
    load: () => import('../panels/all_runs/AllRuns.svelte'),
  },
  step: { needs: 'trace', load: () => import('../panels/step/Step.svelte') },
  timeline: { needs: 'itself', load: () => import('../panels/timeline/Timeline.svelte') },
  memory: { needs: 'trace', load: () => import('../panels/memory/Memory.svelte') },
  ranks: {
    needs: 'itself',
    hidden: () => (data.selection.run?.ranks ?? 0) < 2,
    load: () => import('../panels/ranks/Ranks.svelte'),
  },
  your_code: { needs: 'trace', load: () => import('../panels/your_code/YourCode.svelte') },
  kernels: { needs: 'all', load: () => import('../panels/kernels/Kernels.svelte') },
  operators: { needs: 'trace', load: () => import('../panels/operators/Operators.svelte') },
  compile_time: { needs: 'compile', load: () => import('../panels/compile_time/CompileTime.svelte') },
  compilations: {
    needs: 'all',
    wrong: (compile) => compile && compile.problems.length,
    means: 'compilations with a problem',
    load: () => import('../panels/compilations/CompilationsPanel.svelte'),
  },
  graph_breaks: {
    needs: 'all',
    wrong: countSites,
    means: 'places that break a graph',
    load: () => import('../panels/graph_breaks/GraphBreaks.svelte'),
  },
  recompiles: {
    needs: 'all',
    wrong: (compile) => compile && compile.recompiles.length,
    means: 'recompiles',
    load: () => import('../panels/recompiles/Recompiles.svelte'),
  },
  generated_code: {
    needs: 'compile',
    load: () => import('../panels/generated_code/GeneratedCode.svelte'),
  },
};
