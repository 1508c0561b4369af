"""Where in a profiled span did the recompiles happen, and what do many versions cost each call?

torch keeps the compiled versions of a frame as cache entries and evaluates the guards of one after the other until one
set holds; so a lookup may cost the more the more entries there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.recompiles import (
    Recompile,
    RecompiledFrame,
    Version,
    frame_of,
    recompiled_frames,
    recompiles,
    recompiles_headline,
)
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompileSummary
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace

_SAME_NS = 1_000_000_000  # the log's clock and the trace's differ by milliseconds at most


class RecompileMoment(Recompile, frozen=True):
    """A recompile as the span saw it. `start_us` counts from the span's first event and is negative before it; `step`:
    the profiled step around it, null outside of all. `when` says it in words: null where torch did not tell.
    `calls`: how often the span ran this version."""

    start_us: float | None
    where: Literal["before", "inside", "after"] | None
    step: str | None
    when: str | None
    calls: int


class GuardScan(msgspec.Struct, frozen=True):
    """The lookups that ended with one version while `entries` versions of its frame were alive."""

    compile_id: str
    entries: int
    calls: int
    median_us: float
    max_us: float


def recompile_moments(profile: Profile) -> list[RecompileMoment] | None:
    """In the order in which torch reported them; None without compile data."""
    if profile.data is None:
        return None
    calls = profile.of(calls_by_id)
    compiled = forward_compilations(profile.data.summary)
    return [
        _moment(profile, row, compiled.get((row.epoch, row.compile_id)), calls[row.compile_id])
        for row in profile.data.of(recompiles)
    ]


def calls_by_id(profile: Profile) -> Counter[str]:
    """compile id → how often the span ran it."""
    return Counter(call.compile_id for call in every(profile.of(region_calls)))


def frame_versions(profile: Profile) -> list[RecompiledFrame]:
    """`recompiled_frames` with the calls of their versions; without compile data those that the trace tells: what ran
    in several versions, or in another than the first."""
    calls = profile.of(calls_by_id)
    if profile.data is not None:
        return [
            msgspec.structs.replace(
                row,
                versions=[msgspec.structs.replace(one, calls=calls[one.compile_id]) for one in row.versions],
            )
            for row in profile.data.of(recompiled_frames)
        ]
    ran = (Version(compile_id, None, count) for compile_id, count in calls.items())
    frames = grouped(ran, lambda version: frame_of(version.compile_id))
    return [
        RecompiledFrame(frame, 0, "", "", None, versions, None, None)
        for frame, versions in frames.items()
        if len(versions) > 1 or not versions[0].compile_id.endswith("/0")
    ]


def headline(profile: Profile) -> str:
    """What recompiles cost; without compile data, that there were some."""
    if profile.data is not None:
        return profile.data.of(recompiles_headline)
    frames = profile.of(frame_versions)
    if not frames:
        return "Recompiles are not known."
    which = "it was" if len(frames) == 1 else "they were"
    return f"{plural(len(frames), 'frame')} ran in more than one version: {which} recompiled."


def _moment(profile: Profile, row: Recompile, compilation: Compilation | None, calls: int) -> RecompileMoment:
    known = msgspec.structs.asdict(row)
    if compilation is None or not compilation.HasField("start_ns"):
        return RecompileMoment(**known, start_us=None, where=None, step=None, when=None, calls=calls)
    trace, steps = profile.trace, profile.of(StepWindows)
    (first, last), start = trace.window(), _start(trace, profile.of(Ownership), compilation)
    at = int(steps.of(np.array([start], np.int64))[0])
    step = steps.names[at] if at >= 0 else None
    after = us(start - first)
    words = {"before": f"{duration(-after)} before the span", "inside": f"{duration(after)} into the span"}
    where: Literal["before", "inside", "after"] = (
        "before" if start < first else "inside" if start < last else "after"
    )
    when = f"in {step}" if step else words.get(where, "after the span")
    return RecompileMoment(**known, start_us=after, where=where, step=step, when=when, calls=calls)


def _start(trace: Trace, ownership: Ownership, row: Compilation) -> int:
    """On the trace's clock: its own slice of that compilation, where it has one, else the time of the log."""
    recorded = row.start_ns - trace.base_ns
    name = row.key.compile_id
    mine = [int(trace.ts[at]) for at, code in ownership.compilations if ownership.names[code] == name]
    nearest = min(mine, key=lambda start: abs(start - recorded), default=recorded)
    return nearest if abs(nearest - recorded) < _SAME_NS else recorded


def guard_scans(profile: Profile) -> list[GuardScan] | None:
    """Of frames that had more than one version, by version and number of entries alive; None without compile data."""
    if profile.summary is None:
        return None
    ends = _entries(profile.trace, profile.summary)
    by_entries: dict[tuple[str, int], list[int]] = defaultdict(list)
    for call in every(profile.of(region_calls)):
        versions = ends[frame_of(call.compile_id)]
        others = [end for compile_id, end in versions.items() if compile_id != call.compile_id]
        if others and call.lookups:
            alive = 1 + sum(end <= call.begin for end in others)
            by_entries[call.compile_id, alive].append(call.guard_ns)
    rows = [
        GuardScan(compile_id, entries, len(costs), float(np.median(costs)) / 1000, us(max(costs)))
        for (compile_id, entries), costs in by_entries.items()
    ]
    return sorted(rows, key=lambda row: (row.entries, row.compile_id))


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
