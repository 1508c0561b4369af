"""Which texts did the compiler write for one compilation, in the order of its pipeline?"""

from collections.abc import Iterable

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, Key, key_of, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD
from tb_torchcompile_plugin.compile_log.summary_pb2 import Frame as FrameMessage
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import (
    GRAPH_STAGE,
    Language,
    is_backward,
    language_of,
    rank_in_stage,
    stage_of,
    title_of,
)
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
        is_of_graph = stage_of(row.name) == GRAPH_STAGE
        if is_of_graph:
            # torch writes graph by graph: a name that occurs again begins the next.
            if row.name in names_of_graph:
                index, names_of_graph = index + 1, set()
            names_of_graph.add(row.name)
        graph = graphs[index] if is_of_graph and index < len(graphs) else None
        # The direction by name; otherwise that of the graph's code; otherwise by when it was written.
        backward = is_backward(row.name)
        if backward is None:
            backward = (graph.direction if graph is not None else row.direction) == BACKWARD
        language = language_of(row.name, row.encoding)
        if row.name == OUTPUT_CODE and graph is not None:
            language = "cpp" if graph.output_code_file.endswith((".cpp", ".cu", ".h")) else "python"
        rows.append(
            Artifact(
                id=number,
                name=row.name,
                title=title_of(row.name) + (f" of {row.subgraph}" if row.subgraph else ""),
                attempt=row.attempt,
                direction="backward" if backward else "forward",
                graph=index if is_of_graph else None,
                encoding=row.encoding,
                language=language,
                bytes=optional_number(row, "size"),
            )
        )
    return sorted(
        rows, key=lambda row: (stage_of(row.name), row.attempt, row.graph or 0, rank_in_stage(row.name))
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
