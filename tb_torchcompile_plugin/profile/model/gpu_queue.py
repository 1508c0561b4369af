"""Which work did each call of the launch sequence queue on a GPU, and what made it begin when it did?

A piece of work begins when it has reached the GPU (its launch and a latency), when its stream has done what was
queued before, and when work of another stream that it waits for has ended: the latest of the three. What held it is
read off the recording; of the others only as much is kept as they take at least, so that they hold it again where a
change makes them the latest.
"""

from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Floats,
    Int64s,
    covered_ns,
    distinct,
    groups_of_equal,
    indices_in,
    mask_of,
    subtract,
    union,
)
from tb_torchcompile_plugin.profile.gpu_work import busy, busy_until, gpu_work
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile

_NEAR_NS = 50_000  # work that begins within this time of another stream's end may have waited for it
# Or within this share of its wait: a collective's many blocks wait for room on a GPU that computes.
_NEAR = 0.25
_MOST_ENDS = 256  # among which the work that it waited for is looked for
# Work that takes longer to begin waits for something, as most does where ranks wait.
_MOST_LATENCY_NS = 50_000
# Of a launch, and between two kernels of a stream, where the recording has none.
_LATENCY_NS, _GAP_NS = 5_000, 1_000
# Share of what overlaps compute that is gained, since either slows the other: on H100s smaller buckets of gradients
# gained 10 to 40 % of it, next to backwards of 3, 6 and 20 ms.
OVERLAP_GAIN = 0.4
_NO_COMPUTE = ("communication", "memcpy", "memset")


@dataclass(frozen=True, eq=False)
class GpuQueue:
    """GPU events by the point that launched them, as columns (ns)."""

    row: Int64s  # in the trace
    point: Int64s  # in the launch sequence
    device: Int64s
    stream: Int64s  # a number for each stream of each device
    start: Int64s
    end: Int64s
    dur: Int64s
    latency: Int64s  # from the begin of the launch to the earliest begin
    gap: Int64s  # from the end of the stream's earlier work
    after: Int64s  # index of the work of another stream that it waits for, -1 for none
    after_gap: Int64s  # how long behind the end of that it begins
    free: Int64s  # by stream when it is done with what was launched before the sequence begins
    alone: Floats  # of work of a CUDA graph on several streams, the share of its time that the device had to itself

    def __len__(self) -> int:
        return len(self.row)


def gpu_queue(profile: Profile) -> GpuQueue:
    """Return the work that the launch sequence launched."""
    trace, lane, work = profile.trace, profile.of(launch_sequence), profile.of(gpu_work)
    point = indices_in(lane.row, trace.launch_of()[work.index])
    _, stream = distinct(work.device, trace.stream[work.index])
    start, dur = trace.ts[work.index], trace.dur[work.index]
    free = np.full(int(stream.max(initial=-1)) + 1, trace.window()[0])
    early = (point < 0) & (start <= (lane.begin[-1] if len(lane) else 0))
    np.maximum.at(free, stream[early], (start + dur)[early])
    rows = np.flatnonzero(point >= 0)
    rows = rows[np.lexsort((start[rows], point[rows]))]
    device, stream, start, dur = work.device[rows], stream[rows], start[rows], dur[rows]
    before = busy_until(stream, start + dur, free)
    latency, gap, after, after_gap = _held(device, stream, start, dur, lane.begin[point[rows]], before)
    return GpuQueue(
        row=work.index[rows],
        point=point[rows],
        device=device,
        stream=stream,
        start=start,
        end=start + dur,
        dur=dur,
        latency=latency,
        gap=gap,
        after=after,
        after_gap=after_gap,
        free=free,
        alone=_alone(point[rows], device, stream, start, dur),
    )


def _alone(point: Int64s, device: Int64s, stream: Int64s, start: Int64s, dur: Int64s) -> Floats:
    """Return for all work of a launch on several streams how long any of it ran, in its summed time; 0 otherwise."""
    alone = np.zeros(len(point))
    if distinct(point, device)[0].shape[1] == distinct(point, device, stream)[0].shape[1]:
        return alone
    for rows in groups_of_equal(np.arange(len(point)), point, device):
        if len(rows) > 1 and len(np.unique(stream[rows])) > 1:
            ran = union(start[rows], start[rows] + dur[rows]).total_ns
            alone[rows] = ran / max(int(dur[rows].sum()), 1)
    return alone


