/** The texts of a compilation: which belong together, and which can be compared. */
import type { Artifact } from '../api/types';

interface ArtifactGroup {
  title: string;
  artifacts: Artifact[];
}

/** Group texts by attempt and direction, in the order of the pipeline. */
export function artifactGroups(artifacts: Artifact[]): ArtifactGroup[] {
  const last = Math.max(0, ...artifacts.map(({ attempt }) => attempt));
  const graphs = { forward: new Set<number>(), backward: new Set<number>() };
  for (const { direction, graph } of artifacts) if (graph !== null) graphs[direction].add(graph);
  const groups = new Map<string, Artifact[]>();
  for (const artifact of artifacts) {
    const { attempt, direction, graph } = artifact;
    const words = [direction === 'backward' ? 'Backward' : 'Forward'];
    const own = [...graphs[direction]].sort((a, b) => a - b);
    if (graph !== null && own.length > 1) words.push(`graph ${own.indexOf(graph) + 1} of ${own.length}`);
    if (attempt < last) words.push(`attempt ${attempt + 1} of ${last + 1}`);
    const title = words.join(', ');
    groups.set(title, [...(groups.get(title) ?? []), artifact]);
  }
  return [...groups].map(([title, of]) => ({ title, artifacts: of }));
}

/** Graphs in the order of the pipeline: the difference of two neighbours is what the passes between them did. */
const PIPELINE = `dynamo_output_graph before_pre_grad_graph inductor_pre_grad_graph after_pre_grad_graph
  aot_joint_graph before_joint_graph after_joint_graph aot_inference_graph aot_forward_graph aot_backward_graph
  inductor_input_graph before_post_grad_graph inductor_post_grad_graph after_post_grad_graph`.split(/\s+/);
const rankOf = ({ name }: Artifact) => PIPELINE.indexOf(name);
/** Up to the joint graph, both directions have the same graphs. */
const isShared = (artifact: Artifact) => rankOf(artifact) <= PIPELINE.indexOf('after_joint_graph');

/** The input graph of the passes that wrote this one; null for the first graph and for other texts. */
export function previousPass(artifacts: Artifact[], artifact: Artifact): Artifact | null {
  const { attempt, direction, graph } = artifact;
  const before = artifacts
    .filter((a) => a.attempt === attempt && rankOf(a) >= 0 && rankOf(a) < rankOf(artifact))
    .filter((a) => a.direction === direction || isShared(a))
    .filter((a) => a.graph === null || graph === null || a.graph === graph);
  return before.toSorted((a, b) => rankOf(b) - rankOf(a))[0] ?? null;
}
