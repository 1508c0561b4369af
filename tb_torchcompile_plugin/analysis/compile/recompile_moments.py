"""Where in a profiled span did the recompiles happen, and what do many versions cost each call?

torch keeps the compiled versions of a frame as cache entries and evaluates the guards of one after the other until one
set holds; so a lookup may cost more the more entries there are.
"""

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
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.intervals import us, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.arrays import grouped

_MAX_CLOCK_DIFFERENCE_NS = 1_000_000_000  # the log's clock and the trace's differ by milliseconds at most


class RecompileMoment(Recompile, frozen=True):
    """A recompile as the span shows it."""

    start_us: float | None  # from the span's first event; negative before it
    where: Literal["before", "inside", "after"] | None
    step: str | None  # the profiled step around it
    when: str | None  # in words; None where unknown
    calls: int  # how often the span ran this version


class GuardScan(msgspec.Struct, frozen=True):
    """The lookups that ended with one version while its frame had this many versions."""

    compile_id: str
    entries: int
    calls: int
    median_us: float
    max_us: float


def recompile_moments(profile: Profile) -> list[RecompileMoment] | None:
    """Return the recompiles in the order in which torch reported them; None without compile data."""
    if profile.data is None:
        return None
    calls = profile.of(calls_by_id)
    compiled = forward_compilations(profile.data.summary)
    return [
        _moment(profile, row, compiled.get((row.epoch, row.compile_id)), calls[row.compile_id])
        for row in profile.data.of(recompiles)
    ]


def _moment(profile: Profile, row: Recompile, compilation: Compilation | None, calls: int) -> RecompileMoment:
    fields = msgspec.structs.asdict(row)
    if compilation is None or not compilation.HasField("start_ns"):
        return RecompileMoment(**fields, start_us=None, where=None, step=None, when=None, calls=calls)
    first, last = profile.trace.window()
    # The start of the trace's own slice of that compilation, otherwise that in the log.
    trace, ownership = profile.trace, profile.of(Ownership)
    logged = compilation.start_ns - trace.base_ns
    slices = [
        slice_row for slice_row, code in ownership.compilations if ownership.names[code] == row.compile_id
    ]
    starts = [int(trace.ts[slice_row]) for slice_row in slices]
    nearest = min(starts, key=lambda start: abs(start - logged), default=logged)
    start = nearest if abs(nearest - logged) < _MAX_CLOCK_DIFFERENCE_NS else logged
    start_us, step = us(start - first), step_around(profile, start)
    where: Literal["before", "inside", "after"] = "inside"
    when = f"{duration(start_us)} into the span"
    if start < first:
        where, when = "before", f"{duration(-start_us)} before the span"
    elif start >= last:
        where, when = "after", "after the span"
    if step:
        when = f"in {step}"
    return RecompileMoment(**fields, start_us=start_us, where=where, step=step, when=when, calls=calls)


def step_around(profile: Profile, time_ns: int) -> str | None:
    """Return the profiled step that contains a time of the trace; None outside of all."""
    steps = profile.of(StepWindows)
    step = int(within(steps.windows, np.array([time_ns], np.int64))[0])
    return steps.names[step] if step >= 0 else None


def calls_by_id(profile: Profile) -> Counter[str]:
    """Count how often the span ran the region of each compile id."""
    return Counter(call.compile_id for call in all_calls(profile.of(region_calls)))


def frame_versions(profile: Profile) -> list[RecompiledFrame]:
    """Return `recompiled_frames` with the calls of their versions.

    Without compile data: the frames that ran in several versions, or in another one than the first.
    """
    calls = profile.of(calls_by_id)
    replace = msgspec.structs.replace
    if profile.data is not None:
        rows = []
        for row in profile.data.of(recompiled_frames):
            versions = [replace(version, calls=calls[version.compile_id]) for version in row.versions]
            rows.append(replace(row, versions=versions))
        return rows
    ran = (Version(compile_id, None, count) for compile_id, count in calls.items())
    frames = grouped(ran, lambda version: frame_of(version.compile_id))
    return [
        RecompiledFrame(frame, 0, "", "", None, versions, None, None)
        for frame, versions in frames.items()
        if len(versions) > 1 or not versions[0].compile_id.endswith("/0")
    ]


def headline(profile: Profile) -> str:
    """Say what recompiles cost; without compile data, that there were some."""
    if profile.data is not None:
        return profile.data.of(recompiles_headline)
    frames = profile.of(frame_versions)
    if not frames:
        return "Recompiles are not known."
    which = "it was" if len(frames) == 1 else "they were"
    return f"{plural(len(frames), 'frame')} ran in more than one version: {which} recompiled."


def guard_scans(profile: Profile) -> list[GuardScan] | None:
    """Group the lookups of recompiled frames by version and number of entries alive; None without compile data."""
    if profile.summary is None:
        return None
    trace = profile.trace
    # Frame → compile id → when its entry was complete, in trace time. The latest compilation of each id counts:
    # torch._dynamo.reset() makes ids start again.
    ends = defaultdict[str, dict[str, int]](dict)
    for row in sorted(profile.summary.compilations, key=lambda row: row.key.epoch):
        is_entry = row.direction == FORWARD and row.HasField("duration_ns") and not row.HasField("failure")
        if is_entry and row.start_ns - trace.base_ns <= trace.window()[1]:
            end = row.start_ns + row.duration_ns - trace.base_ns
            ends[frame_of(row.key.compile_id)][row.key.compile_id] = end
    times = defaultdict[tuple[str, int], list[int]](list)
    for call in all_calls(profile.of(region_calls)):
        versions = ends[frame_of(call.compile_id)]
        others = [end for compile_id, end in versions.items() if compile_id != call.compile_id]
        if others and call.lookups:
            alive = 1 + sum(end <= call.begin for end in others)
            times[call.compile_id, alive].append(call.guard_ns)
    rows = [
        GuardScan(compile_id, entries, len(costs), float(np.median(costs)) / 1000, us(max(costs)))
        for (compile_id, entries), costs in times.items()
    ]
    return sorted(rows, key=lambda row: (row.entries, row.compile_id))
