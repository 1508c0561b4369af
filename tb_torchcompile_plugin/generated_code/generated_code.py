"""Which code did inductor generate for a kernel that ran, and which of the user's lines does it compute?

Kernels are found by (graph key, name). Where torch does not write the key, by compile id, direction and name; there a
name that means different kernels finds none.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, direction_of, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, Graph
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code import user_lines as module_paths
from tb_torchcompile_plugin.generated_code.output_code import (
    Artifact,
    CodeCall,
    Definition,
    Frame,
    artifacts,
    parse_calls,
    parse_definitions,
)
from tb_torchcompile_plugin.generated_code.user_lines import lines_of, node_lines, node_rows, provenance
from tb_torchcompile_plugin.reader.arrays import grouped, only_owners
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import cached_once
from tb_torchcompile_plugin.torch_names.artifacts import (
    AOT_CODE,
    EXPORTED_GRAPH,
    POST_GRAD_GRAPHS,
    STACK_TRACES,
    is_aot_graph,
    is_captured_graph,
)
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time, is_package
from tb_torchcompile_plugin.torch_names.kernels import defined_name
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

LineOrigin = Literal["provenance", "comments", "capture"]


class GraphPiece(msgspec.Struct, frozen=True):
    """Nodes of a printed graph."""

    artifact: int  # the printed graph
    lines: list[int]  # the numbers of their lines in it, from 1
    text: list[str]  # these lines


_CONTEXT_LINES = 3  # shown before and after a line; a choice of taste


class GraphCode:
    """One output of inductor. Its texts are read when first asked for; one that cannot be read counts as missing."""

    def __init__(
        self,
        graph: Graph,
        texts: list[Artifact],
        captured: list[Artifact],
        before: Artifact | None,
        read: Callable[[int], str],
    ) -> None:
        """texts: the artifacts of this graph. captured: the graphs that dynamo captured for its compile id.

        before: what AOTAutograd made of them.
        """
        self.compile_id = graph.key.compile_id
        self.epoch = graph.key.epoch
        self.graph_key = graph.graph_key or None
        self.direction = direction_of(graph.direction)
        self.file = graph.output_code_file
        self.names = {kernel.name for kernel in graph.kernels}
        self.user_kernels = {kernel.name for kernel in graph.kernels if kernel.category == "triton_user"}
        self.configs = {kernel.name: kernel.config for kernel in graph.kernels if kernel.config}
        self._by_name = {row.name: row.id for row in texts}
        self._captured = [row.id for row in captured]
        self._before = before.id if before else None
        self._read = read

    @property
    def _codes(self) -> list[str]:
        return [name for name in (OUTPUT_CODE, *AOT_CODE) if name in self._by_name]

    @cached_once
    def artifact(self) -> int | None:
        """The artifact that holds the output code: of AOTInductor's texts the one that defines the kernels."""
        several = len(self._codes) > 1
        defining = [name for name in self._codes if parse_definitions(self._text(name))] if several else []
        return self._by_name.get(next(iter((*defining, *self._codes)), ""))

    @cached_once
    def definitions(self) -> dict[str, Definition]:
        """The kernels that the code defines, by name."""
        tables = [parse_definitions(self._text(name)) for name in reversed(self._codes)]
        return {name: row for table in tables for name, row in table.items()}

    @cached_once
    def calls(self) -> list[CodeCall]:
        """The calls of the code, in order."""
        return [call for name in self._codes for call in parse_calls(self._text(name))]

    @cached_once
    def nodes(self) -> dict[str, Frame]:
        """The user's line of each node of the graph after post-grad passes.

        A graph out of the cache has the lines that it was first compiled for: what AOTAutograd made of this one, with
        nodes of the same names, has its own.
        """
        late = next((lines for name in POST_GRAD_GRAPHS if (lines := node_lines(self._text(name)))), {})
        own = node_lines(self._payload(self._before)) if late and self._before is not None else {}
        moved = {late[node]: frame for node, frame in own.items() if node in late}
        return {node: own.get(node) or moved.get(frame, frame) for node, frame in late.items()}

    @cached_once
    def user_nodes(self) -> dict[str, Frame]:
        """The user's line of each node of the graph that dynamo captured."""
        graphs = [node_lines(self._payload(number)) for number in self._captured]
        return {node: frame for graph in graphs for node, frame in graph.items()}

    @cached_once
    def _captured_modules(self) -> dict[str, str]:
        """The path of the module of each node of the graph that dynamo captured."""
        graphs = [module_paths.captured_modules(self._payload(number)) for number in self._captured]
        return {node: path for graph in graphs for node, path in graph.items()}

    @cached_once
    def _inputs(self) -> list[module_paths.Input]:
        """The inputs of the graph that dynamo captured; [] where there are several."""
        return module_paths.inputs(self._payload(self._captured[0])) if len(self._captured) == 1 else []

    @cached_once
    def _late(self) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
        """The statements of the graph after post-grad passes by node, and the shapes of its inputs."""
        text = next((text for name in POST_GRAD_GRAPHS if (text := self._text(name))), "")
        return node_rows(text), module_paths.shapes(text)

    @cached_once
    def _modules_at(self) -> dict[tuple[str, int], list[str]]:
        pairs = ((node, self.user_nodes[node]) for node in self._captured_modules if node in self.user_nodes)
        by_line = grouped(pairs, lambda pair: (pair[1].file, pair[1].line))
        return {line: [self._captured_modules[node] for node, _ in rows] for line, rows in by_line.items()}

    @cached_once
    def _stacks(self) -> dict[str, list[Frame]]:
        return provenance(self._text(STACK_TRACES))

    def lines(self, definition: Definition) -> tuple[list[Frame], LineOrigin | None]:
        """Return the user's lines of a kernel and where they are known from."""
        if definition.name in self._stacks:
            return self._stacks[definition.name], "provenance"
        if definition.path:
            file, line = definition.path
            return [Frame(file, line, definition.name, definition.signature)], "comments"
        frames = lines_of(definition.nodes, self.nodes) or lines_of(definition.source_nodes, self.user_nodes)
        if not frames and (consumer := self._consumer(definition)):
            frames = self.call_lines(consumer)
        # The comment at the definition is of its first call: another layer may call the same kernel at other lines.
        others = (frame for call in self.calls_of(definition)[1:] for frame in self.call_lines(call))
        frames = module_paths.distinct_lines((*frames, *others))
        return frames, "comments" if frames else None

    def call_lines(self, call: CodeCall) -> list[Frame]:
        """Return the lines of one call of a library or of a generated kernel."""
        if call.operator:
            return lines_of(_call_nodes(call), self.nodes) or lines_of(call.source_nodes, self.user_nodes)
        # In a backward nodes of the captured graph are only those whose results it takes.
        first, second = self.nodes, self.user_nodes
        if self.direction != "backward":
            first, second = second, first
        return lines_of(call.source_nodes, first) or lines_of(call.source_nodes, second)

    def calls_of(self, definition: Definition) -> list[CodeCall]:
        """Return the calls of a generated kernel, in the order in which they run."""
        return self._calls_by_kernel.get(definition.variable, [])

    @cached_once
    def _calls_by_kernel(self) -> dict[str | None, list[CodeCall]]:
        return grouped(self.calls, lambda call: call.kernel)

    def modules(self, part: Definition | CodeCall) -> list[str]:
        """Return the paths of the modules that a kernel or a call computes, "" being the one that was compiled.

        They are those of the nodes that dynamo captured, otherwise of the parameters that it takes, otherwise what all
        modules at its lines have in common; [] where they are unknown.
        """
        library = isinstance(part, CodeCall) and part.operator is not None
        # Nodes of a library's call are in their order: in a forward the others only lead to it.
        named = part.source_nodes[-1:] if library and self.direction == "forward" else part.source_nodes
        if paths := [self._captured_modules[node] for node in named if node in self._captured_modules]:
            return list(dict.fromkeys(paths))
        nodes = part.nodes if isinstance(part, Definition) else _call_nodes(part) or part.source_nodes
        statements, primals = self._late
        lines = (statements[node][1] for node in nodes if node in statements)
        if paths := module_paths.taken_primals(lines, self._inputs, primals):
            return list(dict.fromkeys(paths))
        frames = self.call_lines(part) if isinstance(part, CodeCall) else self.lines(part)[0]
        at_lines = [path for row in frames for path in self._modules_at.get((row.file, row.line), [])]
        return [module_paths.common_module(at_lines)] if at_lines else []

    def piece(self, part: Definition | Iterable[CodeCall]) -> GraphPiece | None:
        """Return the nodes that a kernel or these calls compute.

        They are of the graph after post-grad passes, otherwise of the one that dynamo captured; None where neither was
        recorded, or has none of them.
        """
        if isinstance(part, Definition) and (consumer := self._consumer(part)):
            part = [consumer]
        if isinstance(part, Definition):
            nodes, source_nodes = part.nodes, part.source_nodes
        else:
            calls = list(part)
            nodes = [node for call in calls for node in _call_nodes(call)]
            # Nodes of a call are in their order: it is the last one, the others lead to it.
            source_nodes = [node for call in calls for node in call.source_nodes[-1:]]
        late = [self._by_name[name] for name in POST_GRAD_GRAPHS if name in self._by_name]
        pieces = [(number, nodes) for number in late] + [(number, source_nodes) for number in self._captured]
        for number, wanted in pieces:
            rows = node_rows(self._payload(number)) if wanted else {}
            if lines := sorted({rows[node] for node in wanted if node in rows}):
                return GraphPiece(number, [row for row, _ in lines], [text for _, text in lines])
        return None

    def context(self, lines: list[Frame]) -> list[Frame]:
        """Return these lines and the known ones at most _CONTEXT_LINES away, in the order of the files."""
        frames = (*self.user_nodes.values(), *self.nodes.values(), *lines)
        known = {(frame.file, frame.line): frame for frame in frames}
        offsets = range(-_CONTEXT_LINES, _CONTEXT_LINES + 1)
        near = {(line.file, line.line + offset) for line in lines for offset in offsets}
        return [known[line] for line in sorted(near & known.keys())]

    def _consumer(self, definition: Definition) -> CodeCall | None:
        """Return the call that takes the result of a kernel without a node of its own: it only changes a layout."""
        if definition.source_nodes or definition.nodes:
            return None
        for index, call in enumerate(self.calls):
            if call.kernel == definition.name and call.buffers:
                later = (c for c in self.calls[index + 1 :] if c.operator and c.buffers & call.buffers)
                return next(later, None)
        return None

    def _text(self, name: str) -> str:
        return self._payload(self._by_name[name]) if name in self._by_name else ""

    def _payload(self, number: int) -> str:
        try:
            return self._read(number)
        except UserError:
            return ""


