"""What happened in a range of the timeline? Slices count with the part of them that is inside."""

from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Fact, Timeline, busy_fact, time_fact
from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    covered_ns,
    distinct,
    indices_in,
    share_percent,
    sums,
    union,
    us,
)
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, gpu_work

_MAX_ROWS = 8  # threads, kernels and host slices that are shown


class LongestRow(msgspec.Struct, frozen=True):
    """A kernel or operator with its time, in words."""

    name: str
    text: str


class Longest(msgspec.Struct, frozen=True):
    """The kernels, or the host slices, with most time."""

    title: str
    kernels: bool
    rows: list[LongestRow]


class TimelineRange(msgspec.Struct, frozen=True):
    """What happened in a range."""

    facts: list[Fact]
    longest: list[Longest]


def timeline_range(timeline: Timeline, window: tuple[int, int]) -> TimelineRange:
    """Return what took time in [start, end) ns; raises BadRequest for a range without time, or where nothing is."""
    start, end = window
    timeline.check(start, end)
    length, threads = time_fact("Length", end - start), islice(_threads(timeline, start, end), _MAX_ROWS)
    longest = [_kernels(timeline, start, end), _ops(timeline, start, end)]
    return TimelineRange(
        facts=[length, *_gpus(timeline, start, end), *threads],
        longest=[group for group in longest if group.rows],
    )


def _gpu_work(timeline: Timeline, start: int, end: int) -> tuple[GpuWork, Int64s, Int64s]:
    """Return the GPU events that ran at least partly inside, with their begin and end."""
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    begin = trace.ts[work.index] - timeline.origin
    stop = begin + trace.dur[work.index]
    inside = np.flatnonzero((begin < end) & ((stop > start) | (begin >= start)))
    return work.where(inside), begin[inside], stop[inside]


def _gpus(timeline: Timeline, start: int, end: int) -> Iterator[Fact]:
    work, begin, stop = _gpu_work(timeline, start, end)
    for device in np.unique(timeline.profile.of(gpu_work).device).tolist():
        rows = np.flatnonzero(work.device == device)
        busy = int(covered_ns(union(begin[rows], stop[rows]), np.array([start]), np.array([end]))[0])
        yield busy_fact(f"GPU {device} busy", busy, share_percent(busy, end - start), len(rows))


def _threads(timeline: Timeline, start: int, end: int) -> Iterator[Fact]:
    trace = timeline.rows.trace
    for lane in timeline.lanes:
        slices = timeline.slices.get(lane.id)
        if lane.kind == "thread" and isinstance(slices, TrackSlices):
            rows = timeline.rows.touching(slices.track, start, end)
            rows = rows[trace.depth[rows] == 0]
            begin = trace.ts[rows] - timeline.origin
            if busy := int(_inside(begin, begin + trace.dur[rows], start, end).sum()):
                yield busy_fact(lane.title, busy, share_percent(busy, end - start))


def _kernels(timeline: Timeline, start: int, end: int) -> Longest:
    trace, (work, begin, stop) = timeline.rows.trace, _gpu_work(timeline, start, end)
    time = _inside(begin, stop, start, end)
    kinds, rows = _longest(timeline, time, trace.name[work.index], work.device, trace.cat[work.index])
    number = plural(kinds, "distinct kernel")
    return Longest(f"{number}, {duration(us(time.sum()))} in all; the longest:", True, rows)


def _ops(timeline: Timeline, start: int, end: int) -> Longest:
    trace, (host, own_ns) = timeline.rows.trace, host_inside(timeline, start, end)
    kinds, rows = _longest(timeline, own_ns, trace.name[host], trace.cat[host])
    time = duration(us(own_ns.sum()))
    return Longest(f"{plural(kinds, 'kind')} of host slices, by self time of {time}:", False, rows)


def _longest(timeline: Timeline, ns: Int64s, *columns: Int64s) -> tuple[int, list[LongestRow]]:
    """Return how many kinds of slices there are, and those with most time; columns: what a kind is, first its name."""
    keys, kind = distinct(*columns)
    count = keys.shape[1]
    time, calls = sums(kind, ns, count), np.bincount(kind, minlength=count)
    return count, [
        LongestRow(
            timeline.rows.trace.names[keys[0, index]], f"{duration(us(time[index]))}, ×{calls[index]:,}"
        )
        for index in np.argsort(-time, kind="stable")[:_MAX_ROWS].tolist()
    ]


def host_inside(timeline: Timeline, start: int, end: int) -> tuple[Int64s, Int64s]:
    """Return what host threads but the profiler's ran in [start, end): rows of the trace, and the own ns of each.

    One that outlasts its parent counts up to that one's end.
    """
    trace = timeline.rows.trace
    lanes = [lane.id for lane in timeline.lanes if lane.kind == "thread" and lane.group != "profiler"]
    tracks = [track for track, lane in timeline.lane_of_track.items() if lane in lanes]
    touching = [timeline.rows.touching(track, start, end) for track in tracks]
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *touching]))
    begin, stop = trace.ts[rows] - timeline.origin, timeline.rows.clamped_end(rows) - timeline.origin
    # A slice may reach into the range only where it outlasts its parent: that part does not count.
    counts = (stop > start) | (begin >= start)
    rows, ns = rows[counts], _inside(begin[counts], stop[counts], start, end)
    parent = indices_in(rows, trace.parent[rows])
    nested = parent >= 0
    return rows, ns - np.bincount(parent[nested], ns[nested], len(rows)).astype(np.int64)


def _inside(begin: Int64s, stop: Int64s, start: int, end: int) -> Int64s:
    """Return how much of each interval is in [start, end)."""
    return np.asarray(np.maximum(np.minimum(stop, end) - np.maximum(begin, start), 0))
