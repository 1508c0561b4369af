"""What happened in a range of the timeline? Slices count with the part of them that is inside."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import COLORS, Color, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Fact, Timeline, busy_fact, time_fact
from tb_torchcompile_plugin.profile.columns import distinct, indices_in
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, share_percent, union, us

_MAX_ROWS = 50  # rows of the tables of kernels and of operators
_MAX_FACTS = 8  # threads, kernels and host slices shown first


class HostInside(NamedTuple):
    """What host threads ran in a range, as columns of equal length by row."""

    row: Int64s  # of the trace
    parent: Int64s  # index of the slice around it, -1 for none
    ns: Int64s  # its time inside; one that outlasts its parent counts up to that one's end
    own_ns: Int64s  # without the slices directly inside it


class GpuInRange(msgspec.Struct, frozen=True):
    """How busy one GPU was."""

    device: int
    busy_ns: int
    busy_percent: float | None
    kernels: int  # kernels, copies and fills that ran at least partly inside


class KernelInRange(msgspec.Struct, frozen=True):
    """One kernel, over all its launches."""

    device: int
    name: str
    category: Color
    launches: int
    time_ns: int


class OpInRange(msgspec.Struct, frozen=True):
    """One kind of host slices."""

    name: str
    cat: str
    calls: int
    self_ns: int  # not in any slice inside these
    time_ns: int  # counts a slice inside one of the same kind twice


class ThreadInRange(msgspec.Struct, frozen=True):
    """How busy one thread was."""

    lane: int
    title: str
    busy_ns: int  # time in any slice
    busy_percent: float | None


class LongestRow(msgspec.Struct, frozen=True):
    """A kernel or operator with its time, in words."""

    name: str
    text: str


class Longest(msgspec.Struct, frozen=True):
    """The first rows of `kernels` or of `ops`, in words."""

    title: str
    kernels: bool
    rows: list[LongestRow]


class TimelineRange(msgspec.Struct, frozen=True):
    """What happened in a range."""

    start_ns: int
    end_ns: int
    facts: list[Fact]
    longest: list[Longest]
    gpu: list[GpuInRange]
    threads: list[ThreadInRange]
    kernels: list[KernelInRange]  # the first by time
    distinct_kernels: int
    kernel_ns: int
    ops: list[OpInRange]  # the first by self time
    distinct_ops: int
    host_self_ns: int


class _Sums(NamedTuple):
    """By distinct key: how many slices, and how long they took inside the range."""

    keys: Int64s
    first: Int64s  # index of the first slice with the key
    calls: Int64s
    self_ns: Int64s
    time_ns: Int64s

    @property
    def longest(self) -> list[int]:
        order: list[int] = np.lexsort((self.keys, -self.self_ns))[:_MAX_ROWS].tolist()
        return order


def timeline_range(timeline: Timeline, window: tuple[int, int]) -> TimelineRange:
    """Summarize [start, end), ns; raises BadRequest for a range without time, or where nothing is."""
    start, end = window
    timeline.check(start, end)
    gpus, threads = _gpus(timeline, start, end), _threads(timeline, start, end)
    kernels, kernel_sums = _kernels(timeline, start, end)
    ops, op_sums = _ops(timeline, start, end)
    kernel_ns, host_self_ns = int(kernel_sums.time_ns.sum()), int(op_sums.self_ns.sum())
    kernel_count, op_count = (
        plural(len(kernel_sums.keys), "distinct kernel"),
        plural(len(op_sums.keys), "kind"),
    )
    kernel_title = f"{kernel_count}, {duration(us(kernel_ns))} in all; the longest:"
    op_title = f"{op_count} of host slices, by self time of {duration(us(host_self_ns))}:"
    longest_kernels = [_longest(row.name, row.time_ns, row.launches) for row in kernels[:_MAX_FACTS]]
    longest_ops = [_longest(row.name, row.self_ns, row.calls) for row in ops[:_MAX_FACTS]]
    longest = [Longest(kernel_title, True, longest_kernels), Longest(op_title, False, longest_ops)]
    facts = [time_fact("Length", end - start)]
    facts += [busy_fact(f"GPU {row.device} busy", row.busy_ns, row.busy_percent, row.kernels) for row in gpus]
    facts += [busy_fact(row.title, row.busy_ns, row.busy_percent) for row in threads[:_MAX_FACTS]]
    return TimelineRange(
        start_ns=start,
        end_ns=end,
        facts=facts,
        longest=[group for group in longest if group.rows],
        gpu=gpus,
        threads=threads,
        kernels=kernels,
        distinct_kernels=len(kernel_sums.keys),
        kernel_ns=kernel_ns,
        ops=ops,
        distinct_ops=len(op_sums.keys),
        host_self_ns=host_self_ns,
    )


def _longest(name: str, ns: int, times: int) -> LongestRow:
    return LongestRow(name, f"{duration(us(ns))}, ×{times:,}")


def _gpus(timeline: Timeline, start: int, end: int) -> list[GpuInRange]:
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    rows = []
    for device in np.unique(work.device).tolist():
        index = work.index[work.device == device]
        begin = trace.ts[index] - timeline.origin
        stop = begin + trace.dur[index]
        busy = int(covered_ns(union(begin, stop), np.array([start]), np.array([end]))[0])
        kernels = int(((begin < end) & ((stop > start) | (begin >= start))).sum())
        rows.append(GpuInRange(device, busy, share_percent(busy, end - start), kernels))
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
            busy = int(_inside(begin, begin + trace.dur[rows], start, end).sum())
            if busy:
                threads.append(ThreadInRange(lane.id, lane.title, busy, share_percent(busy, end - start)))
    return threads


def _kernels(timeline: Timeline, start: int, end: int) -> tuple[list[KernelInRange], _Sums]:
    trace, work = timeline.rows.trace, timeline.profile.of(gpu_work)
    begin = trace.ts[work.index] - timeline.origin
    stop = begin + trace.dur[work.index]
    inside = np.flatnonzero((begin < end) & ((stop > start) | (begin >= start)))
    rows, device = work.index[inside], work.device[inside]
    time = _inside(begin[inside], stop[inside], start, end)
    _, kind = distinct(device, trace.name[rows], trace.cat[rows])
    sums = _sums(kind, time, time)
    first = sums.first[sums.longest]
    colors = timeline.palette.colors(rows[first])
    kernels = [
        KernelInRange(
            device=int(device[slice_index]),
            name=trace.names[trace.name[rows[slice_index]]],
            category=COLORS[int(color)],
            launches=int(sums.calls[index]),
            time_ns=int(sums.time_ns[index]),
        )
        for index, slice_index, color in zip(sums.longest, first, colors)
    ]
    return kernels, sums


def _ops(timeline: Timeline, start: int, end: int) -> tuple[list[OpInRange], _Sums]:
    trace = timeline.rows.trace
    host = host_inside(timeline, (start, end), host_tracks(timeline))
    cats = len(trace.cats)
    sums = _sums(trace.name[host.row].astype(np.int64) * cats + trace.cat[host.row], host.own_ns, host.ns)
    ops = [
        OpInRange(
            name=trace.names[sums.keys[index] // cats],
            cat=trace.cats[sums.keys[index] % cats],
            calls=int(sums.calls[index]),
            self_ns=int(sums.self_ns[index]),
            time_ns=int(sums.time_ns[index]),
        )
        for index in sums.longest
    ]
    return ops, sums


def _sums(key: Int64s, self_ns: Int64s, time_ns: Int64s) -> _Sums:
    keys, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    calls = np.bincount(inverse, minlength=len(keys))
    sums = (np.bincount(inverse, ns, len(keys)).astype(np.int64) for ns in (self_ns, time_ns))
    return _Sums(keys, first, calls, *sums)


def host_tracks(timeline: Timeline) -> list[int]:
    """Return the tracks of the host threads from top to bottom, without the profiler's."""
    lanes = [lane for lane in timeline.lanes if lane.kind == "thread" and lane.group != "profiler"]
    drawn = [timeline.slices[lane.id] for lane in lanes]
    return [slices.track for slices in drawn if isinstance(slices, TrackSlices)]


def host_inside(
    timeline: Timeline, window: tuple[int, int], tracks: Sequence[int], depth: int = 0
) -> HostInside:
    """Return what these tracks ran in [start, end), ns, at this depth and deeper."""
    trace, (start, end) = timeline.rows.trace, window
    touching = [timeline.rows.touching(track, start, end) for track in tracks]
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *touching]))
    rows = rows[trace.depth[rows] >= depth]
    begin, stop = trace.ts[rows] - timeline.origin, timeline.rows.clamped_end(rows) - timeline.origin
    # A slice may reach into the range only where it outlasts its parent: that part does not count.
    counts = (stop > start) | (begin >= start)
    rows, ns = rows[counts], _inside(begin[counts], stop[counts], start, end)
    parent = indices_in(rows, trace.parent[rows])
    nested = parent >= 0
    own = ns - np.bincount(parent[nested], ns[nested], len(rows)).astype(np.int64)
    return HostInside(rows, parent, ns, own)


def _inside(begin: Int64s, stop: Int64s, start: int, end: int) -> Int64s:
    """Return how much of each interval is in [start, end)."""
    part: Int64s = np.maximum(np.minimum(stop, end) - np.maximum(begin, start), 0)
    return part
