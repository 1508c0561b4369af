"""Which lines ask for the checkpoints inside of a compiled graph? What dynamo captured has them as operators."""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.frame import Frame
from tb_torchcompile_plugin.generated_code.user_lines import distinct_lines, node_lines, node_rows
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import is_captured_graph
from tb_torchcompile_plugin.torch_names.operators import is_captured_checkpoint


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
