import type { Compile, Span } from './types';

/** How many places broke a graph; null where neither a log nor stacks in the trace can tell. */
export function countSites(compile: Compile | null, span: Span | null): number | null {
  if (!compile && !span?.graph_break_costs) return null;
  return (span?.graph_break_sites ?? compile?.reported_sites ?? []).length;
}
