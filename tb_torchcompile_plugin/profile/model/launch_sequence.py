"""What does the host do in a step, and which GPU work does it queue? One sequence of the calls that meet the GPUs.

One thread at a time feeds a step: while autograd's thread runs a backward, the one that called it waits. So the calls
that give work to a GPU, and those that wait for one, are in one row whatever their thread, and the time between two of
them is what the host needed to get to the second.

A piece of work begins when it has reached the GPU (its launch and a latency), when its stream has done what was
queued before, and when work of another stream that it waits for has ended: the latest of the three. What held it is
read off the recording; of the others only as much is kept as they take at least, so that they hold it again where a
change makes them the latest.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Floats,
    Int64s,
    Intervals,
    Mask,
    covered_ns,
    distinct,
    exclusive,
    groups_of_equal,
    indices_in,
    mask_at,
    mask_of,
    ranges,
    subtract,
    union,
)
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, busy_until, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import (
    StepWindows,
    are_followed,
    ends_are_known,
    span_window,
    steady_steps,
)
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import RUNTIME_CATS, is_synchronisation

_LONG_NS = 50_000  # a call that takes longer may have waited for a GPU; chosen by eye on the recordings


@dataclass(frozen=True, eq=False)
class LaunchSequence:
    """Points in order of time, as columns (ns)."""

    row: Int64s  # the runtime or driver call; -1 for the begin of a step and for the end of the last one
    track: Int64s
    begin: Int64s
    end: Int64s
    launches: Mask  # whether it gave work to a GPU
    synchronises: Mask  # whether waiting is its purpose
    marks: Int64s  # points of the steps' begins and of the last one's end; without steps the first and the last point
    steps: int  # how many whole ones there are; without any the span is one
    steady: Mask  # which of them count for the step time; all if none does
    bounded: Mask  # which of them end on a GPU at a known time

    def __len__(self) -> int:
        return len(self.row)


def launch_sequence(profile: Profile) -> LaunchSequence:
    """Return the sequence of the profiled steps, or of the span.

    Of very many calls only the first ones are taken, in whole steps. Without launches there are only the marks.
    """
    trace, launched = profile.trace, profile.of(launch_calls).call
    calls = trace.select(cat=RUNTIME_CATS)
    feeds = mask_at(trace.track[launched], len(trace.tracks))
    waits = mask_of(trace.names, is_synchronisation)[trace.name[calls]]
    chosen = waits | (trace.dur[calls] > _LONG_NS)
    launches, waiting = (mask_at(rows, len(trace)) for rows in (launched, calls[waits]))
    rows = np.flatnonzero(launches | mask_at(calls[feeds[trace.track[calls]] & chosen], len(trace)))
    begin, moments = trace.ts[rows], profile.of(StepWindows).moments
    if len(moments):
        # The begins of the steps that have room, and the end of the last one.
        before = np.searchsorted(np.sort(begin), moments)
        fitting = int(np.searchsorted(before - before[0], profile.most_calls, side="right")) - 1
        moments = moments[: max(1, fitting) + 1]
        rows = np.asarray(rows[(begin >= moments[0]) & (begin < moments[-1])])
    else:
        rows = rows[np.argsort(begin, kind="stable")[: profile.most_calls]]
    return _lane(profile, rows, moments, launches[rows], waiting[rows])


def is_truncated(profile: Profile) -> bool:
    """Whether there are more calls than the sequence holds."""
    lane, moments = profile.of(launch_sequence), profile.of(StepWindows).moments
    return len(lane.marks) < len(moments) if len(moments) else len(lane) >= profile.most_calls


def _lane(profile: Profile, rows: Int64s, moments: Int64s, launches: Mask, waits: Mask) -> LaunchSequence:
    trace, count = profile.trace, len(moments)
    row = np.concatenate((np.full(count, -1), rows))
    begin = np.concatenate((moments, trace.ts[rows]))
    order = np.lexsort((row >= 0, begin))
    no_call = np.zeros(count, bool)
    marks = np.flatnonzero(row[order] < 0) if count else np.array([0, len(rows) - 1])[: len(rows)]
    loop = profile.of(StepWindows).tracks[:1].tolist() or [-1]
    steps, counted = max(len(marks) - 1, 1), profile.of(steady_steps)
    sequence = LaunchSequence(
        row=row[order],
        track=np.concatenate((np.full(count, loop[0]), trace.track[rows]))[order],
        begin=begin[order],
        end=np.concatenate((moments, trace.ts[rows] + trace.dur[rows]))[order],
        launches=np.concatenate((no_call, launches))[order],
        synchronises=np.concatenate((no_call, waits))[order],
        marks=marks,
        steps=steps,
        steady=np.ones(steps, bool),
        bounded=np.ones(steps, bool),
    )
    windows = profile.of(StepWindows)
    return averaged(sequence, windows, mask_at(counted.on_host, len(windows))) if counted else sequence


def averaged(lane: LaunchSequence, windows: StepWindows, counted: Mask) -> LaunchSequence:
    """Return the sequence with the mean over these of the span's steps; over all if it has none of them."""
    # In the sequence a step lasts until the next mark.
    steady = (counted & are_followed(windows))[: lane.steps]
    bounded = ends_are_known(windows, counted)[: lane.steps]
    return replace(lane, steady=steady if steady.any() else np.ones(lane.steps, bool), bounded=bounded)


