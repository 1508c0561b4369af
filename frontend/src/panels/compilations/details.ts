/** The texts that belong to one row of a compilation. */
import type { Artifact, Compilation, CompilationDetails } from '../../api/types';

/** Those of its frame, or of a backward that was compiled later. */
export function artifactsOf(
  details: CompilationDetails,
  { direction, part, parts }: Compilation,
): Artifact[] {
  const elsewhere = new Set(details.rows.map((row) => row.direction).filter((d) => d !== direction));
  // A backward that was compiled together with its forward has no row of its own.
  const artifacts = details.artifacts.filter((item) => !elsewhere.has(item.direction));
  return ofPart(artifacts, direction, part, parts);
}

/** Graphs are numbered in the order of time, as the rows are; where both are not as many, nothing is left out. */
function ofPart(artifacts: Artifact[], direction: string, part: number, parts: number): Artifact[] {
  const graphs = [
    ...new Set(artifacts.flatMap((a) => (a.direction === direction && a.graph !== null ? [a.graph] : []))),
  ].sort((a, b) => a - b);
  if (parts < 2 || graphs.length !== parts) return artifacts;
  return artifacts.filter(({ graph }) => graph === null || graph === graphs[part]);
}
