"""Which lines of the user's program does a kernel compute?

torch's provenance records tell, where the user had them recorded. Else the comment above the kernel names the nodes
that were fused into it, and the printed graph has the user's line above each node.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import (
    INPUT,
    NO_PLACE,
    NODE,
    NODE_PLACE,
    PRIMAL,
    WORD,
    is_captured_graph,
    state_path,
)
from tb_torchcompile_plugin.torch_names.kernels import without_call
from tb_torchcompile_plugin.torch_names.operators import is_captured_checkpoint
from tb_torchcompile_plugin.torch_names.python_frames import places


def node_lines(graph: str) -> dict[str, Frame]:
    """Node of a printed graph → the user's line that stands in the comment above it."""
    places: dict[str, Frame] = {}
    at: Frame | None = None
    for line in graph.splitlines():
        place = NODE_PLACE.match(line)
        if place:
            at = Frame(place[1], int(place[2]), place[3], place[4])
        elif NO_PLACE.match(line):
            at = None
        elif at and (node := NODE.match(line)):
            places[node[1]] = at
    return places


def node_rows(graph: str) -> dict[str, tuple[int, str]]:
    """Node of a printed graph → the number of its line, from 1, and the line."""
    rows: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(graph.splitlines(), 1):
        if node := NODE.match(line):
            rows.setdefault(node[1], (number, line.strip()))
    return rows


def lines_of(nodes: Iterable[str], places: dict[str, Frame]) -> list[Frame]:
    """The distinct lines of these nodes, in their order."""
    return distinct_lines(places[node] for node in nodes if node in places)


def distinct_lines(frames: Iterable[Frame]) -> list[Frame]:
    return list({(frame.file, frame.line): frame for frame in frames}.values())


def provenance(text: str) -> dict[str, list[Frame]]:
    """`inductor_provenance_tracking_kernel_stack_traces`: kernel → the innermost line of each of its stacks.

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
    """`stack` of kernels in a trace, as torch's inductor_trace_handler writes it: a list of stacks in JSON.
    The distinct innermost lines of all; what is no stack has none."""
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
        *_, innermost = [None, *places(str(stack))]
        if innermost:
            yield Frame(*innermost[:3], innermost.source or None)


# Which `nn.Module` does a kernel compute? torch calls no modules in compiled code, but its graphs name
# their inputs. A parameter's name is the path of its module:
# `L_self_modules_0_modules_up_parameters_weight_` is `weight` of `0.up`. A node that takes one belongs to
# that module. Another one belongs to the module whose `forward` it stands in: what the modules that are
# called around it, from the same function and onwards in its lines, have in common.


ROOT = ""  # the module that was compiled


class Input(NamedTuple):
    """Of a graph: the path of the module whose parameter or buffer it is, None for others; its type and sizes."""

    module: str | None
    shape: str


def inputs(graph: str) -> list[Input]:
    """Of a captured graph, in their order."""
    return [Input(state_path(name), shape) for name, shape in shapes(graph).items()]


def captured_modules(graph: str) -> dict[str, str]:
    """Node of the graph that dynamo captured → the path of its module; nodes without a line are left out."""
    rows, places = node_rows(graph), node_lines(graph)
    taken = {node: _taken(rows[node][1]) for node in places if node in rows}
    owner: dict[str, str] = {}
    for run in _runs(list(taken), places):
        container = common([_parent(path) for node in run for path in taken[node]]) or ROOT
        owner |= {node: common(taken[node]) if taken[node] else container for node in run}
    return owner


def taken_primals(statements: Iterable[str], known: list[Input], primals: dict[str, str]) -> list[str]:
    """The modules of the parameters that lines of a later graph take: it calls the n-th input of the captured graph
    `primals_n`. primals: their shapes there; where they differ, the inputs are not the same."""
    numbers = {match[0]: int(match[1]) for line in statements for match in PRIMAL.finditer(line)}
    known_as = {name: known[number - 1] for name, number in numbers.items() if 0 < number <= len(known)}
    same = (one.module for name, one in known_as.items() if primals.get(name) == one.shape)
    return [path for path in same if path is not None]


def shapes(graph: str) -> dict[str, str]:
    """The inputs of a graph by name, in their order: "f32[64, 3, 7, 7]". Strides are left out: passes change them."""
    head = next((line for line in graph.splitlines() if line.lstrip().startswith("def forward(")), "")
    return {match["name"]: match["shape"] for match in INPUT.finditer(head)}


def common(paths: Iterable[str]) -> str:
    """The innermost module that holds all of these; ROOT for none."""
    split = [path.split(".") if path else [] for path in paths]
    shared: list[str] = []
    for parts in zip(*split):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _taken(statement: str) -> list[str]:
    """The modules whose parameters a line takes, what it forgets after it (`x = None`) aside."""
    paths = (state_path(word) for word in WORD.findall(statement.split(";", 1)[0].partition("=")[2]))
    return list(dict.fromkeys(path for path in paths if path is not None))


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _runs(nodes: list[str], places: dict[str, Frame]) -> Iterator[list[str]]:
    """Nodes of one call of a function: they follow one another in it, and their lines do not go back."""
    run = nodes[:1]
    for before, node in pairwise(nodes):
        a, b = places[before], places[node]
        if (a.file, a.function) != (b.file, b.function) or b.line < a.line:
            yield run
            run = []
        run.append(node)
    if run:
        yield run


# Which lines ask for the checkpoints inside of a compiled graph? What dynamo captured has them as
# operators.


def checkpoint_lines(data: CompileData, compile_id: str) -> list[Frame]:
    """In the order of the graph; [] where its text was not kept."""
    return distinct_lines(frame for text in _captured(data, compile_id) for frame in _lines(text))


def _captured(data: CompileData, compile_id: str) -> Iterator[str]:
    for number, row in enumerate(data.summary.artifacts):
        if row.key.compile_id == compile_id and is_captured_graph(row.name):
            try:
                yield read_payload(data, number)
            except UserError:  # whoever asks for the text is told
                continue


def _lines(graph: str) -> Iterator[Frame]:
    rows = node_rows(graph)
    return (frame for node, frame in node_lines(graph).items() if is_captured_checkpoint(rows[node][1]))