def modeled_windows(profile: Profile) -> Intervals:
    """Return the steady steps that the sequence holds, all of them if it holds none; the span without steps."""
    lane, steady = profile.of(launch_sequence), profile.of(steady_steps)
    if steady is None:
        return profile.of(span_window)
    windows = steady.windows
    modeled = windows.ends <= lane.begin[lane.marks].max(initial=np.iinfo(np.int64).min)
    return Intervals(*(column[modeled] for column in windows)) if modeled.any() else windows


class HostSegments(NamedTuple):
    """What the host did between its calls, as columns in order of time (ns); they cover all time between points."""

    point: Int64s  # the point that the time led to
    row: Int64s  # the innermost slice, -1 where nothing was recorded
    begin: Int64s
    end: Int64s

    @property
    def ns(self) -> Int64s:
        """How long each takes."""
        return self.end - self.begin

    def take(self, rows: Int64s) -> "HostSegments":
        """Return some of them."""
        return HostSegments(*(column[rows] for column in self))


def host_segments(profile: Profile) -> HostSegments:
    """Return the pieces of time that led to the points of the sequence.

    The time before a point is that of its own thread; where that thread did nothing recorded, as autograd's that was
    not woken yet, it is that of the thread of the point before.
    """
    trace, lane = profile.trace, profile.of(launch_sequence)
    begin, end = lane.end[:-1], lane.begin[1:]
    long = end > begin
    whole = HostSegments(np.arange(1, len(lane))[long], np.full(int(long.sum()), -1), begin[long], end[long])
    window = (int(lane.begin[0]), int(lane.end.max())) if len(lane) else (0, 0)
    activity = {
        track: _activity(trace, track, window) for track in np.unique(lane.track).tolist() if track >= 0
    }
    own = _filled(whole, lane.track[whole.point], activity)
    has_row = own.row >= 0
    rest = own.take(np.flatnonzero(~has_row))
    before, after = lane.track[rest.point - 1], lane.track[rest.point]
    other = _filled(rest, np.where(before == after, -1, before), activity)
    pieces = HostSegments(*map(np.concatenate, zip(own.take(np.flatnonzero(has_row)), other)))
    return pieces.take(np.argsort(pieces.begin, kind="stable"))


def host_timeline(profile: Profile) -> HostSegments:
    """Return the pieces and the calls of the sequence, without overlap: a call counts from the end of those before."""
    lane = profile.of(launch_sequence)
    calls = HostSegments(np.arange(len(lane)), lane.row, lane.begin, lane.end)
    pieces = HostSegments(*map(np.concatenate, zip(profile.of(host_segments), calls)))
    pieces = pieces.take(np.lexsort((pieces.end, pieces.begin)))
    begin, is_left = exclusive(pieces.begin, pieces.end)
    return pieces._replace(begin=begin).take(np.flatnonzero(is_left))


Activity = tuple[Int64s, Int64s]  # from times[i] on the innermost slice is rows[i]


def _activity(trace: Trace, track: int, window: tuple[int, int]) -> Activity:
    rows, end, _ = slices_around(trace, track, window)
    depth = trace.depth[rows]
    times = np.concatenate((end, trace.ts[rows]))
    active = np.concatenate((trace.parent[rows], rows))
    # At one moment ends come before begins, inner ends before outer ones, outer begins before inner ones.
    rank = np.concatenate((-depth.astype(np.int64) - 1, depth.astype(np.int64)))
    order = np.lexsort((rank, times))
    times, active = times[order], active[order]
    final = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    return times[final], active[final]


def slices_around(trace: Trace, track: int, window: tuple[int, int]) -> tuple[Int64s, Int64s, Int64s]:
    """Return the slices of a thread that begin in the window, and those around the first of them; rows ascend.

    With the end of each, that of its parent where it outlasts that, and the index of its parent, -1 for none.
    """
    first, last = trace.track_bounds[track : track + 2].tolist()
    low, high = (first + int(index) for index in np.searchsorted(trace.ts[first:last], window))
    around, row = [], low - 1 if low > first else -1
    while row >= 0:
        around.append(row)
        row = int(trace.parent[row])
    rows = np.concatenate((np.array(around[::-1], np.int64), np.arange(low, high)))
    end, depth = np.asarray(trace.ts[rows] + trace.dur[rows]), trace.depth[rows]
    above = np.where(trace.parent[rows] >= 0, np.searchsorted(rows, trace.parent[rows]), -1)
    for level in range(1, int(depth.max(initial=0)) + 1):
        at_level = np.flatnonzero(depth == level)
        end[at_level] = np.minimum(end[at_level], end[above[at_level]])
    return rows, end, above


def _filled(pieces: HostSegments, track: Int64s, activity: dict[int, Activity]) -> HostSegments:
    """Cut the pieces at what the thread of each did, in no order. A track below 0 leaves a piece as it is."""
    parts = [pieces.take(np.flatnonzero(track < 0))]
    for number, (times, rows) in activity.items():
        of_track = pieces.take(np.flatnonzero(track == number))
        low = np.searchsorted(times, of_track.begin, side="right")
        piece, at = ranges(low, np.searchsorted(times, of_track.end, side="left") - low + 1)
        begin = np.maximum(np.append(np.iinfo(np.int64).min, times)[at], of_track.begin[piece])
        end = np.minimum(np.append(times, np.iinfo(np.int64).max)[at], of_track.end[piece])
        parts.append(HostSegments(of_track.point[piece], np.append(-1, rows)[at], begin, end))
    return HostSegments(*map(np.concatenate, zip(*parts)))


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
    return (
        np.where(is_queued | has_waited, np.minimum(latency, usual), latency),
        np.where(is_queued & ~has_waited, gap, np.minimum(gap, apart)),
        after,
        np.where(has_waited, start - (start + dur)[after], 0),
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
