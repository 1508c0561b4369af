"""Where did dynamo break the graph, and why?"""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import GraphBreak as GraphBreakMessage
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind


class GraphBreak(msgspec.Struct, frozen=True):
    """One break of one compilation. `source` is the text of the user's line, None where it was not recorded."""

    compile_id: str
    epoch: int
    reason: str
    kind: BreakKind
    explanation: str
    hints: list[str]
    docs_url: str
    file: str
    line: int | None
    source: str | None
    stack: list[Frame]
    count: int
    recovered: bool


def graph_breaks(data: CompileData) -> list[GraphBreak]:
    """In the order in which torch reported them."""
    return [_graph_break(row) for row in data.summary.graph_breaks]


def _graph_break(row: GraphBreakMessage) -> GraphBreak:
    line, stack = known_number(row, "line"), frames(row.stack)
    here = [frame.source for frame in stack if (frame.file, frame.line) == (row.file, line)]
    return GraphBreak(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        reason=row.reason,
        kind=break_kind(row.reason, row.explanation),
        explanation=row.explanation,
        hints=list(row.hints),
        docs_url=row.docs_url,
        file=row.file,
        line=line,
        source=here[-1] if here else None,
        stack=stack,
        count=row.count or 1,
        recovered=row.recovered,
    )
