/** The texts of a compilation: in which order, which belong together, which can be compared. */
import type { Artifact } from '../../api/types';
import { idLabel, type CompileKey } from '../shared/places';

export interface ArtifactGroup {
  title: string;
  artifacts: Artifact[];
}

/** Attempts that were given up, the final one, its backward, and what is about all of it. The order of the pipeline stays. */
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

/** What a reader who did not say wants to see: the code that runs, or what comes nearest to it. */
export function mainArtifact(artifacts: Artifact[], direction = ''): Artifact | null {
  const own = artifacts.filter((a) => !direction || a.direction === direction);
  const wanted = [
    'inductor_output_code',
    'after_post_grad_graph',
    'inductor_post_grad_graph',
    'dynamo_output_graph',
  ];
  for (const name of wanted) {
    const found = (own.length > 0 ? own : artifacts).findLast((a) => a.name === name);
    if (found) return own.find((a) => a.name === name && a.attempt === found.attempt) ?? found;
  }
  return own[0] ?? artifacts[0] ?? null;
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

/** The graph that went into the passes of which this one came out; null for the first one and for what is no graph. */
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

/** The artifact of another compilation, or of the other direction, that is the counterpart of this one. */
export function counterpart(
  artifacts: Artifact[],
  of: Artifact,
  direction: string = of.direction,
): Artifact | null {
  const names: Record<string, string> = {
    aot_forward_graph: direction === 'backward' ? 'aot_backward_graph' : of.name,
    aot_backward_graph: direction === 'forward' ? 'aot_forward_graph' : of.name,
  };
  const name = names[of.name] ?? of.name;
  const same = artifacts.filter((a) => a.name === name && a.direction === direction);
  return same.find((a) => a.graph === of.graph) ?? same.at(-1) ?? null;
}

/** "0/0 forward: AOT forward graph", with the attempt where the text beside it is of another one. */
export function titleBeside(
  key: CompileKey,
  { title, direction, attempt }: Artifact,
  beside: Artifact,
): string {
  const tried = attempt === beside.attempt ? '' : `, attempt ${attempt + 1}`;
  return `${idLabel(key)} ${direction}: ${title}${tried}`;
}

/** "0_0_forward_inductor_output_code.py" */
export function fileName(compile_id: string, { name, direction, language }: Artifact): string {
  const end = { python: 'py', cpp: 'cpp', json: 'json', text: 'txt' }[language];
  return `${compile_id}_${direction}_${name}`.replace(/[^\w.-]+/g, '_') + `.${end}`;
}

/** JSON on one line is unfolded for reading; what is copied and downloaded stays as it was. */
export function readable(text: string, language: string): string {
  if (language !== 'json' || text.length > 2e6) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
