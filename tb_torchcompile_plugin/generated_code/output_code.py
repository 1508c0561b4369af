"""Which texts did the compiler write for one compilation, and which kernels does an output code define?

Inductor writes `NAME = async_compile.triton('NAME', '''source''')`, and above it a comment that names the operators and
the nodes of the graph that were fused. The comments are no contract of torch: what they do not say is unknown.
"""

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, Key, direction_of, key_of, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD
from tb_torchcompile_plugin.compile_log.summary_pb2 import Frame as FrameMessage
from tb_torchcompile_plugin.reader.arrays import grouped, only_owners
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import artifacts as names
from tb_torchcompile_plugin.torch_names.artifacts import Language
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE


class Artifact(msgspec.Struct, frozen=True):
    """One text."""

    id: int  # to ask for it; valid while the file is
    name: str
    title: str
    attempt: int
    direction: Direction
    # which output of inductor within the compilation it belongs to, from 0; None before that stage
    graph: int | None
    encoding: str
    language: Language
    bytes: int | None  # of the text in UTF-8, None where unknown


class Frame(msgspec.Struct, frozen=True):
    """One line of a user stack."""

    file: str
    line: int
    function: str
    source: str | None  # its text, None where it was not recorded


def artifacts(data: CompileData, epoch: int, compile_id: str) -> list[Artifact]:
    """Return the artifacts of one compile id in the order of the pipeline; of "" those that belong to none."""
    keys = owners(epoch, compile_id)
    graphs = [row for row in data.summary.graphs if key_of(row.key) == (epoch, compile_id)]
    rows: list[Artifact] = []
    index, names_of_graph = 0, set[str]()
    for number, row in enumerate(data.summary.artifacts):
        if key_of(row.key) not in keys:
            continue
        is_of_graph = names.stage_of(row.name) == names.GRAPH_STAGE
        if is_of_graph:
            # torch writes graph by graph: a name that occurs again begins the next.
            if row.name in names_of_graph:
                index, names_of_graph = index + 1, set()
            names_of_graph.add(row.name)
        graph = graphs[index] if is_of_graph and index < len(graphs) else None
        # The direction by name; otherwise that of the graph's code; otherwise by when it was written.
        backward = names.is_backward(row.name)
        if backward is None:
            backward = (graph.direction if graph is not None else row.direction) == BACKWARD
        language = names.language_of(row.name, row.encoding)
        if row.name == OUTPUT_CODE and graph is not None:
            language = "cpp" if graph.output_code_file.endswith((".cpp", ".cu", ".h")) else "python"
        rows.append(
            Artifact(
                id=number,
                name=row.name,
                title=names.title_of(row.name) + (f" of {row.subgraph}" if row.subgraph else ""),
                attempt=row.attempt,
                direction="backward" if backward else "forward",
                graph=index if is_of_graph else None,
                encoding=row.encoding,
                language=language,
                bytes=optional_number(row, "size"),
            )
        )
    return sorted(
        rows,
        key=lambda row: (
            names.stage_of(row.name),
            row.attempt,
            row.graph or 0,
            names.rank_in_stage(row.name),
        ),
    )


def owners(epoch: int, compile_id: str) -> list[Key]:
    """Return the ids under which torch files the texts of a compilation: compiled autograd's graph is under "!0"."""
    autograd, _, inner = compile_id.partition("/")
    is_inside = autograd.startswith("!") and inner
    return [(epoch, compile_id), *([(epoch, autograd)] if is_inside else [])]


def frames(stack: Iterable[FrameMessage]) -> list[Frame]:
    """Return the lines of a stack, outermost first."""
    return [
        Frame(row.file, row.line, row.function, row.source if row.HasField("source") else None)
        for row in stack
    ]


@dataclass(frozen=True)
class Definition:
    """One kernel of an output code."""

    name: str  # what the GPU calls it, or would with unique names
    language: str  # inductor's word for what compiles it: "triton", "cpp_pybinding", …
    line: int  # of the definition, from 1
    source: str
    aten_ops: list[str] = field(default_factory=list)  # "aten.relu"
    source_nodes: list[str] = field(default_factory=list)  # of the user's graph
    nodes: list[str] = field(default_factory=list)  # of the graph after post-grad passes
    path: tuple[str, int] | None = None  # file and line of a kernel that the user wrote
    # What inductor computed for one launch; None where it was not asked to.
    num_gb: float | None = None
    flop: float | None = None
    variable: str = ""  # what the code calls it

    @property
    def signature(self) -> str | None:
        """The first line of a Triton kernel: "def scale(x, y, N: tl.constexpr):"; None of another."""
        return next((line for line in self.source.splitlines() if line.startswith(f"def {self.name}(")), None)


