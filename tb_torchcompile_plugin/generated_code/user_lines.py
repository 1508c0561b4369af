"""Which lines, and which modules, of the user's program does a kernel compute?

torch's provenance records hold the lines, if the user recorded them. Otherwise the comment above the kernel names the
nodes that were fused into it, and the printed graph has the user's line above each node.

torch calls no modules in compiled code, but its graphs name their inputs. A parameter's name is the path of its module:
`L_self_modules_0_modules_up_parameters_weight_` is `weight` of `0.up`. A node that takes one belongs to that module.
Another one belongs to the module whose `forward` it is in: what the modules that are called around it, from the same
function and onwards in its lines, have in common.
"""

import contextlib
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.output_code import Frame
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names import artifacts, operators, python_frames
from tb_torchcompile_plugin.torch_names.kernels import without_call


def node_lines(graph: str) -> dict[str, Frame]:
    """Return the user's line in the comment above each node of a printed graph."""
    frames: dict[str, Frame] = {}
    frame: Frame | None = None
    for line in graph.splitlines():
        if comment := artifacts.NODE_PLACE.match(line):
            frame = Frame(comment[1], int(comment[2]), comment[3], comment[4])
        elif artifacts.NO_PLACE.match(line):
            frame = None
        elif frame and (node := artifacts.NODE.match(line)):
            frames[node[1]] = frame
    return frames


def node_rows(graph: str) -> dict[str, tuple[int, str]]:
    """Return the number of its line, from 1, and the line of each node of a printed graph."""
    rows: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(graph.splitlines(), 1):
        if node := artifacts.NODE.match(line):
            rows.setdefault(node[1], (number, line.strip()))
    return rows


def lines_of(nodes: Iterable[str], frames: dict[str, Frame]) -> list[Frame]:
    """Return the distinct lines of these nodes, in their order."""
    return distinct_lines(frames[node] for node in nodes if node in frames)


def distinct_lines(frames: Iterable[Frame]) -> list[Frame]:
    """Return the last frame of each line, in the order of the lines."""
    return list({(frame.file, frame.line): frame for frame in frames}.values())


def provenance(text: str) -> dict[str, list[Frame]]:
    """Parse `inductor_provenance_tracking_kernel_stack_traces`: the innermost line of each stack, by kernel.

    Names there end in a number for each call (`triton_poi_fused_0:3`). What is no such record has no lines.
    """
    try:
        recorded = json.loads(text)
    except ValueError:
        return {}
    kernels: dict[str, list[Frame]] = defaultdict(list)
    for key, stacks in recorded.items() if isinstance(recorded, dict) else ():
        kernels[without_call(key)] += _innermost(stacks)
    return {name: distinct_lines(frames) for name, frames in kernels.items() if frames}


def stack_lines(texts: Iterable[str]) -> list[Frame]:
    """Return the distinct innermost lines of the stacks of kernels in a trace; what is no stack has none.

    torch's inductor_trace_handler writes `stack`: a list of stacks in JSON.
    """
    frames: list[Frame] = []
    for text in texts:
        try:
            stacks = json.loads(text)
        except ValueError:  # one stack, as it is
            stacks = text
        frames += _innermost(stacks)
    return distinct_lines(frames)


def _innermost(stacks: object) -> Iterator[Frame]:
    for stack in stacks if isinstance(stacks, list) else [stacks]:
        *_, innermost = [None, *python_frames.traceback_frames(str(stack))]
        if innermost:
            yield Frame(*innermost[:3], innermost.source or None)


ROOT = ""  # the module that was compiled


class Input(NamedTuple):
    """An input of a graph."""

    module: str | None  # the path of the module whose parameter or buffer it is, None for others
    shape: str  # its type and sizes


def inputs(graph: str) -> list[Input]:
    """Return the inputs of a captured graph, in their order."""
    return [Input(artifacts.state_path(name), shape) for name, shape in shapes(graph).items()]


def captured_modules(graph: str) -> dict[str, str]:
    """Return the path of its module for each node of the graph that dynamo captured, unless it has no line."""
    rows, frames = node_rows(graph), node_lines(graph)
    taken = {node: _modules_taken(rows[node][1]) for node in frames if node in rows}
    owners: dict[str, str] = {}
    for nodes in _calls_of_functions(list(taken), frames):
        container = common_module(path.rpartition(".")[0] for node in nodes for path in taken[node])
        owners |= {node: common_module(taken[node]) if taken[node] else container for node in nodes}
    return owners


def taken_primals(statements: Iterable[str], captured: list[Input], primals: dict[str, str]) -> list[str]:
    """Return the modules of the parameters that lines of a later graph take.

    It calls the n-th input of the captured graph `primals_n`. primals: their shapes there; where they differ, the
    inputs are not the same.
    """
    numbers = {match[0]: int(match[1]) for line in statements for match in artifacts.PRIMAL.finditer(line)}
    named = {name: captured[number - 1] for name, number in numbers.items() if 0 < number <= len(captured)}
    modules = (row.module for name, row in named.items() if primals.get(name) == row.shape)
    return [path for path in modules if path is not None]


def shapes(graph: str) -> dict[str, str]:
    """Return the shapes of a graph's inputs by name, in their order: "f32[64, 3, 7, 7]". Passes change strides."""
    head = next((line for line in graph.splitlines() if line.lstrip().startswith("def forward(")), "")
    return {match["name"]: match["shape"] for match in artifacts.INPUT.finditer(head)}


def common_module(paths: Iterable[str]) -> str:
    """Return the innermost module that holds all of these; ROOT for none."""
    folders = [path.replace(".", "/") for path in paths]
    return posixpath.commonpath(folders).replace("/", ".") if folders else ROOT


def _modules_taken(statement: str) -> list[str]:
    """Return the modules whose parameters a line takes, not counting what it deletes after it (`x = None`)."""
    words = artifacts.WORD.findall(statement.partition(";")[0].partition("=")[2])
    return list(dict.fromkeys(path for path in map(artifacts.state_path, words) if path is not None))


def _calls_of_functions(nodes: list[str], frames: dict[str, Frame]) -> Iterator[list[str]]:
    """Yield the nodes of one call of a function: they follow one another in it, and their lines do not go back."""
    call = nodes[:1]
    for before, node in pairwise(nodes):
        a, b = frames[before], frames[node]
        if (a.file, a.function) != (b.file, b.function) or b.line < a.line:
            yield call
            call = []
        call.append(node)
    if call:
        yield call


def checkpoint_lines(data: CompileData, compile_id: str) -> list[Frame]:
    """Return the lines that ask for checkpoints inside of a compiled graph, in its order; [] without its text.

    What dynamo captured has checkpoints as operators.
    """
    frames: list[Frame] = []
    for number, row in enumerate(data.summary.artifacts):
        if row.key.compile_id != compile_id or not artifacts.is_captured_graph(row.name):
            continue
        with contextlib.suppress(UserError):  # shown to whoever asks for the text
            graph = read_payload(data, number)
            rows = node_rows(graph)
            lines = node_lines(graph).items()
            frames += [frame for node, frame in lines if operators.is_captured_checkpoint(rows[node][1])]
    return distinct_lines(frames)
