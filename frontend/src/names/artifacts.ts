/** The texts of a compilation: in which order, which belong together, which can be compared. */
import type { Artifact } from '../api/types';

interface ArtifactGroup {
  title: string;
  artifacts: Artifact[];
}

/** Group texts by attempt and direction, in the order of the pipeline. */
export function artifactGroups(artifacts: Artifact[]): ArtifactGroup[] {
  const last = artifacts.reduce((most, { attempt }) => Math.max(most, attempt), 0);
  const several = new Set(artifacts.filter((a) => a.graph !== null).map((a) => `${a.direction} ${a.graph}`));
  const numbers = new Map<string, Set<number>>();
  for (const key of several) {
    const [direction, graph] = key.split(' ') as [string, string];
    numbers.set(direction, (numbers.get(direction) ?? new Set()).add(Number(graph)));
  }
  const groups = new Map<string, Artifact[]>();
  for (const artifact of artifacts) {
    const title = groupTitle(artifact, last, numbers);
    groups.set(title, [...(groups.get(title) ?? []), artifact]);
  }
  return [...groups].map(([title, of]) => ({ title, artifacts: of }));
}

function groupTitle(artifact: Artifact, last: number, numbers: Map<string, Set<number>>): string {
  const { attempt, direction, graph } = artifact;
  const words = [direction === 'backward' ? 'Backward' : 'Forward'];
  const own = [...(numbers.get(direction) ?? [])].sort((a, b) => a - b);
  if (graph !== null && own.length > 1) words.push(`graph ${own.indexOf(graph) + 1} of ${own.length}`);
  if (attempt < last) words.push(`attempt ${attempt + 1} of ${last + 1}`);
  return words.join(', ');
}

/** Graphs that follow one another in the pipeline: the difference is what the passes between them did. */
const PIPELINE = [
  'dynamo_output_graph',
  'before_pre_grad_graph',
  'inductor_pre_grad_graph',
  'after_pre_grad_graph',
  'aot_joint_graph',
  'before_joint_graph',
  'after_joint_graph',
  'aot_inference_graph',
  'aot_forward_graph',
  'aot_backward_graph',
  'inductor_input_graph',
  'before_post_grad_graph',
  'inductor_post_grad_graph',
  'after_post_grad_graph',
];

/** The input graph of the passes that wrote this one; null for the first graph and for other texts. */
export function previousPass(artifacts: Artifact[], artifact: Artifact): Artifact | null {
  const rank = PIPELINE.indexOf(artifact.name);
  if (rank < 0) return null;
  const before = artifacts.filter(
    (a) =>
      a.attempt === artifact.attempt &&
      PIPELINE.indexOf(a.name) >= 0 &&
      PIPELINE.indexOf(a.name) < rank &&
      // The joint graph and all before it serve both directions.
      (a.direction === artifact.direction ||
        PIPELINE.indexOf(a.name) <= PIPELINE.indexOf('after_joint_graph')) &&
      (a.graph === null || artifact.graph === null || a.graph === artifact.graph),
  );
  return before.reduce<Artifact | null>(
    (best, a) => (best && PIPELINE.indexOf(best.name) >= PIPELINE.indexOf(a.name) ? best : a),
    null,
  );
}
