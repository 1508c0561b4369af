"""Which texts did the compiler leave behind for one compilation, in the order of its pipeline?"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, Key, key_of, known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, Graph
from tb_torchcompile_plugin.compile_log.summary_pb2 import Artifact as ArtifactMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import Frame as FrameMessage
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import (
    GRAPH_STAGE,
    Language,
    is_backward,
    language_of,
    place_in_stage,
    stage_of,
    title_of,
)
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE


class Artifact(msgspec.Struct, frozen=True):
    """One text. `id` asks for it; it holds while the file does. `bytes`: of the text in UTF-8, None where unknown.

    graph: which output of inductor within the compilation it belongs to, from 0; None before that stage.
    """

    id: int
    name: str
    title: str
    attempt: int
    direction: Direction
    graph: int | None
    encoding: str
    language: Language
    bytes: int | None


def artifacts(data: CompileData, epoch: int, compile_id: str) -> list[Artifact]:
    """The artifacts of one compile id in the order of the pipeline; of "" those that belong to none."""
    wanted = owners(epoch, compile_id)
    mine = [(number, row) for number, row in enumerate(data.summary.artifacts) if key_of(row.key) in wanted]
    graphs = [row for row in data.summary.graphs if key_of(row.key) == (epoch, compile_id)]
    places = _graph_places([row for _, row in mine])
    rows = []
    for (number, row), place in zip(mine, places, strict=True):
        graph = graphs[place] if place is not None and place < len(graphs) else None
        rows.append(_artifact(number, row, place, graph))
    return sorted(rows, key=_pipeline_place)


def owners(epoch: int, compile_id: str) -> list[Key]:
    """The ids under which torch files the texts of a compilation: compiled autograd files its graph under "!0"."""
    autograd, _, inner = compile_id.partition("/")
    is_inside = autograd.startswith("!") and inner
    return [(epoch, compile_id), *([(epoch, autograd)] if is_inside else [])]


def _pipeline_place(row: Artifact) -> tuple[int, int, int, int, int]:
    return stage_of(row.name), row.attempt, row.graph or 0, place_in_stage(row.name), row.id


def _graph_places(rows: list[ArtifactMessage]) -> list[int | None]:
    """The graph that each artifact belongs to. torch writes graph by graph: a name that comes again begins the next.

    A text about a graph that torch wrote while nothing but an unknown name told so belongs to none.
    """
    seen: set[str] = set()
    graph, places = 0, list[int | None]()
    for row in rows:
        if stage_of(row.name) != GRAPH_STAGE:
            places.append(None)
            continue
        if row.name in seen:
            graph, seen = graph + 1, set()
        seen.add(row.name)
        places.append(graph)
    return places


def _artifact(number: int, row: ArtifactMessage, place: int | None, graph: Graph | None) -> Artifact:
    return Artifact(
        id=number,
        name=row.name,
        title=title_of(row.name) + (f" of {row.subgraph}" if row.subgraph else ""),
        attempt=row.attempt,
        direction=_direction(row, graph),
        graph=place,
        encoding=row.encoding,
        language=_language(row, graph),
        bytes=known_number(row, "size"),
    )


def _direction(row: ArtifactMessage, graph: Graph | None) -> Direction:
    """By name; else that of the graph's code, which says so itself; else by when it was written."""
    backward = is_backward(row.name)
    if backward is None:
        backward = (graph.direction if graph is not None else row.direction) == BACKWARD
    return "backward" if backward else "forward"


def _language(row: ArtifactMessage, graph: Graph | None) -> Language:
    if row.name == OUTPUT_CODE and graph is not None:
        return "cpp" if graph.output_code_file.endswith((".cpp", ".cu", ".h")) else "python"
    return language_of(row.name, row.encoding)


# A line of the user's program, as torch tells it.


class Frame(msgspec.Struct, frozen=True):
    """One line of a user stack; `source` is its text, None where it was not recorded."""

    file: str
    line: int
    function: str
    source: str | None


def frames(stack: Iterable[FrameMessage]) -> list[Frame]:
    """The lines of a stack, outermost first."""
    return [
        Frame(row.file, row.line, row.function, row.source if row.HasField("source") else None)
        for row in stack
    ]
