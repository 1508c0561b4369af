"""What happened in a stretch of the timeline? Slices count with the part of them that lies inside."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.timeline.lanes import COLORS, Color, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, union
from tb_torchcompile_plugin.profile.units import percent

TOP = 50


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


class TimelineRange(msgspec.Struct, frozen=True):
    """`kernels` by time and `ops` by self time: the first 50 of `distinct_kernels` and `distinct_ops`."""

    start_ns: int
    end_ns: int
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
    kernels, kernel_sums = _kernels(timeline, start, end)
    ops, op_sums = _ops(timeline, start, end)
    return TimelineRange(
        start_ns=start,
        end_ns=end,
        gpu=_gpus(timeline, start, end),
        threads=_threads(timeline, start, end),
        kernels=kernels,
        distinct_kernels=len(kernel_sums.keys),
        kernel_ns=int(kernel_sums.time_ns.sum()),
        ops=ops,
        distinct_ops=len(op_sums.keys),
        host_self_ns=int(op_sums.self_ns.sum()),
    )


def _inside(start: Int64s, stop: Int64s, window: tuple[int, int]) -> Int64s:
    inside: Int64s = np.maximum(np.minimum(stop, window[1]) - np.maximum(start, window[0]), 0)
    return inside


def _gpus(timeline: Timeline, start: int, end: int) -> list[GpuInRange]:
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    rows = []
    for device in np.unique(work.device).tolist():
        index = work.index[work.device == device]
        begin = trace.ts[index] - timeline.origin
        stop = begin + trace.dur[index]
        busy = int(covered_ns(union(begin, stop), np.array([start]), np.array([end]))[0])
        ran = int(((begin < end) & ((stop > start) | (begin >= start))).sum())
        rows.append(GpuInRange(device, busy, percent(busy, end - start), ran))
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
            busy = int(_inside(begin, begin + trace.dur[rows], (start, end)).sum())
            threads.append(ThreadInRange(lane.id, lane.title, busy, percent(busy, end - start)))
    return [row for row in threads if row.busy_ns]


def _kernels(timeline: Timeline, start: int, end: int) -> tuple[list[KernelInRange], _Sums]:
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    begin = trace.ts[work.index] - timeline.origin
    stop = begin + trace.dur[work.index]
    here = np.flatnonzero((begin < end) & ((stop > start) | (begin >= start)))
    rows = work.index[here]
    time = _inside(begin[here], stop[here], (start, end))
    key = work.device[here] * len(trace.names) * len(trace.cats)
    key += trace.name[rows].astype(np.int64) * len(trace.cats) + trace.cat[rows]
    sums, first = _summed(key, time, time)
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
    lanes = [lane for lane in timeline.lanes if lane.kind == "thread" and lane.group != "profiler"]
    slices = [timeline.slices[lane.id] for lane in lanes]
    tracks = [one.track for one in slices if isinstance(one, TrackSlices)]
    rows = np.sort(
        np.concatenate(
            [timeline.rows.touching(track, start, end) for track in tracks] or [np.zeros(0, np.int64)]
        )
    )
    begin = trace.ts[rows] - timeline.origin
    time = _inside(begin, timeline.rows.clamped_end(rows) - timeline.origin, (start, end))
    parent = np.searchsorted(rows, trace.parent[rows])
    nested = trace.parent[rows] >= 0
    below = np.bincount(parent[nested], time[nested], len(rows)).astype(np.int64)
    key = trace.name[rows].astype(np.int64) * len(trace.cats) + trace.cat[rows]
    sums, _ = _summed(key, time - below, time)
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
