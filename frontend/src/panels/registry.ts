import type { Component } from 'svelte';
import type { Compile, Span } from '../api/types';
import CodePanel from './code/CodePanel.svelte';
import Compilations from './compilations/Compilations.svelte';
import CompiledRegions from './compiled_regions/CompiledRegions.svelte';
import Compare from './compare/Compare.svelte';
import CompileTime from './compile_time/CompileTime.svelte';
import GraphBreaks from './graph_breaks/GraphBreaks.svelte';
import { countSites } from './graph_breaks/sites';
import { findingsOn } from './findings/findings.svelte';
import Findings from './findings/Findings.svelte';
import GpuUtilization from './gpu_utilization/GpuUtilization.svelte';
import { countKernels } from './kernels/rows';
import Kernels from './kernels/Kernels.svelte';
import Memory from './memory/Memory.svelte';
import Modules from './modules/Modules.svelte';
import Operators from './operators/Operators.svelte';
import Overview from './overview/Overview.svelte';
import { countCompilations } from './overview/verdict';
import Recompiles from './recompiles/Recompiles.svelte';
import StepBreakdown from './step_breakdown/StepBreakdown.svelte';
import Timeline from './timeline/Timeline.svelte';

/** A place in the sidebar. A panel whose half of the data is missing stays there, dimmed, and says how to get it. */
export interface Panel {
  id: string;
  title: string;
  needs: 'any' | 'compile' | 'itself';
  count: (compile: Compile | null, span: Span | null) => number | null;
  // Each panel states its own props; all are drawn from the same two halves.
  component: Component<{ compile: Compile; span: Span | null }> | Component<{ compile: Compile }>;
}

export const PANELS: Panel[] = [
  {
    id: 'overview',
    title: 'Overview',
    needs: 'any',
    count: () => null,
    component: Overview as Panel['component'],
  },
  {
    id: 'findings',
    title: 'Findings',
    needs: 'any',
    count: () => findingsOn()?.length ?? null,
    component: Findings as Panel['component'],
  },
  {
    id: 'compile_time',
    title: 'Compile time',
    needs: 'compile',
    count: () => null,
    component: CompileTime,
  },
  {
    id: 'compilations',
    title: 'Compilations',
    needs: 'compile',
    count: (compile) => compile && countCompilations(compile),
    component: Compilations,
  },
  {
    id: 'code',
    title: 'Code',
    needs: 'compile',
    count: () => null,
    component: CodePanel,
  },
  {
    id: 'graph_breaks',
    title: 'Graph breaks',
    needs: 'any',
    count: countSites,
    component: GraphBreaks as Panel['component'],
  },
  {
    id: 'recompiles',
    title: 'Recompiles',
    needs: 'any',
    count: (compile) => compile && compile.recompiles.length,
    component: Recompiles as Panel['component'],
  },
  {
    id: 'compiled_regions',
    title: 'Regions',
    needs: 'any',
    count: (_compile, span) => span && span.compiled_regions.length,
    component: CompiledRegions as Panel['component'],
  },
  {
    id: 'kernels',
    title: 'Kernels',
    needs: 'any',
    // An incomplete trace without kernels may have lost them.
    count: (_compile, span) => span && (countKernels(span) || (span.warnings.length > 0 ? null : 0)),
    component: Kernels as Panel['component'],
  },
  {
    id: 'gpu_utilization',
    title: 'GPU utilization',
    needs: 'any',
    count: () => null,
    component: GpuUtilization as Panel['component'],
  },
  {
    id: 'step_breakdown',
    title: 'Steps',
    needs: 'any',
    count: (_compile, span) => span && (span.steps.length || null),
    component: StepBreakdown as Panel['component'],
  },
  {
    id: 'timeline',
    title: 'Timeline',
    needs: 'itself',
    count: () => null,
    component: Timeline as Panel['component'],
  },
  ...[
    { id: 'operators', title: 'Operators', component: Operators },
    { id: 'memory', title: 'Memory', component: Memory },
    { id: 'modules', title: 'Modules', component: Modules },
    { id: 'compare', title: 'Compare', component: Compare },
  ].map((panel): Panel => ({
    ...panel,
    needs: 'any',
    count: () => null,
    component: panel.component as Panel['component'],
  })),
];
