"""Where in a profiled span did the recompiles happen, and what do many versions cost each call?

torch keeps the compiled versions of a frame as cache entries and evaluates the guards of one after the other until one
set holds; so a lookup may cost the more the more entries there are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.recompiles.recompiles import frame_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace

_SAME_NS = 1_000_000_000  # the log's clock and the trace's differ by milliseconds at most


class RecompileMoment(msgspec.Struct, frozen=True):
    """When one recompile began: `start_us` counts from the span's first event and is negative before it. `step`: the
    profiled step around it, null outside of all."""

    compile_id: str
    epoch: int
    start_us: float
    where: Literal["before", "inside", "after"]
    step: str | None


class GuardScan(msgspec.Struct, frozen=True):
    """The lookups that ended with one version while `entries` versions of its frame were alive."""

    compile_id: str
    entries: int
    calls: int
    median_us: float
    max_us: float


def recompile_moments(profile: Profile) -> list[RecompileMoment] | None:
    """In the order in which torch reported them, without those whose time is not known; None without compile data."""
    trace, summary = profile.trace, profile.summary
    if summary is None:
        return None
    recompiled = {(row.key.epoch, row.key.compile_id) for row in summary.recompiles}
    steps, (first, last) = profile.of(StepWindows), trace.window()
    rows = []
    for row in summary.compilations:
        if (
            (row.key.epoch, row.key.compile_id) in recompiled
            and row.direction == FORWARD
            and row.HasField("start_ns")
        ):
            start = _start(trace, profile.of(Ownership), row)
            step = int(steps.of(np.array([start], np.int64))[0])
            rows.append(
                RecompileMoment(
                    compile_id=row.key.compile_id,
                    epoch=row.key.epoch,
                    start_us=us(start - first),
                    where="before" if start < first else "inside" if start < last else "after",
                    step=steps.names[step] if step >= 0 else None,
                )
            )
    return rows


def _start(trace: Trace, ownership: Ownership, row: Compilation) -> int:
    """On the trace's clock: its own slice of that compilation, where it has one, else the time of the log."""
    recorded = row.start_ns - trace.base_ns
    mine = [
        int(trace.ts[at])
        for at, code in ownership.compilations
        if ownership.names[code] == row.key.compile_id
    ]
    nearest = min(mine, key=lambda start: abs(start - recorded), default=recorded)
    return nearest if abs(nearest - recorded) < _SAME_NS else recorded


def guard_scans(profile: Profile) -> list[GuardScan] | None:
    """Of frames that had more than one version, by version and number of entries alive; None without compile data."""
    if profile.summary is None:
        return None
    ends = _entries(profile.trace, profile.summary)
    by_entries: dict[tuple[str, int], list[int]] = defaultdict(list)
    for call in every(profile.of(region_calls)):
        others = [
            end
            for compile_id, end in ends[frame_of(call.compile_id)].items()
            if compile_id != call.compile_id
        ]
        if others and call.lookups:
            alive = 1 + sum(end <= call.begin for end in others)
            by_entries[call.compile_id, alive].append(call.guard_ns)
    return [
        GuardScan(compile_id, entries, len(costs), float(np.median(costs)) / 1000, us(max(costs)))
        for (compile_id, entries), costs in sorted(
            by_entries.items(), key=lambda item: (item[0][1], item[0][0])
        )
    ]


def _entries(trace: Trace, summary: CompileSummary) -> dict[str, dict[str, int]]:
    """frame → compile id → when its entry came to be, on the trace's clock. The latest compilation of each id counts:
    torch._dynamo.reset() gives ids out anew."""
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for row in sorted(summary.compilations, key=lambda row: row.key.epoch):
        made = row.direction == FORWARD and row.HasField("duration_ns") and not row.HasField("failure")
        if made and row.start_ns - trace.base_ns <= trace.window()[1]:
            end = row.start_ns + row.duration_ns - trace.base_ns
            ends[frame_of(row.key.compile_id)][row.key.compile_id] = end
    return ends
