"""Which `nn.Module` does a kernel compute? torch calls no modules in compiled code, but its graphs name their inputs.

A parameter's name is the path of its module: `L_self_modules_0_modules_up_parameters_weight_` is `weight` of `0.up`. A
node that takes one belongs to that module. Another one belongs to the module whose `forward` it stands in: what the
modules that are called around it, from the same function and onwards in its lines, have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tb_torchcompile_plugin.generated_code.frame import Frame
from tb_torchcompile_plugin.generated_code.user_lines import node_lines, node_rows
from tb_torchcompile_plugin.torch_names.artifacts import INPUT, PRIMAL, WORD, state_path

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
