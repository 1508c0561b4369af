/** What of a compile id belongs to one of its rows: the frame, or one of the backwards that were compiled later. */
import type { Artifact, Compilation, CompilationDetails, Metric } from '../../../api/types';

export interface Own {
  artifacts: Artifact[];
  metrics: Metric[];
}

export function ownOf(details: CompilationDetails, { direction, part, parts }: Compilation): Own {
  const elsewhere = new Set(details.rows.map((row) => row.direction).filter((d) => d !== direction));
  // A backward that was compiled together with its forward has no row of its own.
  const ofRow = <T extends Artifact | Metric>(items: T[]) =>
    items.filter((item) => !elsewhere.has(item.direction));
  return {
    artifacts: ofPart(ofRow(details.artifacts), direction, part, parts),
    metrics: ofRow(details.metrics).filter((m) => parts < 2 || m.runtime || m.record === part),
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
