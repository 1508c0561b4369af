"""Forward and backward, as they are called where they leave."""

from __future__ import annotations

from typing import Literal

from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD

Direction = Literal["forward", "backward"]


def direction_of(code: int) -> Direction:
    """The word for a `summary.proto` Direction."""
    return "backward" if code == BACKWARD else "forward"
