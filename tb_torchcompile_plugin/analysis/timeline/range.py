"""What happened in a stretch of the timeline? Slices count with the part of them that lies inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import COLORS, Color, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Fact, Timeline, busy_fact, time_fact
from tb_torchcompile_plugin.profile.columns import distinct, places_in
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, union
from tb_torchcompile_plugin.profile.units import share_percent, us

# What host threads ran in a stretch of the timeline: slices with the part of them that lies inside.


class HostInside(NamedTuple):
    """Columns of equal length by row. row: of the trace. parent: the place of the slice around it, -1 for none.

    ns: its time inside; one that outlasts its parent counts up to that one's end. own_ns: less that of the slices
    directly inside it.
    """

    row: Int64s
    parent: Int64s
    ns: Int64s
    own_ns: Int64s


def host_tracks(timeline: Timeline) -> list[int]:
    """The threads from top to bottom, without the profiler's."""
    lanes = [lane for lane in timeline.lanes if lane.kind == "thread" and lane.group != "profiler"]
    drawn = [timeline.slices[lane.id] for lane in lanes]
    return [slices.track for slices in drawn if isinstance(slices, TrackSlices)]


def host_inside(
    timeline: Timeline, window: tuple[int, int], tracks: Sequence[int], depth: int = 0
) -> HostInside:
    """Of these tracks in [start, end), ns. depth: less deep slices are left out."""
    trace, start = timeline.rows.trace, window[0]
    touching = [timeline.rows.touching(track, *window) for track in tracks]
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *touching]))
    rows = rows[trace.depth[rows] >= depth]
    begin, stop = trace.ts[rows] - timeline.origin, timeline.rows.clamped_end(rows) - timeline.origin
    counts = (stop > start) | (begin >= start)  # not what lies inside only where it outlasts its parent
    rows, ns = rows[counts], inside(begin[counts], stop[counts], window)
    parent = places_in(rows, trace.parent[rows])
    nested = parent >= 0
    own = ns - np.bincount(parent[nested], ns[nested], len(rows)).astype(np.int64)
    return HostInside(rows, parent, ns, own)


def inside(start: Int64s, stop: Int64s, window: tuple[int, int]) -> Int64s:
    """How much of start … stop lies in the window."""
    part: Int64s = np.maximum(np.minimum(stop, window[1]) - np.maximum(start, window[0]), 0)
    return part


TOP = 50
_FEW = 8  # threads, kernels and host slices that are told first


class GpuInRange(msgspec.Struct, frozen=True):
    """`kernels`: how many kernels, copies and fills ran at least partly inside."""

    device: int
    busy_ns: int
    busy_percent: float | None
    kernels: int


class KernelInRange(msgspec.Struct, frozen=True):
    device: int
    name: str
    category: Color
    launches: int
    time_ns: int


class OpInRange(msgspec.Struct, frozen=True):
    """`self_ns` is what none of the slices inside these took. `time_ns` counts a slice inside its like twice."""

    name: str
    cat: str
    calls: int
    self_ns: int
    time_ns: int


class ThreadInRange(msgspec.Struct, frozen=True):
    """How long a thread was in any slice."""

    lane: int
    title: str
    busy_ns: int
    busy_percent: float | None


class LongestRow(msgspec.Struct, frozen=True):
    name: str
    text: str


class Longest(msgspec.Struct, frozen=True):
    """The first rows of `kernels` or of `ops`, in words."""

    title: str
    kernels: bool
    rows: list[LongestRow]


class TimelineRange(msgspec.Struct, frozen=True):
    """`facts` and `longest`: what is told of it. `kernels` by time and `ops` by self time: the first 50 of
    `distinct_kernels` and `distinct_ops`."""

    start_ns: int
    end_ns: int
    facts: list[Fact]
    longest: list[Longest]
    gpu: list[GpuInRange]
    threads: list[ThreadInRange]
    kernels: list[KernelInRange]
    distinct_kernels: int
    kernel_ns: int
    ops: list[OpInRange]
    distinct_ops: int
    host_self_ns: int


class _Sums(NamedTuple):
    """By distinct key: how many slices, and how long they took inside the range."""

    keys: Int64s
    calls: Int64s
    self_ns: Int64s
    time_ns: Int64s

    def top(self, by: Int64s) -> list[int]:
        order: list[int] = np.lexsort((self.keys, -by))[:TOP].tolist()
        return order


def timeline_range(timeline: Timeline, window: tuple[int, int]) -> TimelineRange:
    """Of [start, end), ns. Raises BadRequest for a range without time, or where nothing is."""
    start, end = window
    timeline.check(start, end)
    gpus, threads = _gpus(timeline, start, end), _threads(timeline, start, end)
    kernels, kernel_sums = _kernels(timeline, start, end)
    ops, op_sums = _ops(timeline, start, end)
    return TimelineRange(
        start_ns=start,
        end_ns=end,
        facts=_facts(end - start, gpus, threads),
        longest=_longest(kernels, kernel_sums, ops, op_sums),
        gpu=gpus,
        threads=threads,
        kernels=kernels,
        distinct_kernels=len(kernel_sums.keys),
        kernel_ns=int(kernel_sums.time_ns.sum()),
        ops=ops,
        distinct_ops=len(op_sums.keys),
        host_self_ns=int(op_sums.self_ns.sum()),
    )


