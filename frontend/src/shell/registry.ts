import type { Component } from 'svelte';
import { countSites } from '../api/counts';
import { data } from '../api/data.svelte';
import { findingsOn } from '../api/findings.svelte';
import { ranksRecorded } from '../api/selection';
import type { Compile, Panel, Span } from '../api/types';

/** A panel need not take what it is given. */
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

/** A place in the sidebar. A panel whose half of the data is missing stays there, dimmed, and says how to get it. */
export type Place = Needs & {
  count?: (compile: Compile | null, span: Span | null) => number | null;
  /** Why there is nothing to see, beside missing compile data. */
  lacks?: () => string | null;
};

export const PANELS: Record<Panel, Place> = {
  overview: { needs: 'any', load: () => import('../panels/overview/Overview.svelte') },
  findings: {
    needs: 'any',
    count: () => findingsOn()?.length ?? null,
    load: () => import('../panels/findings/Findings.svelte'),
  },
  compile_time: { needs: 'compile', load: () => import('../panels/compile_time/CompileTime.svelte') },
  compilations: {
    needs: 'compile',
    count: (compile) => compile && compile.distinct_compilations,
    load: () => import('../panels/compilations/Compilations.svelte'),
  },
  code: { needs: 'compile', load: () => import('../panels/code/CodePanel.svelte') },
  graph_breaks: {
    needs: 'all',
    count: countSites,
    load: () => import('../panels/graph_breaks/GraphBreaks.svelte'),
  },
  recompiles: {
    needs: 'all',
    count: (compile) => compile && compile.recompiles.length,
    load: () => import('../panels/recompiles/Recompiles.svelte'),
  },
  compiled_regions: {
    needs: 'trace',
    count: (_compile, span) => span && span.compiled_regions.length,
    load: () => import('../panels/compiled_regions/CompiledRegions.svelte'),
  },
  source: { needs: 'trace', load: () => import('../panels/source/Source.svelte') },
  kernels: {
    needs: 'all',
    // An incomplete trace without kernels may have lost them.
    count: (_compile, span) => span && (span.distinct_kernels || (span.warnings.length > 0 ? null : 0)),
    load: () => import('../panels/kernels/Kernels.svelte'),
  },
  gpu_utilization: { needs: 'trace', load: () => import('../panels/gpu_utilization/GpuUtilization.svelte') },
  step_breakdown: {
    needs: 'trace',
    count: (_compile, span) => span && (span.steps.length || null),
    load: () => import('../panels/step_breakdown/StepBreakdown.svelte'),
  },
  what_if: { needs: 'trace', load: () => import('../panels/what_if/WhatIf.svelte') },
  ranks: {
    needs: 'itself',
    count: () => ranksRecorded(data.selection.run) || null,
    lacks: () =>
      ranksRecorded(data.selection.run) < 2
        ? 'Fewer than two ranks have a trace: click to see how to get them'
        : null,
    load: () => import('../panels/ranks/Ranks.svelte'),
  },
  timeline: { needs: 'itself', load: () => import('../panels/timeline/Timeline.svelte') },
  operators: { needs: 'trace', load: () => import('../panels/operators/Operators.svelte') },
  python: { needs: 'trace', load: () => import('../panels/python/Python.svelte') },
  memory: { needs: 'trace', load: () => import('../panels/memory/Memory.svelte') },
  modules: { needs: 'trace', load: () => import('../panels/modules/Modules.svelte') },
  compare: { needs: 'itself', load: () => import('../panels/compare/Compare.svelte') },
};
