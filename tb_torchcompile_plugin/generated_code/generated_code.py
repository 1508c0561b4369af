"""The generated code of a worker, by graph: for a kernel that ran, its definition and the user's lines.

Kernels are found by (graph key, name). Where torch does not tell the key, by compile id, direction and name; there a
name that means different kernels finds none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, direction_of, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, Graph
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code import user_lines as module_paths
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, Frame, artifacts
from tb_torchcompile_plugin.generated_code.output_code import CodeCall, Definition, calls, definitions
from tb_torchcompile_plugin.generated_code.user_lines import (
    distinct_lines,
    lines_of,
    node_lines,
    node_rows,
    provenance,
)
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.torch_names.artifacts import (
    AOT_CODE,
    EXPORTED_GRAPH,
    POST_GRAD_GRAPHS,
    STACK_TRACES,
    is_aot_graph,
    is_captured_graph,
)
from tb_torchcompile_plugin.torch_names.caches import is_ahead, is_package
from tb_torchcompile_plugin.torch_names.kernels import defined_name
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

LinesFrom = Literal["provenance", "comments"]


class GraphPiece(msgspec.Struct, frozen=True):
    """Nodes of a printed graph: the artifact that it is, the numbers of their lines in it (from 1), and these lines."""

    artifact: int
    lines: list[int]
    text: list[str]


Read = Callable[[int], str]

_AROUND = 3


class GraphCode:
    """One output of inductor. Its texts are read when first asked for; one that cannot be read is as if not there."""

    def __init__(
        self, graph: Graph, texts: list[Artifact], users: list[Artifact], before: Artifact | None, read: Read
    ) -> None:
        """texts: the artifacts of this graph. users: the graphs that dynamo captured for its compile id. before: what
        AOTAutograd made of it."""
        self.compile_id = graph.key.compile_id
        self.epoch = graph.key.epoch
        self.graph_key = graph.graph_key or None
        self.direction = direction_of(graph.direction)
        self.file = graph.output_code_file
        self.names = {kernel.name for kernel in graph.kernels}
        self.user_kernels = {kernel.name for kernel in graph.kernels if kernel.category == "triton_user"}
        self.configs = {kernel.name: kernel.config for kernel in graph.kernels if kernel.config}
        self._by_name = {row.name: row.id for row in texts}
        self._users = [row.id for row in users]
        self._before = before.id if before else None
        self._read = read

    @property
    def artifact(self) -> int | None:
        """The artifact that holds the output code: of AOTInductor's texts the one that defines the kernels."""
        return self._by_name[self._codes[0]] if len(self._codes) == 1 else self._defining

    @property
    def _codes(self) -> list[str]:
        return [name for name in (OUTPUT_CODE, *AOT_CODE) if name in self._by_name]

    @once
    def _defining(self) -> int | None:
        defining = [name for name in self._codes if definitions(self._text(name))]
        return self._by_name.get(next(iter((*defining, *self._codes)), ""))

    @once
    def definitions(self) -> dict[str, Definition]:
        each = [definitions(self._text(name)) for name in reversed(self._codes)]
        return {name: row for rows in each for name, row in rows.items()}

    @once
    def calls(self) -> list[CodeCall]:
        return [call for name in self._codes for call in calls(self._text(name))]

    @once
    def nodes(self) -> dict[str, Frame]:
        """Node of the graph after post-grad passes → the user's line. A graph out of the cache tells the lines that it
        was first compiled for: what AOTAutograd made of this one, with nodes of the same names, tells its own."""
        late = next((places for name in POST_GRAD_GRAPHS if (places := node_lines(self._text(name)))), {})
        own = node_lines(self._payload(self._before)) if late and self._before is not None else {}
        moved = {late[node]: place for node, place in own.items() if node in late}
        return {node: own.get(node) or moved.get(place, place) for node, place in late.items()}

    @once
    def user_nodes(self) -> dict[str, Frame]:
        """Node of the graph that dynamo captured → the user's line."""
        places: dict[str, Frame] = {}
        for number in self._users:
            places |= node_lines(self._payload(number))
        return places

    @once
    def _captured_modules(self) -> dict[str, str]:
        """Node of the graph that dynamo captured → the path of its module."""
        paths: dict[str, str] = {}
        for number in self._users:
            paths |= module_paths.captured_modules(self._payload(number))
        return paths

    @once
    def _inputs(self) -> list[module_paths.Input]:
        """Of the graph that dynamo captured; [] where there are several."""
        return module_paths.inputs(self._payload(self._users[0])) if len(self._users) == 1 else []

    @once
    def _late(self) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
        """The statements of the graph after post-grad passes by node, and the shapes of its inputs."""
        text = next((text for name in POST_GRAD_GRAPHS if (text := self._text(name))), "")
        return node_rows(text), module_paths.shapes(text)

    @once
    def _modules_at(self) -> dict[tuple[str, int], list[str]]:
        """The modules of the captured nodes at each line."""
        pairs = ((node, self.user_nodes[node]) for node in self._captured_modules if node in self.user_nodes)
        by_line = grouped(pairs, lambda pair: (pair[1].file, pair[1].line))
        return {line: [self._captured_modules[node] for node, _ in rows] for line, rows in by_line.items()}

    @once
    def _stacks(self) -> dict[str, list[Frame]]:
        return provenance(self._text(STACK_TRACES))

    def lines(self, definition: Definition) -> tuple[list[Frame], LinesFrom | None]:
        """The user's lines of a kernel and where they are known from."""
        if definition.name in self._stacks:
            return self._stacks[definition.name], "provenance"
        if definition.path:
            file, line = definition.path
            return [Frame(file, line, definition.name, definition.signature)], "comments"
        frames = (
            lines_of(definition.nodes, self.nodes)
            or lines_of(definition.source_nodes, self.user_nodes)
            or self._consumers_lines(definition)
        )
        # The comment at the definition is of its first call: another layer may call the same kernel at other lines.
        others = (frame for call in self.calls_of(definition)[1:] for frame in self.call_lines(call))
        frames = distinct_lines((*frames, *others))
        return frames, "comments" if frames else None

    def call_lines(self, call: CodeCall) -> list[Frame]:
        """The lines of one call of a library or of a generated kernel."""
        if call.operator:
            return lines_of(_call_nodes(call), self.nodes) or lines_of(call.source_nodes, self.user_nodes)
        # In a backward nodes of the captured graph are only those whose results it takes.
        tried = (self.nodes, self.user_nodes)[:: 1 if self.direction == "backward" else -1]
        return next((lines for nodes in tried if (lines := lines_of(call.source_nodes, nodes))), [])

    def calls_of(self, definition: Definition) -> list[CodeCall]:
        """The calls of a generated kernel, in the order in which they run."""
        return self._calls_by_kernel.get(definition.variable, [])

    @once
    def _calls_by_kernel(self) -> dict[str | None, list[CodeCall]]:
        return grouped(self.calls, lambda call: call.kernel)

    def modules(self, made: Definition | CodeCall) -> list[str]:
        """The paths of the modules that a kernel or a call computes, "" being the one that was compiled: of the nodes
        that dynamo captured, else of the parameters that it takes, else what all modules at its lines have in common;
        [] where nothing tells."""
        library = isinstance(made, CodeCall) and made.operator is not None
        # Nodes of a library's call stand in their order: in a forward the others only lead to it.
        named = made.source_nodes[-1:] if library and self.direction == "forward" else made.source_nodes
        if paths := [self._captured_modules[node] for node in named if node in self._captured_modules]:
            return list(dict.fromkeys(paths))
        nodes = made.nodes if isinstance(made, Definition) else _call_nodes(made) or made.source_nodes
        statements, primals = self._late
        lines = (statements[node][1] for node in nodes if node in statements)
        if paths := module_paths.taken_primals(lines, self._inputs, primals):
            return list(dict.fromkeys(paths))
        frames = self.call_lines(made) if isinstance(made, CodeCall) else self.lines(made)[0]
        at_lines = [path for row in frames for path in self._modules_at.get((row.file, row.line), [])]
        return [module_paths.common(at_lines)] if at_lines else []

    def piece(self, made: Definition | Iterable[CodeCall]) -> GraphPiece | None:
        """What a kernel or these calls compute: nodes of the graph after post-grad passes, else of the one that dynamo
        captured; None where neither was recorded, or has none of them."""
        if isinstance(made, Definition) and not (made.nodes or made.source_nodes):
            taker = self._taker(made)
            made = [taker] if taker else []
        calls = [] if isinstance(made, Definition) else list(made)
        nodes = (
            made.nodes if isinstance(made, Definition) else [n for call in calls for n in _call_nodes(call)]
        )
        # Nodes of a call stand in their order: it is the last one, the others lead to it.
        users = (
            made.source_nodes
            if isinstance(made, Definition)
            else [n for c in calls for n in c.source_nodes[-1:]]
        )
        late = [self._by_name[name] for name in POST_GRAD_GRAPHS if name in self._by_name]
        tried = [*((number, nodes) for number in late), *((number, users) for number in self._users)]
        return next((piece for number, wanted in tried if (piece := self._piece(number, wanted))), None)

    def _piece(self, number: int, nodes: list[str]) -> GraphPiece | None:
        rows = node_rows(self._payload(number)) if nodes else {}
        lines = sorted({rows[node] for node in nodes if node in rows})
        return GraphPiece(number, [row for row, _ in lines], [text for _, text in lines]) if lines else None

    def context(self, lines: list[Frame]) -> list[Frame]:
        """The known lines at most _AROUND from these, which are among them; in the order of the files."""
        known = {
            (frame.file, frame.line): frame for frame in (*self.user_nodes.values(), *self.nodes.values())
        }
        known |= {(frame.file, frame.line): frame for frame in lines}
        near = {(line.file, line.line + by) for line in lines for by in range(-_AROUND, _AROUND + 1)}
        return [known[place] for place in sorted(near & known.keys())]

    def _consumers_lines(self, definition: Definition) -> list[Frame]:
        taker = self._taker(definition)
        return self.call_lines(taker) if taker else []

    def _taker(self, definition: Definition) -> CodeCall | None:
        """A kernel that only changes a layout has no node of its own: it belongs to the call that takes its result."""
        if definition.source_nodes or definition.nodes:
            return None
        for place, call in enumerate(self.calls):
            if call.kernel == definition.name and call.buffers:
                takers = (c for c in self.calls[place + 1 :] if c.operator and c.buffers & call.buffers)
                return next(takers, None)
        return None

    def _text(self, name: str) -> str:
        return self._payload(self._by_name[name]) if name in self._by_name else ""

    def _payload(self, number: int) -> str:
        try:
            return self._read(number)
        except UserError:
            return ""