def _facts(length: int, gpus: list[GpuInRange], threads: list[ThreadInRange]) -> list[Fact]:
    return [
        time_fact("Length", length),
        *(busy_fact(f"GPU {row.device} busy", row.busy_ns, row.busy_percent, row.kernels) for row in gpus),
        *(busy_fact(row.title, row.busy_ns, row.busy_percent) for row in threads[:_FEW]),
    ]


def _longest(
    kernels: list[KernelInRange], kernel_sums: _Sums, ops: list[OpInRange], op_sums: _Sums
) -> list[Longest]:
    distinct, whole = len(kernel_sums.keys), duration(us(int(kernel_sums.time_ns.sum())))
    launched = [LongestRow(row.name, _times(row.time_ns, row.launches)) for row in kernels[:_FEW]]
    host = [LongestRow(row.name, _times(row.self_ns, row.calls)) for row in ops[:_FEW]]
    own = duration(us(int(op_sums.self_ns.sum())))
    both = [
        Longest(f"{plural(distinct, 'distinct kernel')}, {whole} in all; the longest:", True, launched),
        Longest(f"{plural(len(op_sums.keys), 'kind')} of host slices, by self time of {own}:", False, host),
    ]
    return [one for one in both if one.rows]


def _times(ns: int, times: int) -> str:
    return f"{duration(us(ns))}, ×{times:,}"


def _gpus(timeline: Timeline, start: int, end: int) -> list[GpuInRange]:
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    rows = []
    for device in np.unique(work.device).tolist():
        index = work.index[work.device == device]
        begin = trace.ts[index] - timeline.origin
        stop = begin + trace.dur[index]
        busy = int(covered_ns(union(begin, stop), np.array([start]), np.array([end]))[0])
        ran = int(((begin < end) & ((stop > start) | (begin >= start))).sum())
        rows.append(GpuInRange(device, busy, share_percent(busy, end - start), ran))
    return rows


def _threads(timeline: Timeline, start: int, end: int) -> list[ThreadInRange]:
    trace = timeline.rows.trace
    threads = []
    for lane in timeline.lanes:
        slices = timeline.slices.get(lane.id)
        if lane.kind == "thread" and isinstance(slices, TrackSlices):
            rows = timeline.rows.touching(slices.track, start, end)
            rows = rows[trace.depth[rows] == 0]
            begin = trace.ts[rows] - timeline.origin
            busy = int(inside(begin, begin + trace.dur[rows], (start, end)).sum())
            threads.append(ThreadInRange(lane.id, lane.title, busy, share_percent(busy, end - start)))
    return [row for row in threads if row.busy_ns]


def _kernels(timeline: Timeline, start: int, end: int) -> tuple[list[KernelInRange], _Sums]:
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    begin = trace.ts[work.index] - timeline.origin
    stop = begin + trace.dur[work.index]
    here = np.flatnonzero((begin < end) & ((stop > start) | (begin >= start)))
    rows = work.index[here]
    time = inside(begin[here], stop[here], (start, end))
    _, kind = distinct(work.device[here], trace.name[rows], trace.cat[rows])
    sums, first = _summed(kind, time, time)
    return [
        KernelInRange(
            device=int(work.device[here[first[place]]]),
            name=trace.names[trace.name[rows[first[place]]]],
            category=COLORS[int(timeline.palette.colors(rows[first[place : place + 1]])[0])],
            launches=int(sums.calls[place]),
            time_ns=int(sums.time_ns[place]),
        )
        for place in sums.top(sums.time_ns)
    ], sums


def _ops(timeline: Timeline, start: int, end: int) -> tuple[list[OpInRange], _Sums]:
    trace = timeline.rows.trace
    rows, _, time, own = host_inside(timeline, (start, end), host_tracks(timeline))
    key = trace.name[rows].astype(np.int64) * len(trace.cats) + trace.cat[rows]
    sums, _ = _summed(key, own, time)
    return [
        OpInRange(
            name=trace.names[sums.keys[place] // len(trace.cats)],
            cat=trace.cats[sums.keys[place] % len(trace.cats)],
            calls=int(sums.calls[place]),
            self_ns=int(sums.self_ns[place]),
            time_ns=int(sums.time_ns[place]),
        )
        for place in sums.top(sums.self_ns)
    ], sums


def _summed(key: Int64s, own: Int64s, time: Int64s) -> tuple[_Sums, Int64s]:
    """The sums, and of each key the first place where it stands."""
    keys, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    calls = np.bincount(inverse, minlength=len(keys))
    own_sum, time_sum = (np.bincount(inverse, values, len(keys)).astype(np.int64) for values in (own, time))
    return _Sums(keys, calls, own_sum, time_sum), first
