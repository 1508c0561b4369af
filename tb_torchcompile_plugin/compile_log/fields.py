"""Fields of the summary's messages: whose a row is, and what may be missing in it."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb

Direction = Literal["forward", "backward"]
# Why a CUDA graph was recorded: for the first time; for sizes that it had not seen; because an input that is to stay
# where it is (a parameter, say) lay elsewhere; because a result of an earlier graph did; because results of earlier
# graphs were alive that were dead, or dead that were alive; behind another graph than before.
Reason = Literal["first", "size", "static_input", "earlier_result", "liveness", "order"]
REASONS: tuple[Reason, ...] = get_args(Reason)
Key = tuple[int, str]  # epoch and compile id: ids start anew when dynamo is reset


def key_of(key: pb.CompileKey) -> Key:
    """Epoch and compile id, to look up by."""
    return key.epoch, key.compile_id


def direction_of(code: int) -> Direction:
    """The word for a `summary.proto` Direction."""
    return "backward" if code == pb.BACKWARD else "forward"


def known_number(row: Any, field: str) -> int | None:
    """A whole number of a message, None where it is not there. Protobuf knows no base class with `HasField`."""
    return getattr(row, field) if row.HasField(field) else None


def known_seconds(row: Any, field: str) -> float | None:
    """A time in ns of a message as seconds, None where it is not there."""
    time_ns = known_number(row, field)
    return None if time_ns is None else time_ns / 1_000_000_000


def forwards(summary: pb.CompileSummary) -> dict[Key, pb.Compilation]:
    """The compilation of each frame, without its backwards; of several under one key the last."""
    return {key_of(row.key): row for row in summary.compilations if row.direction == pb.FORWARD}
