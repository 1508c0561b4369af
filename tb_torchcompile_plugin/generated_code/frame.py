"""A line of the user's program, as torch tells it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tb_torchcompile_plugin.compile_log.summary_pb2 import Frame as FrameMessage


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
