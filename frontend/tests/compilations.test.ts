import { describe, expect, it } from 'vitest';
import type {
  Artifact,
  Compilation,
  CompilationDetails,
  CompilationRow,
  Compile,
  Frame,
  Metric,
  TrieNode,
} from '../src/api/types';
import {
  artifactGroups,
  counterpart,
  fileName,
  mainArtifact,
  previousPass,
  readable,
} from '../src/panels/code/artifacts';
import { codeKernels, kernelOrigins, kernelTimes, nodeLines } from '../src/panels/code/origins';
import { metricGroups, metricText } from '../src/panels/compilations/metrics';
import { ownOf } from '../src/panels/compilations/own';
import { countedStatus, countStatuses, statusWord, type Status } from '../src/panels/compilations/status';
import { isLibrary, toggled, trieRows } from '../src/panels/compilations/trie';
import { compilationRowKey, compilationRows, phaseColumns, rowAt } from '../src/panels/compile_time/rows';
import { directionLabels } from '../src/panels/shared/compilation_columns';
import { codeKey, parseCodeKey, toCode, toCompilation } from '../src/panels/shared/places';

const frame = (line: number, file = '/home/user/train.py'): Frame => ({
  file,
  line,
  function: 'f',
  source: null,
});
const node = (line: number, children: TrieNode[], ids: string[] = []): TrieNode => ({
  frame: frame(line),
  children,
  compilations: ids.map((compile_id) => ({
    compile_id,
    epoch: 0,
    function: 'f',
    status: 'ok',
    duration_s: 1,
  })),
});
const none = new Set<string>();

describe('the stack trie', () => {
  const tree = [node(1, [node(2, [node(3, [node(4, [node(5, [], ['0/0']), node(6, [], ['1/0'])])])])])];
  const kinds = (rows: ReturnType<typeof trieRows>) =>
    rows.map((row) =>
      row.kind === 'frame' ? row.frame.line : row.kind === 'skipped' ? '…' : row.compilation.compile_id,
    );

  it('shortens chains of calls in which nothing branches', () => {
    expect(kinds(trieRows(tree, none, none))).toEqual([1, '…', 4, 5, '0/0', 6, '1/0']);
    expect(kinds(trieRows(tree, none, new Set(['0'])))).toEqual([1, 2, 3, 4, 5, '0/0', 6, '1/0']);
  });

  it('folds a frame and says what is inside', () => {
    const rows = trieRows(tree, new Set(['0']), none);
    expect(kinds(rows)).toEqual([1]);
    expect(rows[0]).toMatchObject({ open: false, inside: 2 });
  });

  it('has keys that are unique and stay', () => {
    const keys = (shown: ReadonlySet<string>) => trieRows(tree, none, shown).map((row) => row.key);
    expect(new Set(keys(none)).size).toBe(keys(none).length);
    expect(keys(new Set(['0']))).toEqual(
      expect.arrayContaining(keys(none).filter((key) => !key.endsWith('…'))),
    );
    expect([...toggled(toggled(none, 'a'), 'a')]).toEqual([]);
  });

  it('tells library frames from the user’s', () => {
    expect(isLibrary(frame(1))).toBe(false);
    expect(isLibrary(frame(1, '/x/lib/python3.12/site-packages/torch/nn/modules/module.py'))).toBe(true);
    expect(isLibrary(frame(1, '<frozen runpy>'))).toBe(true);
  });
});

describe('statuses', () => {
  it('are words, and counted once a compile id', () => {
    const row = (status: Status, direction = 'forward') => ({ status, direction }) as CompilationRow;
    const rows = [row('ok'), row('break'), row('failed'), row('ok', 'backward'), row('limit')];
    expect(countStatuses(rows).map(([status, n]) => countedStatus(status, n))).toEqual([
      '1 failed',
      '1 hit the recompile limit',
      '1 with a graph break',
      '1 compiled',
    ]);
    expect(statusWord('of a newer server' as Status)).toBe('of a newer server');
  });
});

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

describe('metrics', () => {
  const metric = (name: string, value: string, over: Partial<Metric> = {}): Metric => ({
    group: 'time',
    name,
    value,
    known: true,
    direction: 'forward',
    runtime: false,
    record: 0,
    ...over,
  });
  it('are shown in their units', () => {
    const text = (name: string, value: string) => metricText(metric(name, value)).replaceAll('\u202f', ' ');
    expect(text('gc_time_us', '1500')).toBe('1.50 ms');
    expect(text('code_gen_time_s', '0.5')).toBe('500 ms');
    expect(text('graph_op_count', '12345')).toBe('12,345');
    expect(text('start_time', '1795230217.52')).toBe('1795230217.52');
    expect(text('co_name', '"<lambda>"')).toBe('<lambda>');
    expect(text('dynamo_config', '"{\\"a\\": 1}"')).toBe('{\n  "a": 1\n}');
    expect(text('whatever', 'not JSON')).toBe('not JSON');
    expect(text('flag', 'true')).toBe('true');
  });
  it('are grouped by what they are about', () => {
    const rows = [
      metric('a', '1'),
      metric('b', '1', { direction: 'backward' }),
      metric('c', '1', { runtime: true }),
    ];
    expect(metricGroups(rows).map(({ title }) => title)).toEqual([
      'Time',
      'Time, backward',
      'Time, when it first ran',
    ]);
  });
});