def parse_definitions(code: str) -> dict[str, Definition]:
    """Return the kernels that an output code defines, by name, in order; of a name that is defined twice the first."""
    by_name: dict[str, Definition] = {}
    line, counted = 1, 0
    for kernel in names.kernel_definitions(code):
        line += code.count("\n", counted, kernel.start)
        counted = kernel.start
        if kernel.name in by_name:
            continue
        source = _source(code, kernel)
        comment = _comment_above(code, kernel.start)
        original = names.FUSED.search(comment)
        path = names.WRITTEN_AT.search(comment)
        by_name[kernel.name] = Definition(
            name=kernel.name,
            language=kernel.language,
            line=line,
            source=source,
            aten_ops=_listed(original[2]) if original else [],
            source_nodes=_listed(original[1]) if original else [],
            nodes=list(dict.fromkeys(names.FUSED_NODE.findall(comment))),
            path=(path[1], int(path[2])) if path else None,
            num_gb=_number(names.NUM_GB, source),
            flop=_number(names.FLOP, source),
            variable=kernel.variable,
        )
    if names.is_cpp(code):  # what was fused into a Triton kernel is above its first call
        first_calls = {call.kernel: call for call in reversed(parse_calls(code))}
        for name, row in by_name.items():
            if row.language == names.TRITON and name in first_calls:
                call = first_calls[name]
                by_name[name] = replace(row, source_nodes=call.source_nodes, aten_ops=call.aten_ops)
    return by_name


def lines_of_calls(code: str) -> dict[str, list[int]]:
    """Return the lines on which each variable is called, from 1."""
    lines: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(code.split("\n"), 1):
        if call := names.CALLED.match(line):
            lines[call[1]].append(number)
    return lines


@dataclass(frozen=True)
class CodeCall:
    """One call in the body of an output code."""

    operator: str | None  # "aten::mm" of a library call, otherwise None
    kernel: str | None  # the variable of a generated kernel
    source_nodes: list[str]  # from the comment above it
    buffers: frozenset[str]  # names among its arguments and results
    aten_ops: list[str] = field(default_factory=list)  # from the comment, too


def parse_calls(code: str) -> list[CodeCall]:
    """Return the calls of kernels and of libraries in the body of an output code, in order."""
    rows: list[CodeCall] = []
    nodes: list[str] = []
    operators: list[str] = []
    body = max(*(code.rfind(body) for body in names.BODIES), 0)
    for line in code[body:].splitlines():
        if comment := names.CALL_NODES.match(line):
            nodes, operators = _listed(comment[1]), _listed(comment[2] or "")
        elif match := names.CALL.match(line):
            kernel = match["kernel"] or match["cpp_kernel"]
            operator, buffers = names.called_operator(match), frozenset(names.BUFFER.findall(line))
            call = CodeCall(operator, kernel, nodes, buffers, operators)
            # The comment above a C++ kernel in C++ is of an earlier call.
            is_own = not (match["cpp_kernel"] or "").startswith(names.CPP)
            rows.append(call if is_own else replace(call, source_nodes=[], aten_ops=[]))
    return rows


def _source(code: str, kernel: names.KernelDefinition) -> str:
    """Return the text between the quotes; of a definition without a text, its own line."""
    if kernel.language == names.CPP:
        end = code.find(names.CPP_ENDS, kernel.opened)
        return code[kernel.start : end + len(names.CPP_ENDS) if end >= 0 else len(code)]
    line_end = code.find("\n", kernel.opened)
    line_end = len(code) if line_end < 0 else line_end
    opening = names.TEXT_OPENS.search(code, kernel.opened, line_end)
    closing = code.find(opening[1], opening.end()) if opening else -1
    if not opening or closing < 0:
        return code[kernel.start : line_end]
    try:
        text = ast.literal_eval(code[opening.start() : closing + 3])
    except (SyntaxError, ValueError):
        text = code[opening.end() : closing]
    return textwrap.dedent(str(text)).strip("\n") + "\n"


def _comment_above(code: str, end: int) -> str:
    start = end
    while start > 0:
        line_start = code.rfind("\n", 0, start - 1) + 1
        if not code.startswith("#", line_start, start - 1):
            break
        start = line_start
    return code[start : max(start, end - 1)]


def _listed(text: str) -> list[str]:
    return [part for part in (item.strip() for item in text.split(",")) if part]


def _number(pattern: re.Pattern[str], source: str) -> float | None:
    match = pattern.search(source)
    return float(match[1]) if match else None


class GeneratedKernels(msgspec.Struct, frozen=True):
    """The kernels of one graph that fall into one category."""

    compile_id: str
    epoch: int
    direction: Direction
    graph_key: str | None
    output_code_file: str
    category: Category
    kernels: list[str]


def generated_kernels(data: CompileData) -> list[GeneratedKernels]:
    """Return one row per graph and category, known from the compile log alone, graphs in inductor's order."""
    rows: list[GeneratedKernels] = []
    for graph in data.summary.graphs:
        # A newer writer may have more categories.
        kernels = grouped(graph.kernels, lambda row: row.category if row.category in CATEGORIES else "other")
        rows += [
            GeneratedKernels(
                compile_id=graph.key.compile_id,
                epoch=graph.key.epoch,
                direction=direction_of(graph.direction),
                graph_key=graph.graph_key or None,
                output_code_file=graph.output_code_file,
                category=category,
                kernels=[kernel.name for kernel in kernels[category]],
            )
            for category in CATEGORIES
            if category in kernels
        ]
    return rows


def unique_graph_keys(data: CompileData) -> dict[str, str]:
    """Return the compile id of each graph key that belongs to exactly one."""
    graphs = (graph for graph in data.summary.graphs if graph.graph_key)
    return only_owners((graph.graph_key, graph.key.compile_id) for graph in graphs)
