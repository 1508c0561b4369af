"""Which lines of the user's program does a kernel compute?

torch's provenance records tell, where the user had them recorded. Else the comment above the kernel names the nodes
that were fused into it, and the printed graph has the user's line above each node.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tb_torchcompile_plugin.generated_code.frame import Frame
from tb_torchcompile_plugin.torch_names.artifacts import NO_PLACE, NODE, NODE_PLACE
from tb_torchcompile_plugin.torch_names.kernels import without_call
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
