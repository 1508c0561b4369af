import { describe, expect, it } from 'vitest';
import type { Artifact } from '../../src/api/types';
import { artifactGroups, previousPass } from '../../src/names/artifacts';
import { counterpart, fileName, mainArtifact, readable } from '../../src/panels/code/artifacts';
import { codeKernels, kernelOrigins, kernelTimes, nodeLines } from '../../src/panels/code/origins';

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

const CODE = `
# kernel path: /tmp/ind/r7/x.py
# Topologically Sorted Source Nodes: [input_1, input_2], Original ATen: [aten.addmm, aten.relu]
# Graph fragment:
#   %mm : Tensor "f32[128]cuda:0" = PlaceHolder[target=mm]
#   %add : Tensor "f32[128]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mm,))
#   %relu : [num_users=2] = call_function[target=torch.ops.aten.relu.default](args = (%add,), kwargs = {})
#   return %relu
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
def triton_poi_fused_0(x): pass
''')
cpp_fused_1 = async_compile.cpp_pybinding(['float*'], r''' ''')
def call(args):
        triton_poi_fused_0.run(buf0, stream=stream0)
        cpp_fused_1(buf1)
`.split('\n');
const GRAPH = `class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[2]"):
        # File: /home/user/train.py:68 in <lambda>, code: x = f(x) # <b>
        add: "f32[2]" = torch.ops.aten.add.Tensor(primals_1, 1)
        relu: "f32[2]" = torch.ops.aten.relu.default(add);  add = None
        # No stacktrace found for following nodes
        mul: "f32[2]" = torch.ops.aten.mul.Tensor(relu, 2)
`;

describe('kernels of an output code', () => {
  const kernels = codeKernels(CODE);
  it('are found with their definition, calls and nodes', () => {
    expect(kernels.map((k) => k.name)).toEqual(['triton_poi_fused_0', 'cpp_fused_1']);
    expect(CODE[kernels[0]!.line]).toContain('triton_poi_fused_0 = ');
    expect(kernels.map((k) => k.calls.map((line) => CODE[line]!.trim()))).toEqual([
      ['triton_poi_fused_0.run(buf0, stream=stream0)'],
      ['cpp_fused_1(buf1)'],
    ]);
    expect(kernels[0]).toMatchObject({ nodes: ['add', 'relu'], sources: 'input_1, input_2' });
  });

  it('lead to the user’s lines by the comments of the graph', () => {
    expect([...nodeLines(GRAPH).keys()]).toEqual(['add', 'relu']);
    const origins = kernelOrigins(kernels, GRAPH, null);
    expect(origins.get('triton_poi_fused_0')).toEqual({
      by: 'comments',
      lines: [{ file: '/home/user/train.py', line: 68, function: '<lambda>', source: 'x = f(x) # <b>' }],
    });
    expect(origins.has('cpp_fused_1')).toBe(false);
  });

  it('prefer torch’s provenance', () => {
    const stack =
      'File "/a.py", line 1, in <module>\n    main()\nFile "/a.py", line 7, in main\n    y = relu(x)';
    const origins = kernelOrigins(kernels, GRAPH, JSON.stringify({ 'triton_poi_fused_0:3': [stack] }));
    expect(origins.get('triton_poi_fused_0')).toEqual({
      by: 'provenance',
      lines: [{ file: '/a.py', line: 7, function: 'main', source: 'y = relu(x)' }],
    });
    expect(kernelOrigins(kernels, GRAPH, 'not JSON').get('triton_poi_fused_0')?.by).toBe('comments');
    expect(kernelOrigins(kernels, null, 'null').size).toBe(0);
  });

  it('carry their run time', () => {
    const run = (name: string, compile_id: string) =>
      ({ name, compile_id, time_us: 5, launches: 2 }) as never;
    const times = kernelTimes([run('a', '0/0'), run('graph_3_a', '0/0'), run('a', '1/0')], '0/0');
    expect([...times]).toEqual([['a', { time_us: 10, launches: 4 }]]);
  });
});
