"""The longest stretches in which a GPU did nothing, each with what the host thread did that launched what came next."""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.gpu_utilization.idle import IdleCauses, idle_causes
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_of
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, Cause, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace

_NAMES = 12  # of what a thread did in one gap


class HostTime(msgspec.Struct, frozen=True):
    """Time of the thread in slices of this name, less what ran inside them; `slices` counts them."""

    name: str
    time_us: float
    slices: int


class IdleGap(msgspec.Struct, frozen=True):
    """One idle interval. `start_us` counts from the span's first event. `after` and `before`: the GPU events around it;
    `launch`: the call that launched the one that ends it, on `thread`; None where the trace does not tell.

    cause: the largest of `idle`. step: the profiled step in which the gap begins. host: most time first. row: of
    the trace, the slice that took most of the gap by itself, else that launch; None where the trace does not tell.
    """

    device: int
    start_us: float
    idle_us: float
    step: str | None
    cause: Cause
    idle: IdleCauses
    after: str | None
    before: str
    launch: str | None
    thread: str | None
    host: list[HostTime]
    row: int | None


def longest_gaps(profile: Profile, device: int, gaps: Gaps, most: int) -> list[IdleGap]:
    """The `most` longest of these `gaps` of one device, longest first."""
    steps = profile.of(step_slices)
    chosen = gaps.take(np.argsort(gaps.starts - gaps.ends, kind="stable")[:most])
    causes = causes_of(chosen, profile.of(ThreadActivity))
    return [_gap(profile.trace, device, chosen, row, causes[row], steps) for row in range(len(chosen))]


def _gap(trace: Trace, device: int, gaps: Gaps, row: int, causes: Int64s, steps: Int64s) -> IdleGap:
    start, end = int(gaps.starts[row]), int(gaps.ends[row])
    launch, track = int(gaps.launch[row]), int(gaps.track[row])
    rows, own = _own(trace, track, start, end) if track >= 0 else np.zeros((2, 0), np.int64)
    return IdleGap(
        device=device,
        start_us=us(start - trace.window()[0]),
        idle_us=us(end - start),
        step=_step(trace, steps, start),
        cause=CAUSES[int(causes.argmax())],
        idle=idle_causes(causes),
        after=_name(trace, int(gaps.preceding[row])),
        before=_name(trace, int(gaps.following[row])) or "",
        launch=_name(trace, launch),
        thread=_thread(trace, track),
        host=_host(trace, rows, own),
        row=_most(rows, own),
    )


def _name(trace: Trace, row: int) -> str | None:
    return trace.names[trace.name[row]] if row >= 0 else None


def _thread(trace: Trace, track: int) -> str | None:
    if track < 0:
        return None
    thread = trace.tracks[track]
    return thread.thread_name.strip() or str(thread.tid)


def _step(trace: Trace, steps: Int64s, moment: int) -> str | None:
    place = int(np.searchsorted(trace.ts[steps], moment, side="right")) - 1
    if place < 0:
        return None
    row = int(steps[place])
    return _name(trace, row) if moment < trace.ts[row] + trace.dur[row] else None


def _host(trace: Trace, rows: Int64s, own: Int64s) -> list[HostTime]:
    """By name what these slices took by themselves."""
    names, code = np.unique(trace.name[rows], return_inverse=True)
    time, slices = np.zeros(len(names), np.int64), np.bincount(code, minlength=len(names))
    np.add.at(time, code, own)
    order = [row for row in np.argsort(-time, kind="stable")[:_NAMES] if time[row]]
    return [HostTime(trace.names[names[row]], us(time[row]), int(slices[row])) for row in order]


def took(trace: Trace, track: int, start: int, end: int) -> int | None:
    """The thread's slice with most time by itself between start and end; None without any."""
    return _most(*_own(trace, track, start, end))


def _most(rows: Int64s, own: Int64s) -> int | None:
    return int(rows[np.argmax(own)]) if own.any() else None


def _own(trace: Trace, track: int, start: int, end: int) -> tuple[Int64s, Int64s]:
    """What the thread ran between start and end, and the time of each less what ran inside of it."""
    rows = _running(trace, track, start, end)
    parents = np.searchsorted(
        rows, trace.parent[rows]
    )  # of each row; 0 where it has none, which is then masked
    nested = trace.parent[rows] >= 0
    own = _clipped(trace, rows, np.where(nested, parents, -1), start, end)
    np.subtract.at(own, parents[nested], own[nested].copy())
    return rows, own


def _running(trace: Trace, track: int, start: int, end: int) -> Int64s:
    """Rows of the thread's slices that begin between start and end, and of those around its first one; ascending."""
    low, high = int(trace.track_bounds[track]), int(trace.track_bounds[track + 1])
    times = trace.ts[low:high]
    first, last = (low + int(place) for place in np.searchsorted(times, (start, end), side="left"))
    around = []
    row = first - 1 if first > low else -1
    while row >= 0:
        around.append(row)
        row = int(trace.parent[row])
    return np.concatenate((np.array(around[::-1], np.int64), np.arange(first, last)))


def _clipped(trace: Trace, rows: Int64s, parents: Int64s, start: int, end: int) -> Int64s:
    """Time of each slice between start and end; one that outlasts its parent ends with it. parents: places in rows."""
    ends = np.asarray(trace.ts[rows] + trace.dur[rows])
    depth = trace.depth[rows]
    for level in np.unique(depth):
        here = np.flatnonzero((depth == level) & (parents >= 0))
        ends[here] = np.minimum(ends[here], ends[parents[here]])
    inside = np.minimum(ends, end) - np.maximum(trace.ts[rows], start)
    return np.asarray(np.maximum(0, inside))