describe('what belongs to a row', () => {
  const timed = (direction: string, start_s: number) => ({ direction, start_s }) as Compilation;
  const text = (id: number, direction: string, graph: number | null) =>
    ({ id, direction, graph }) as Artifact;
  const details = (rows: Compilation[]) =>
    ({
      rows,
      artifacts: [
        text(1, 'forward', null),
        text(2, 'forward', 0),
        text(3, 'backward', null),
        text(4, 'backward', 1),
        text(5, 'backward', 2),
      ],
      metrics: [
        { name: 'a', direction: 'forward', record: 0 },
        { name: 'b', direction: 'backward', record: 0 },
        { name: 'c', direction: 'backward', record: 1 },
      ],
    }) as unknown as CompilationDetails;
  const own = (rows: Compilation[], row: Compilation) => {
    const { part, artifacts, metrics } = ownOf(details(rows), row as unknown as CompilationRow);
    return [part, artifacts.map(({ id }) => id), metrics.map(({ name }) => name)];
  };

  it('is of its direction, and of its bucket where there are several', () => {
    const rows = [timed('forward', 1), timed('backward', 2), timed('backward', 3)];
    expect(own(rows, rows[0]!)).toEqual([0, [1, 2], ['a']]);
    expect(own(rows, rows[1]!)).toEqual([0, [3, 4], ['b']]);
    expect(own(rows, rows[2]!)).toEqual([1, [3, 5], ['c']]);
  });

  it('is also the backward that was compiled together with the forward', () => {
    const rows = [timed('forward', 1)];
    expect(own(rows, rows[0]!)).toEqual([0, [1, 2, 3, 4, 5], ['a', 'b', 'c']]);
  });
});

describe('compile time', () => {
  const row = (compile_id: string, direction: string, start_s: number | null, phases: object | null = null) =>
    ({
      compile_id,
      epoch: 0,
      direction,
      start_s,
      duration_s: 2,
      phases_s: phases,
      cache: [],
    }) as unknown as Compilation;
  const compile = {
    compilations: [
      row('0/0', 'forward', 10, { inductor: 1, other: 0.5, dynamo: 0.5 }),
      row('0/0', 'backward', 20, { triton: 2 }),
      row('1/0', 'forward', null),
    ],
  } as Compile;
  const rows = compilationRows(compile, null);

  it('has a column for each phase, in the order of the pipeline, the rest last', () => {
    const columns = phaseColumns(rows);
    expect(columns.map((c) => c.label)).toEqual(['Dynamo', 'Inductor', 'Triton, C++', 'Other']);
    expect(columns.map((c) => c.value(rows[0]!))).toEqual([0.5, 1, 0, 0.5]);
    expect(columns.map((c) => c.value(rows[2]!))).toEqual([null, null, null, null]);
  });

  it('tells several backwards of one frame apart, and links to each', () => {
    const ddp = compilationRows(
      { compilations: ['forward', 'backward', 'backward'].map((d, i) => row('4/0', d, i)) } as Compile,
      null,
    );
    expect(ddp.map(compilationRowKey)).toEqual(['4/0,0,forward', '4/0,0,backward', '4/0,0,backward~2']);
    expect([...directionLabels(ddp).values()]).toEqual(['forward', 'backward 1 of 2', 'backward 2 of 2']);
    expect(toCompilation(ddp[2]!, 'backward', 1).row).toBe('compilation:4/0,0,backward~2');
  });

  it('leads from a span to the row that was being compiled then', () => {
    expect(rowAt(rows, '0/0', 11)?.direction).toBe('forward');
    expect(rowAt(rows, '0/0', 21)?.direction).toBe('backward');
    expect(rowAt(rows, '0/0', 99)?.direction).toBe('forward');
    expect(rowAt(rows, '1/0', 1)?.compile_id).toBe('1/0');
    expect(rowAt(rows, '', 1)).toBeNull();
  });
});

describe('addresses of code', () => {
  it('name the compilation, its epoch, the text and the line', () => {
    expect([codeKey({ compile_id: '0/0' }), codeKey({ compile_id: '!1/2/0', epoch: 2 })]).toEqual([
      '0/0',
      '!1/2/0,2',
    ]);
    expect(parseCodeKey('!1/2/0,2')).toEqual({ compile_id: '!1/2/0', epoch: 2 });
    expect(parseCodeKey('0/0')).toEqual({ compile_id: '0/0', epoch: 0 });
    expect(parseCodeKey('')).toBeNull();
    const place = toCode(
      { compile_id: '0/0' },
      { artifact: 0, line: 3, other: { key: { compile_id: '0/1' }, artifact: 7 } },
    );
    expect(place).toMatchObject({
      panel: 'code',
      code: '0/0',
      artifact: '0',
      line: '3',
      code2: '0/1',
      artifact2: '7',
    });
  });
});