def _held(
    device: Int64s, stream: Int64s, start: Int64s, dur: Int64s, begin: Int64s, before: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return latency, gap, after and after_gap of each piece of work."""
    latency = start - begin
    is_idle = before <= begin
    usual = min(int(np.median(latency[is_idle])), _MOST_LATENCY_NS) if is_idle.any() else _LATENCY_NS
    is_queued = before > begin + usual
    gap = start - before
    apart = int(np.median(gap[is_queued])) if is_queued.any() else _GAP_NS
    near = np.maximum(np.minimum(latency, gap) * _NEAR, _NEAR_NS).astype(np.int64)
    after = _awaited(device, stream, start, start + dur, begin + usual, near)
    has_waited = (after >= 0) & (latency > 2 * usual) & (gap > apart + usual)
    after = np.where(has_waited, after, -1)
    after_gap = np.where(has_waited, start - (start + dur)[after], 0)
    return (
        np.where(is_queued | has_waited, np.minimum(latency, usual), latency),
        np.where(is_queued & ~has_waited, gap, np.minimum(gap, apart)),
        after,
        after_gap,
    )


def _awaited(
    device: Int64s, stream: Int64s, start: Int64s, end: Int64s, reached: Int64s, near: Int64s
) -> Int64s:
    """Return the work of another stream of the device that ended last before this one began, after it could have.

    near: how long before it began at most.
    """
    awaited = np.full(len(start), -1, np.int64)
    for number in np.unique(device).tolist():
        work = np.flatnonzero(device == number)
        by_end = work[np.argsort(end[work], kind="stable")]
        index = np.searchsorted(end[by_end], start[work], side="right") - 1
        index = _launched_before(by_end, index, work, start - near, end)
        last = by_end[np.maximum(index, 0)]
        is_held = (index >= 0) & (start[work] - end[last] < near[work]) & (end[last] > reached[work])
        awaited[work] = np.where(is_held & (stream[last] != stream[work]), last, -1)
    return awaited


def _launched_before(by_end: Int64s, index: Int64s, work: Int64s, since: Int64s, end: Int64s) -> Int64s:
    """Return where in `by_end` is what ended last of all that was launched before each work; -1 for none.

    Nothing waits for what is launched behind it. index: where to begin; it must not have ended before `since`.
    """
    index = index.copy()
    for row in np.flatnonzero(by_end[index] > work).tolist():
        own, at = int(work[row]), int(index[row])
        least = max(-1, at - _MOST_ENDS)
        while at > least and by_end[at] >= own and end[by_end[at]] > since[own]:
            at -= 1
        index[row] = at if at >= 0 and by_end[at] < own else -1
    return index


def overlappable_share(profile: Profile, work: Int64s, last: Int64s) -> Floats:
    """Return which share of collectives could overlap compute.

    It is what nothing overlaps now, and no more than its thread gives the GPU to compute that nothing overlaps: a
    backward that takes 2 ms hides 2 ms of the all-reduces of its gradients, and the forward hides none of them. work:
    indices in the queue. last: only this many ns of each at its end count; before them it waited.
    """
    queue, lane, trace = profile.of(gpu_queue), profile.of(launch_sequence), profile.trace
    track, end, events = lane.track[queue.point], queue.end[work], profile.of(gpu_work)
    compute = events.index[~mask_of(events.categories, _NO_COMPUTE.__contains__)[events.category]]
    computing = busy(trace, compute)
    alone = subtract(computing, busy(trace, events.of("communication").index))
    bare = last - covered_ns(computing, end - last, end)
    computes = np.isin(queue.row, compute)
    threads = int(track.max(initial=-1)) + 1
    room = np.bincount(track, np.where(computes, covered_ns(alone, queue.start, queue.end), 0), threads)
    wanted = np.bincount(track[work], bare, threads)
    fits = np.minimum(room / np.maximum(wanted, 1), 1.0)[track[work]]
    return np.asarray(fits * bare / np.maximum(last, 1))
