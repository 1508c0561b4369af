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

/** Panels whose layout comes from the server. */
const sheet = () => import('../panels/sheet/Sheet.svelte');

export const PANELS: Record<Panel, PanelEntry> = {
  runs: {
    needs: 'itself',
    hidden: () => (data.runs.value?.runs.length ?? 0) < 2,
    load: () => import('../panels/compare/runs/Runs.svelte'),
  },
  overview: { needs: 'any', load: () => import('../panels/runtime/overview/Overview.svelte') },
  findings: {
    needs: 'any',
    wrong: seriousFindings,
    means: 'critical findings and warnings',
    load: () => import('../panels/causes/findings/Findings.svelte'),
  },
  compile_time: { needs: 'compile', load: () => import('../panels/compile/compile_time/CompileTime.svelte') },
  compilations: {
    needs: 'compile',
    wrong: (compile) => compile && compile.problems.length,
    means: 'compilations with a problem',
    load: () => import('../panels/compile/compilations/Compilations.svelte'),
  },
  code: { needs: 'compile', load: () => import('../panels/compile/code/CodePanel.svelte') },
  graph_breaks: {
    needs: 'all',
    wrong: countSites,
    means: 'places that break a graph',
    load: () => import('../panels/compile/graph_breaks/GraphBreaks.svelte'),
  },
  recompiles: {
    needs: 'all',
    wrong: (compile) => compile && compile.recompiles.length,
    means: 'recompiles',
    load: () => import('../panels/compile/recompiles/Recompiles.svelte'),
  },
  compiled_regions: {
    needs: 'trace',
    load: () => import('../panels/runtime/compiled_regions/CompiledRegions.svelte'),
  },
  source: { needs: 'trace', load: () => import('../panels/runtime/source/Source.svelte') },
  kernels: { needs: 'all', load: () => import('../panels/runtime/kernels/Kernels.svelte') },
  gpu_utilization: {
    needs: 'trace',
    load: () => import('../panels/runtime/gpu_utilization/GpuUtilization.svelte'),
  },
  cpu: { needs: 'trace', load: sheet },
  step_breakdown: {
    needs: 'trace',
    load: () => import('../panels/runtime/step_breakdown/StepBreakdown.svelte'),
  },
  what_if: { needs: 'trace', load: () => import('../panels/causes/what_if/WhatIf.svelte') },
  ranks: {
    needs: 'itself',
    lacks: () =>
      (data.selection.run?.ranks ?? 0) < 2
        ? 'Fewer than two ranks have a trace: click to see how to get them'
        : null,
    load: () => import('../panels/ranks/Ranks.svelte'),
  },
  timeline: { needs: 'itself', load: () => import('../panels/timeline/Timeline.svelte') },
  operators: { needs: 'trace', load: () => import('../panels/runtime/operators/Operators.svelte') },
  python: { needs: 'trace', load: () => import('../panels/runtime/python/Python.svelte') },
  memory: { needs: 'trace', load: () => import('../panels/runtime/memory/Memory.svelte') },
  modules: { needs: 'trace', load: sheet },
  exports: { needs: 'compile', hidden: () => !data.compile.value?.exports.length, load: sheet },
  triton: { needs: 'compile', hidden: () => !data.compile.value?.triton_kernels.length, load: sheet },
  pays: { needs: 'trace', load: sheet },
  cuda_graphs: { needs: 'trace', load: sheet },
  dynamic_shapes: { needs: 'trace', load: sheet },
  compare: { needs: 'itself', load: () => import('../panels/compare/compare/Compare.svelte') },
};