def _call_nodes(call: CodeCall) -> list[str]:
    """Return the node of a library call: of all in its comment the last one that is named like its operator."""
    operator = (call.operator or "").rpartition("::")[2]
    return [node for node in call.source_nodes if re.fullmatch(re.escape(operator) + r"(_\d+)?", node)][-1:]


@dataclass(frozen=True)
class DefinedKernel:
    """A kernel that ran, as its output code defines it."""

    code: GraphCode
    definition: Definition

    @property
    def lines(self) -> tuple[list[Frame], LineOrigin | None]:
        """The user's lines, and where they are known from."""
        return self.code.lines(self.definition)


class GeneratedCode:
    """All output codes of a worker."""

    def __init__(self, data: CompileData | None) -> None:
        """Find the texts of each graph: within a compile id the n-th graph owns the n-th set of them."""
        self.graphs: list[GraphCode] = []
        number_of: Counter[tuple[int, str]] = Counter()
        if data is not None:
            for graph in data.summary.graphs:
                key = key_of(graph.key)
                rows = data.of(artifacts, *key)
                is_exported = is_ahead_of_time(graph.key.compile_id)
                is_captured = EXPORTED_GRAPH.__eq__ if is_exported else is_captured_graph
                captured = [row for row in rows if is_captured(row.name)]
                texts = [row for row in rows if row.graph == number_of[key]]
                number_of[key] += 1
                before = [row for row in rows if is_aot_graph(row.name, backward=graph.direction == BACKWARD)]
                only = before[0] if len(before) == 1 else None
                self.graphs.append(GraphCode(graph, texts, captured, only, partial(read_payload, data)))
        self._by_key = grouped(self.graphs, lambda graph: graph.graph_key)
        self._by_id = grouped(self.graphs, lambda graph: graph.compile_id)

    def graph(self, compile_id: str | None, graph_key: str | None) -> GraphCode | None:
        """Return the graph of this key; of several compile ids that share it this one's, of epochs the newest."""
        graphs = self._by_key.get(graph_key, []) if graph_key else []
        graphs = [graph for graph in graphs if graph.compile_id == compile_id] or graphs
        return graphs[-1] if graphs else None

    def find(
        self, name: str, compile_id: str | None, graph_key: str | None, direction: Direction | None = None
    ) -> DefinedKernel | None:
        """Return the definition of the kernel that the GPU calls `name`. C++ kernels are traced as graph_3_<name>."""
        graph = self.graph(compile_id, graph_key)
        graphs = [graph] if graph else self._by_id.get(compile_id or "", [])
        matches = [
            DefinedKernel(candidate, definition)
            for candidate in graphs
            if graph or direction in (None, candidate.direction)
            if (
                definition := candidate.definitions.get(name) or candidate.definitions.get(defined_name(name))
            )
        ]
        sources = {generated.definition.source for generated in matches}
        return matches[-1] if len(sources) == 1 else None

    @cached_once
    def user_kernels(self) -> set[str]:
        """The Triton kernels among them that the user wrote."""
        return set().union(*(graph.user_kernels for graph in self.graphs))

    @cached_once
    def packages(self) -> dict[str, str]:
        """Kernel names that exactly one package of AOTInductor defines, with its compile id."""
        graphs = [graph for graph in self.graphs if is_package(graph.compile_id)]
        return only_owners((name, graph.compile_id) for graph in graphs for name in graph.names)

    @cached_once
    def defined_once(self) -> dict[str, GraphCode]:
        """Kernel names that exactly one graph defines, with it."""
        return only_owners((name, graph) for graph in self.graphs for name in graph.names)
