"""Which frames were compiled again, which guard failed, and what did dynamo do about it?"""

from __future__ import annotations

import json

import msgspec

from tb_torchcompile_plugin.analysis.recompiles.guard_reasons import FailedGuard, failed_guard
from tb_torchcompile_plugin.analysis.recompiles.symbolic_shapes import DynamicChange, symbolic_shapes
from tb_torchcompile_plugin.analysis.words import duration, plural
from tb_torchcompile_plugin.compile_log.record import (
    forward_compilations,
    key_of,
    known_number,
    known_seconds,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation
from tb_torchcompile_plugin.compile_log.summary_pb2 import Recompile as RecompileMessage
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_ahead
from tb_torchcompile_plugin.torch_names.graph_breaks import is_limit
from tb_torchcompile_plugin.torch_names.records import RECOMPILE_LIMIT


class Recompile(msgspec.Struct, frozen=True):
    """One recompile. `reasons` has one entry for each cache entry that was tried, most recent first; `guards` is the
    same, taken apart. `dynamic`: which inputs changed, so that torch made them dynamic. `start_s` is Unix time."""

    compile_id: str
    epoch: int
    reasons: list[str]
    guards: list[FailedGuard]
    dynamic: list[DynamicChange]
    function: str
    file: str
    line: int | None
    start_s: float | None
    duration_s: float | None
    recovered: bool


class Version(msgspec.Struct, frozen=True):
    """`calls`: how often the span ran it; None without a trace."""

    compile_id: str
    duration_s: float | None
    calls: int | None


class RecompiledFrame(msgspec.Struct, frozen=True):
    """A frame with more than one version, in the order in which they were compiled. `limit`: how many torch keeps
    (`torch._dynamo.config.recompile_limit`), None where it does not tell. `limit_hit`: the compile id that there was no
    room for; from there on calls that no version fits run eager."""

    frame: str
    epoch: int
    function: str
    file: str
    line: int | None
    versions: list[Version]
    limit: int | None
    limit_hit: str | None


def recompiles(data: CompileData) -> list[Recompile]:
    """In the order in which torch reported them."""
    compiled = forward_compilations(data.summary)
    return [_recompile(data, row, compiled.get(key_of(row.key))) for row in data.summary.recompiles]


def recompiles_headline(data: CompileData) -> str:
    """ "3 recompiles cost 2.10 s of compile time." """
    rows = data.of(recompiles)
    spent = duration(1e6 * sum(row.duration_s or 0 for row in rows))
    return f"{plural(len(rows), 'recompile')} cost {spent} of compile time." if rows else "No recompiles."


def recompiled_frames(data: CompileData) -> list[RecompiledFrame]:
    """In the order of their first version."""
    rows = (row for row in data.summary.compilations if row.direction == FORWARD and row.key.compile_id)
    frames = grouped(rows, lambda row: (row.key.epoch, frame_of(row.key.compile_id)))
    all_frames = [_frame(frame, epoch, rows) for (epoch, frame), rows in frames.items()]
    return [row for row in all_frames if len(row.versions) > 1 or row.limit_hit]


def frame_of(compile_id: str) -> str:
    """The frame of a compile id: "0" of "0/1", "!1/2" of "!1/2/0". What was compiled ahead of time has no versions."""
    return compile_id if is_ahead(compile_id) else compile_id.rpartition("/")[0]


def _frame(frame: str, epoch: int, rows: list[Compilation]) -> RecompiledFrame:
    first = rows[0]
    failed = sorted((row for row in rows if row.HasField("failure")), key=lambda row: row.start_ns)
    refused = [row for row in failed if is_limit(row.failure.type, row.failure.reason)]
    limits = [json.loads(row.metrics[RECOMPILE_LIMIT]) for row in rows if RECOMPILE_LIMIT in row.metrics]
    return RecompiledFrame(
        frame=frame,
        epoch=epoch,
        function=first.function,
        file=first.file,
        line=known_number(first, "line"),
        versions=[
            Version(row.key.compile_id, known_seconds(row, "duration_ns"), None)
            for row in rows
            if not row.HasField("failure")
        ],
        limit=limits[-1] if limits else None,
        limit_hit=refused[0].key.compile_id if refused else None,
    )


def _recompile(data: CompileData, row: RecompileMessage, frame: Compilation | None) -> Recompile:
    changes = data.of(symbolic_shapes, row.key.epoch, row.key.compile_id).changes
    return Recompile(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        reasons=list(row.reasons),
        guards=[_with_new_value(failed_guard(reason), changes) for reason in row.reasons],
        dynamic=changes,
        function=frame.function if frame else "",
        file=row.file,
        line=known_number(row, "line"),
        start_s=known_seconds(frame, "start_ns") if frame else None,
        duration_s=known_seconds(frame, "duration_ns") if frame else None,
        recovered=row.recovered,
    )


def _with_new_value(guard: FailedGuard, changes: list[DynamicChange]) -> FailedGuard:
    """A guard on a value names only the old one; what torch made dynamic because of it names both."""
    if guard.new is not None or guard.old is None:
        return guard
    sources = (guard.source, f"L['{guard.source}']")
    came = [change.now for change in changes if change.source in sources and change.before == guard.old]
    return msgspec.structs.replace(guard, new=came[0]) if came else guard
