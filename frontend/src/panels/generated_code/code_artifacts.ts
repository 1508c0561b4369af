/** Which text is shown first, its counterpart in a comparison, and its title there. */
import type { Artifact } from '../../api/types';
import { idLabel, type CompileKey } from '../../names/compile_ids';

/** The default text: the code that runs, or the closest to it. */
export function mainArtifact(artifacts: Artifact[], direction = ''): Artifact | null {
  const own = artifacts.filter((a) => !direction || a.direction === direction);
  const wanted = [
    'inductor_output_code',
    'after_post_grad_graph',
    'inductor_post_grad_graph',
    'dynamo_output_graph',
  ];
  for (const name of wanted) {
    const chosen = (own.length > 0 ? own : artifacts).findLast((a) => a.name === name);
    if (chosen) return own.find((a) => a.name === name && a.attempt === chosen.attempt) ?? chosen;
  }
  return own[0] ?? artifacts[0] ?? null;
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

/** "0/0 forward: AOT forward graph", with the attempt if the other text is of another one. */
export function titleAgainst(
  key: CompileKey,
  { title, direction, attempt }: Artifact,
  other: Artifact,
): string {
  const tried = attempt === other.attempt ? '' : `, attempt ${attempt + 1}`;
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
