import { describe, expect, it } from 'vitest';
import type { Artifact } from '../../src/api/types';
import { artifactGroups, previousPass } from '../../src/names/artifacts';
import {
  counterpart,
  fileName,
  mainArtifact,
  readable,
} from '../../src/panels/generated_code/code_artifacts';

const artifact = (id: number, name: string, over: Partial<Artifact> = {}): Artifact => ({
  id,
  name,
  title: name,
  attempt: 1,
  direction: 'forward',
  graph: null,
  encoding: 'string',
  language: 'python',
  bytes: 10,
  ...over,
});
const backward = { direction: 'backward', graph: 1 } as const;
const texts = [
  artifact(0, 'dynamo_graph_break_reason', { attempt: 0 }),
  artifact(1, 'dynamo_output_graph'),
  artifact(2, 'before_pre_grad_graph'),
  artifact(5, 'aot_joint_graph'),
  artifact(8, 'aot_forward_graph'),
  artifact(9, 'aot_backward_graph', { direction: 'backward' }),
  artifact(11, 'before_post_grad_graph', { graph: 0 }),
  artifact(12, 'inductor_post_grad_graph', { graph: 0 }),
  artifact(13, 'inductor_output_code', { graph: 0 }),
  artifact(21, 'before_post_grad_graph', backward),
  artifact(23, 'inductor_output_code', backward),
  artifact(30, 'dynamo_cpp_guards_str', { language: 'text' }),
];
const byId = (id: number) => texts.find((a) => a.id === id)!;

describe('artifacts', () => {
  it('are grouped by direction and attempt', () => {
    expect(artifactGroups(texts).map(({ title, artifacts }) => [title, artifacts.length])).toEqual([
      ['Forward, attempt 1 of 2', 1],
      ['Forward', 8],
      ['Backward', 3],
    ]);
    const split = [
      artifact(1, 'inductor_output_code', { graph: 0 }),
      artifact(2, 'inductor_output_code', { graph: 2 }),
    ];
    expect(artifactGroups(split).map(({ title }) => title)).toEqual([
      'Forward, graph 1 of 2',
      'Forward, graph 2 of 2',
    ]);
  });

  it('opens with the code that runs, or what comes nearest', () => {
    expect(mainArtifact(texts)?.id).toBe(13);
    expect(mainArtifact(texts, 'backward')?.id).toBe(23);
    expect(mainArtifact(texts.slice(0, 3))?.id).toBe(1);
    expect(mainArtifact(texts.slice(0, 1))?.id).toBe(0);
    expect(mainArtifact([])).toBeNull();
  });

  it('know the pass before', () => {
    const before = (id: number) => previousPass(texts, byId(id))?.id ?? null;
    expect([1, 2, 8, 9, 11, 12, 21, 13].map(before)).toEqual([null, 1, 5, 5, 8, 11, 9, null]);
  });

  it('know their counterparts', () => {
    expect(counterpart(texts, byId(8), 'backward')?.id).toBe(9);
    expect(counterpart(texts, byId(13), 'backward')?.id).toBe(23);
    expect(counterpart(texts, byId(30), 'backward')).toBeNull();
  });

  it('have file names and readable JSON', () => {
    expect(fileName('0/0', byId(13))).toBe('0_0_forward_inductor_output_code.py');
    expect(fileName('../..\u0000', artifact(1, '<x>', { language: 'text' }))).toMatch(/^[\w.]+$/);
    expect(readable('{"a":1}', 'json')).toBe('{\n  "a": 1\n}');
    expect(readable('{"a":', 'json')).toBe('{"a":');
    expect(readable('{"a":1}', 'text')).toBe('{"a":1}');
  });
});
