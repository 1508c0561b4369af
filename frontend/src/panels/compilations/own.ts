/** What of a compile id belongs to one of its rows: the frame, or one of the backwards that were compiled later. */
import type { Artifact, Compilation, CompilationDetails, CompilationRow, Metric } from '../../api/types';

export interface Own {
  /** Which of several rows of its direction it is, from 0: under DDP each bucket has a backward of its own. */
  part: number;
  row: Compilation | undefined;
  artifacts: Artifact[];
  metrics: Metric[];
}

export function ownOf(details: CompilationDetails, row: CompilationRow): Own {
  const rows = details.rows.filter(({ direction }) => direction === row.direction);
  const part = Math.max(
    0,
    rows.findIndex(({ start_s }) => start_s === row.start_s),
  );
  const elsewhere = new Set(
    details.rows.map(({ direction }) => direction).filter((d) => d !== row.direction),
  );
  // A backward that was compiled together with its forward has no row of its own.
  const ofRow = <T extends { direction: string }>(items: T[]) =>
    items.filter(({ direction }) => !elsewhere.has(direction as Artifact['direction']));
  return {
    part,
    row: rows[part],
    artifacts: ofPart(ofRow(details.artifacts), row.direction, part, rows.length),
    metrics: ofRow(details.metrics).filter((m) => rows.length < 2 || m.runtime || m.record === part),
  };
}

/** Graphs are numbered in the order of time, as the rows are; where both are not as many, nothing is left out. */
function ofPart(artifacts: Artifact[], direction: string, part: number, parts: number): Artifact[] {
  const graphs = [
    ...new Set(artifacts.flatMap((a) => (a.direction === direction && a.graph !== null ? [a.graph] : []))),
  ].sort((a, b) => a - b);
  if (parts < 2 || graphs.length !== parts) return artifacts;
  return artifacts.filter(({ graph }) => graph === null || graph === graphs[part]);
}
