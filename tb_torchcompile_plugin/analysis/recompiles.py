"""Which frames were compiled again, and which guard failed?"""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.units import seconds
from tb_torchcompile_plugin.summary_pb2 import FORWARD, CompileKey, CompileSummary


class Recompile(msgspec.Struct, frozen=True):
    """One recompile. `reasons` has one entry for each cache entry that was tried, most recent first."""

    compile_id: str
    epoch: int
    reasons: list[str]
    function: str
    file: str
    line: int | None
    duration_s: float | None
    recovered: bool


def recompiles(summary: CompileSummary) -> list[Recompile]:
    """In the order in which torch reported them."""
    compiled = {_key(row.key): row for row in summary.compilations if row.direction == FORWARD}
    rows = []
    for row in summary.recompiles:
        frame = compiled.get(_key(row.key))
        timed = frame is not None and frame.HasField("duration_ns")
        rows.append(
            Recompile(
                compile_id=row.key.compile_id,
                epoch=row.key.epoch,
                reasons=list(row.reasons),
                function=frame.function if frame else "",
                file=row.file,
                line=row.line if row.HasField("line") else None,
                duration_s=seconds(frame.duration_ns) if frame and timed else None,
                recovered=row.recovered,
            )
        )
    return rows


def _key(key: CompileKey) -> tuple[int, str]:
    return key.epoch, key.compile_id
