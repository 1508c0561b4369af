"""The GPUs' side of a step: which work each call of the host lane queued, and what made it begin when it did.

A piece of work begins when it has reached the GPU (its launch and a latency), when its stream has done what was queued
before, and when work of another stream that it waits for has ended: the latest of the three. What held it is read off
the recording; of the others only as much is kept as they take at least, so that they hold it again where a change
makes them the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.profile.columns import Floats, distinct, mask_of, places_in
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.model.launch_sequence import HostLane, host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace

_NEAR_NS = 50_000  # work that begins within this time of another stream's end may have waited for it
_NEAR = (
    0.25  # or within this share of its wait: a collective's many blocks wait for room on a GPU that computes
)
_BACK = 256  # how many ends it is looked for among, at most
_MOST_LATENCY_NS = (
    50_000  # work that takes longer to begin waits for something, as most does where ranks wait
)
_LATENCY_NS, _GAP_NS = 5_000, 1_000  # of a launch, and between two kernels of a stream, where nothing tells


@dataclass(frozen=True, eq=False)
class GpuQueue:
    """GPU events by the point that launched them, as columns (ns; places are in this table, -1: none).

    row: in the trace. point: in the host lane. stream: a number for each stream of each device. latency: from the begin
    of the launch to the earliest begin. gap: from the end of the stream's earlier work. after: the place of the work of
    another stream that it waits for, `after_gap` behind its end. free: when each stream is done with what was launched
    before the lane begins.
    """

    row: Int64s
    point: Int64s
    device: Int64s
    stream: Int64s
    start: Int64s
    dur: Int64s
    latency: Int64s
    gap: Int64s
    after: Int64s
    after_gap: Int64s
    free: Int64s

    def __len__(self) -> int:
        return len(self.row)

    @property
    def end(self) -> Int64s:
        return self.start + self.dur


def gpu_queue(profile: Profile) -> GpuQueue:
    """The work that the host lane launched."""
    trace, lane, work = profile.trace, profile.of(host_lane), profile.of(gpu_work)
    point = places_in(lane.row, trace.launch_of()[work.index])
    device = work.device
    _, stream = distinct(device, trace.stream[work.index])
    start, dur = trace.ts[work.index], trace.dur[work.index]
    mine = np.flatnonzero(point >= 0)
    mine = mine[np.lexsort((start[mine], point[mine]))]
    free = _free(trace, lane, stream, start, start + dur, point)
    before = _reach(stream[mine], (start + dur)[mine], free)
    begin = lane.begin[point[mine]]
    latency, gap, after, after_gap = _held(device[mine], stream[mine], start[mine], dur[mine], begin, before)
    return GpuQueue(
        row=work.index[mine],
        point=point[mine],
        device=device[mine],
        stream=stream[mine],
        start=start[mine],
        dur=dur[mine],
        latency=latency,
        gap=gap,
        after=after,
        after_gap=after_gap,
        free=free,
    )


def _reach(stream: Int64s, end: Int64s, free: Int64s) -> Int64s:
    """When the work that was queued on the same stream before had ended; all in the order of the queue."""
    reach = np.zeros(len(end), np.int64)
    for one in np.unique(stream).tolist():
        here = np.flatnonzero(stream == one)
        reach[here] = np.maximum.accumulate(np.concatenate((free[one : one + 1], end[here])))[:-1]
    return reach


def _free(trace: Trace, lane: HostLane, stream: Int64s, start: Int64s, end: Int64s, point: Int64s) -> Int64s:
    free = np.full(int(stream.max(initial=-1)) + 1, trace.window()[0])
    early = (point < 0) & (start <= (lane.begin[-1] if len(lane) else 0))
    np.maximum.at(free, stream[early], end[early])
    return free


def _held(
    device: Int64s, stream: Int64s, start: Int64s, dur: Int64s, begin: Int64s, before: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """latency, gap, after and after_gap of each piece of work."""
    latency = start - begin
    idle = before <= begin
    usual = min(int(np.median(latency[idle])), _MOST_LATENCY_NS) if idle.any() else _LATENCY_NS
    queued = before > begin + usual
    gap = start - before
    apart = int(np.median(gap[queued])) if queued.any() else _GAP_NS
    near = np.maximum(np.minimum(latency, gap) * _NEAR, _NEAR_NS).astype(np.int64)
    after = _awaited(device, stream, start, start + dur, begin + usual, near)
    waited = (after >= 0) & (latency > 2 * usual) & (gap > apart + usual)
    after = np.where(waited, after, -1)
    after_gap = np.where(waited, start - (start + dur)[after], 0)
    held_elsewhere = queued | waited
    return (
        np.where(held_elsewhere, np.minimum(latency, usual), latency),
        np.where(queued & ~waited, gap, np.minimum(gap, apart)),
        after,
        after_gap,
    )


def _awaited(
    device: Int64s, stream: Int64s, start: Int64s, end: Int64s, reached: Int64s, near: Int64s
) -> Int64s:
    """The work of another stream of the device that ended last before this one began, after this one could have. near:
    how long before it began at most."""
    awaited = np.full(len(start), -1, np.int64)
    for one in np.unique(device).tolist():
        here = np.flatnonzero(device == one)
        by_end = here[np.argsort(end[here], kind="stable")]
        place = np.searchsorted(end[by_end], start[here], side="right") - 1
        place = _launched_before(by_end, place, here, start - near, end)
        last = by_end[np.maximum(place, 0)]
        held = (place >= 0) & (start[here] - end[last] < near[here]) & (end[last] > reached[here])
        awaited[here] = np.where(held & (stream[last] != stream[here]), last, -1)
    return awaited


def _launched_before(by_end: Int64s, place: Int64s, work: Int64s, since: Int64s, end: Int64s) -> Int64s:
    """Of each work the place of what ended last of all that was launched before it, and not before `since`; -1 for
    none. Nothing waits for what is launched behind it."""
    place = place.copy()
    for at in np.flatnonzero(by_end[place] > work).tolist():
        mine, one = int(work[at]), int(place[at])
        least = max(-1, one - _BACK)
        while one > least and by_end[one] >= mine and end[by_end[one]] > since[mine]:
            one -= 1
        place[at] = one if one >= 0 and by_end[one] < mine else -1
    return place


# How much of a collective could run beside compute? What nothing overlaps now, and no more than its thread
# gives the GPU to compute that nothing overlaps: a backward that takes 2 ms hides 2 ms of the all-reduces
# of its gradients, and the forward hides none of them.


# Of what runs beside compute, since either slows the other: on H100s 10 to 40 % of it was gained by smaller buckets of
# gradients, beside backwards of 3, 6 and 20 ms.
SAVED = 0.4
_NO_COMPUTE = ("communication", "memcpy", "memset")


def beside_compute(profile: Profile, work: Int64s, last: Int64s) -> Floats:
    """The share of the last so many ns of each of these collectives, by place in the queue: before them it waited."""
    queue, lane, trace = profile.of(gpu_queue), profile.of(host_lane), profile.trace
    track, (compute, alone), end = lane.track[queue.point], profile.of(_compute), queue.end[work]
    bare = last - covered_ns(busy(trace, compute), end - last, end)
    computes = np.isin(queue.row, compute)
    threads = int(track.max(initial=-1)) + 1
    room = np.bincount(track, np.where(computes, covered_ns(alone, queue.start, queue.end), 0), threads)
    wanted = np.bincount(track[work], bare, threads)
    fits = np.minimum(room / np.maximum(wanted, 1), 1.0)[track[work]]
    return np.asarray(fits * bare / np.maximum(last, 1))


def _compute(profile: Profile) -> tuple[Int64s, Intervals]:
    """The rows of all of it, and when any of it ran that no communication ran beside."""
    trace, work = profile.trace, profile.of(gpu_work)
    compute = work.index[~mask_of(work.categories, _NO_COMPUTE.__contains__)[work.category]]
    return compute, subtract(busy(trace, compute), busy(trace, work.of("communication").index))
