"""Which frames were compiled again, which guard failed, and what did dynamo do about it?"""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.guard_reasons import FailedGuard, failed_guard
from tb_torchcompile_plugin.analysis.units import seconds
from tb_torchcompile_plugin.summary_pb2 import FORWARD, Compilation, CompileKey, CompileSummary
from tb_torchcompile_plugin.summary_pb2 import Recompile as RecompileMessage

_DYNAMIC = "automatic_dynamic"


class Recompile(msgspec.Struct, frozen=True):
    """One recompile. `reasons` has one entry for each cache entry that was tried, most recent first; `guards` is the
    same, taken apart. `dynamic`: what became symbolic in it, in torch's words. `start_s` is Unix time."""

    compile_id: str
    epoch: int
    reasons: list[str]
    guards: list[FailedGuard]
    dynamic: list[str]
    function: str
    file: str
    line: int | None
    start_s: float | None
    duration_s: float | None
    recovered: bool


def recompiles(summary: CompileSummary) -> list[Recompile]:
    """In the order in which torch reported them."""
    compiled = {_key(row.key): row for row in summary.compilations if row.direction == FORWARD}
    return [_recompile(summary, row, compiled.get(_key(row.key))) for row in summary.recompiles]


def _recompile(summary: CompileSummary, row: RecompileMessage, frame: Compilation | None) -> Recompile:
    return Recompile(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        reasons=list(row.reasons),
        guards=[failed_guard(reason) for reason in row.reasons],
        dynamic=_dynamic(summary, row.key),
        function=frame.function if frame else "",
        file=row.file,
        line=row.line if row.HasField("line") else None,
        start_s=seconds(frame.start_ns) if frame and frame.HasField("start_ns") else None,
        duration_s=seconds(frame.duration_ns) if frame and frame.HasField("duration_ns") else None,
        recovered=row.recovered,
    )


def _dynamic(summary: CompileSummary, key: CompileKey) -> list[str]:
    events = (event for event in summary.shape_events if event.kind == _DYNAMIC and event.key == key)
    return [" ".join(part for part in (event.symbol, event.value, event.reason) if part) for event in events]


def _key(key: CompileKey) -> tuple[int, str]:
    return key.epoch, key.compile_id
