/** How many there are of what a panel lists: known before the panel is opened. */
import type { Compile, Span } from './types';

/** Frames compiled; a backward that is compiled later belongs to the same compilation. */
export function countCompilations(compile: Compile): number {
  return new Set(compile.compilations.map((c) => `${c.epoch} ${c.compile_id}`)).size;
}

/** How many places broke a graph; null where neither a log nor stacks in the trace can tell. */
export function countSites(compile: Compile | null, span: Span | null): number | null {
  if (!compile && !span?.graph_break_costs) return null;
  const places = [...(span?.graph_break_sites ?? []), ...(compile?.graph_breaks ?? [])];
  return new Set(places.map(({ file, line, reason }) => `${file}:${line ?? ''}:${reason}`)).size;
}