def _call_nodes(call: CodeCall) -> list[str]:
    """The node of a library call: its comment also lists what led to it, but one called like its operator is it."""
    operator = (call.operator or "").rpartition("::")[2]
    return [node for node in call.source_nodes if re.fullmatch(re.escape(operator) + r"(_\d+)?", node)][-1:]


@dataclass(frozen=True)
class Generated:
    """A kernel that ran, as its output code defines it."""

    code: GraphCode
    definition: Definition

    @property
    def lines(self) -> tuple[list[Frame], LinesFrom | None]:
        return self.code.lines(self.definition)


class GeneratedCode:
    """All output codes of a worker."""

    def __init__(self, data: CompileData | None) -> None:
        self.graphs = _graphs(data) if data else []
        self._by_key = grouped(self.graphs, lambda graph: graph.graph_key)
        self._by_id = grouped(self.graphs, lambda graph: graph.compile_id)

    def graph(self, compile_id: str | None, graph_key: str | None) -> GraphCode | None:
        """The graph of this key; of several compile ids that share it this one's, of several epochs the newest."""
        graphs = self._by_key.get(graph_key, []) if graph_key else []
        mine = [graph for graph in graphs if graph.compile_id == compile_id] or graphs
        return mine[-1] if mine else None

    def find(
        self, name: str, compile_id: str | None, graph_key: str | None, direction: Direction | None = None
    ) -> Generated | None:
        """The definition of the kernel that the GPU calls `name`. C++ kernels are traced as graph_3_<name>."""
        graph = self.graph(compile_id, graph_key)
        if graph is not None:
            return _in(graph, name)
        graphs = self._by_id.get(compile_id or "", [])
        matches = [
            generated
            for graph in graphs
            if direction in (None, graph.direction) and (generated := _in(graph, name))
        ]
        sources = {generated.definition.source for generated in matches}
        return matches[-1] if len(sources) == 1 else None

    @once
    def user_kernels(self) -> set[str]:
        """The Triton kernels among them that the user wrote."""
        return set().union(*(graph.user_kernels for graph in self.graphs))

    @once
    def packages(self) -> dict[str, str]:
        """Kernel names that exactly one package of AOTInductor defines, with its compile id."""
        owners: dict[str, set[str]] = defaultdict(set)
        for graph in self.graphs:
            for name in graph.names if is_package(graph.compile_id) else ():
                owners[name].add(graph.compile_id)
        return {name: ids.pop() for name, ids in owners.items() if len(ids) == 1}

    @once
    def defined_once(self) -> dict[str, GraphCode]:
        """Kernel names that exactly one graph defines, with it."""
        owners: dict[str, list[GraphCode]] = defaultdict(list)
        for graph in self.graphs:
            for name in graph.names:
                owners[name].append(graph)
        return {name: graphs[0] for name, graphs in owners.items() if len(graphs) == 1}


def _in(graph: GraphCode, name: str) -> Generated | None:
    definition = graph.definitions.get(name) or graph.definitions.get(defined_name(name))
    return Generated(graph, definition) if definition else None


def _graphs(data: CompileData) -> list[GraphCode]:
    """In the order of the summary. Within a compile id the n-th graph owns the n-th set of texts."""
    texts: dict[tuple[int, str], list[Artifact]] = {}
    counted: dict[tuple[int, str], int] = defaultdict(int)
    graphs = []
    for graph in data.summary.graphs:
        key = key_of(graph.key)
        if key not in texts:
            texts[key] = data.of(artifacts, *key)
        users = [row for row in texts[key] if is_captured_graph(row.name)]
        if is_ahead(graph.key.compile_id):
            users = [row for row in texts[key] if row.name == EXPORTED_GRAPH]
        mine = [row for row in texts[key] if row.graph == counted[key]]
        counted[key] += 1
        before = [row for row in texts[key] if is_aot_graph(row.name, backward=graph.direction == BACKWARD)]
        last = before[0] if len(before) == 1 else None
        graphs.append(GraphCode(graph, mine, users, last, partial(read_payload, data)))
    return graphs
