"""The longest stretches in which a GPU did nothing, each with what the host thread did that launched what came next."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_of
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, Cause, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.model.attribution import Culprit, Culprits, culprits_of
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace

# Why did a GPU idle, and how long at a time?


_DECADES_US = (1, 10, 100, 1_000, 10_000, 100_000)


_EDGES_US = (0, *(step * decade for decade in _DECADES_US for step in (1, 2, 5)), 1_000_000)


class IdleCauses(msgspec.Struct, frozen=True):
    """Idle time by what the launching thread did, the first that holds; `thread_activity.CAUSES` in their order."""

    compile_us: float
    communication_wait_us: float
    synchronise_us: float
    data_loading_us: float
    guards_wrapper_us: float
    break_eager_us: float
    launch_call_us: float
    python_us: float
    nothing_launched_us: float


class GapBin(msgspec.Struct, frozen=True):
    """Gaps of at least `from_us` and less than `to_us` (None: no limit)."""

    from_us: float
    to_us: float | None
    gaps: int
    idle_us: float


def idle_causes(ns: Int64s, windows: int = 1) -> IdleCauses:
    """Numbers with their names, in the mean of the windows that they are summed over."""
    return IdleCauses(*(us(value) / windows for value in ns))


def gap_histogram(gaps: Gaps) -> list[GapBin]:
    """Bins of 1, 2, 5 µs and so on, from the shortest that occurs to the longest; [] without gaps."""
    lengths = gaps.ends - gaps.starts
    edges = np.array(_EDGES_US, np.int64) * 1000
    place = np.searchsorted(edges, lengths, side="right") - 1
    if not len(place):
        return []
    counts = np.bincount(place, minlength=len(edges))
    sums = np.zeros(len(edges), np.int64)
    np.add.at(sums, place, lengths)
    return [
        GapBin(
            from_us=float(_EDGES_US[bin_]),
            to_us=float(_EDGES_US[bin_ + 1]) if bin_ + 1 < len(edges) else None,
            gaps=int(counts[bin_]),
            idle_us=us(sums[bin_]),
        )
        for bin_ in range(int(place.min()), int(place.max()) + 1)
    ]


# What held each GPU up: its idle time in the steps, by what the host did meanwhile, in words that a user
# can act on. While a GPU idles it waits for the next launch, and so for what the host does on the way to
# it. The idle time is cut at the pieces of host time and the calls of the model's lane; what neither covers
# is told as nothing recorded. So the rows of a device sum to its idle time, to the nanosecond.


_LISTED = 100  # of each device; what is less is one row, with what nothing covers
_REST = Culprit("nothing", "", "", 0)


class HeldUp(msgspec.Struct, frozen=True):
    """One culprit of a device's idle time. idle_us, calls: a step, or in the span where there are no steps.

    share_percent: of the device's idle time. pattern: when it comes, "" where there is no more than one step. longest:
    the longest call, its begin counted from the span's first event, and its row; None where nothing was recorded.
    """

    device: int
    cause: HostCause
    name: str
    file: str
    line: int
    idle_us: float
    share_percent: float
    calls: float | None
    pattern: str
    longest_start_us: float | None
    longest_us: float | None
    longest_row: int | None


class _Idle(NamedTuple):
    """When a device did nothing in the steps."""

    device: int
    intervals: Intervals


class _Times(NamedTuple):
    """Pieces of host time and calls in order of time, each with the slice that ran, -1 for none."""

    begin: Int64s
    end: Int64s
    row: Int64s


def held_up(profile: Profile) -> list[HeldUp]:
    """Device by device, most idle time first. [] without launches."""
    lane, work = profile.of(host_lane), profile.of(gpu_work)
    if len(lane) < 2:
        return []
    times = _times(profile)
    blamed = culprits_of(profile, times.row)
    window = Intervals(lane.begin[lane.marks[:1]], lane.begin[lane.marks[-1:]])
    rows: list[HeldUp] = []
    for device in np.unique(work.device).tolist():
        idle = subtract(window, busy(profile.trace, work.index[work.device == device]))
        rows += _rows(profile, _Idle(int(device), idle), times, blamed)
    return rows


def _times(profile: Profile) -> _Times:
    """Without overlaps: a call counts from where those before it ended."""
    lane, pieces = profile.of(host_lane), profile.of(host_pieces)
    row = np.concatenate((pieces.row, lane.row))
    begin, end = np.concatenate((pieces.begin, lane.begin)), np.concatenate((pieces.end, lane.end))
    order = np.lexsort((end, begin))
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[order])[:-1]))
    begin = np.maximum(begin[order], reach)
    kept = begin < end[order]
    return _Times(begin[kept], end[order][kept], row[order][kept])


def _rows(profile: Profile, idle: _Idle, times: _Times, blamed: Culprits) -> list[HeldUp]:
    ns = covered_ns(idle.intervals, times.begin, times.end)
    by_culprit = np.zeros(len(blamed.culprits), np.int64)
    np.add.at(by_culprit, blamed.code, ns)
    order = [code for code in np.argsort(-by_culprit, kind="stable").tolist() if by_culprit[code]][:_LISTED]
    rows = []
    for code in order:
        mine = np.flatnonzero((blamed.code == code) & (ns > 0))
        calls = np.unique(blamed.call[mine][blamed.call[mine] >= 0])
        pattern = _pattern(profile, times.begin[mine], calls)
        rows.append(_row(profile, idle, blamed.culprits[code], calls, int(by_culprit[code]), pattern))
    if rest := idle.intervals.total_ns - int(by_culprit[order].sum()):
        rows.append(_row(profile, idle, _REST, np.zeros(0, np.int64), rest, ""))
    return rows


def _row(profile: Profile, idle: _Idle, culprit: Culprit, calls: Int64s, ns: int, pattern: str) -> HeldUp:
    trace, steps = profile.trace, profile.of(host_lane).steps
    longest = int(calls[np.argmax(trace.dur[calls])]) if len(calls) else None
    return HeldUp(
        device=idle.device,
        cause=culprit.cause,
        name=culprit.name,
        file=culprit.file,
        line=culprit.line,
        idle_us=us(ns) / steps,
        share_percent=100 * ns / idle.intervals.total_ns,
        calls=len(calls) / steps if len(calls) else None,
        pattern=pattern,
        longest_start_us=None if longest is None else us(int(trace.ts[longest]) - trace.window()[0]),
        longest_us=None if longest is None else us(int(trace.dur[longest])),
        longest_row=longest,
    )


def _pattern(profile: Profile, begin: Int64s, calls: Int64s) -> str:
    """ "every step", "the first step only", "2 of 4 steps"; and how many shapes came, where they were recorded."""
    lane, steps = profile.of(host_lane), profile.of(host_lane).steps
    if steps < 2:
        return ""
    came = np.unique(np.searchsorted(lane.begin[lane.marks], begin, side="right") - 1).tolist()
    when = "every step" if len(came) == steps else f"{len(came)} of {steps} steps"
    when = "the first step only" if came == [0] else when
    shapes = codes_of(profile.trace, "input_dims", calls)
    known = len(np.unique(shapes[shapes >= 0]))
    if known < 2:
        return when
    each = "a new shape each time" if known == len(calls) else f"{known} shapes in {len(calls)} calls"
    return f"{when}, {each}"


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
