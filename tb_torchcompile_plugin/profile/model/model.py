"""How long is a step if the program changes? A model of the steps, its replay, and its clock.

The model holds what the host does between its calls, what each call waits for, and what it queues. A change of the
program is a change of these columns; `replay` walks them again. With the recorded ones it gives the recorded times
back.

On a GPU a step lasts from the first work that it launched to the first that the next one launched, on the stream that
works longest. The slower clock is the step's: a host that runs ahead, or a GPU that waits, is no bottleneck.

Profiling slows the host but not the GPU. Each slice that is written costs the thread that runs it the same, half of it
right before it begins and half right after it ended, so code of many short ones suffers most. How long steps take
outside of the recorded window is known where the handler noted it; the cost of a slice is the one with which the model,
walked without it, takes that long.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Floats, Int64s, Intervals, Mask, sums
from tb_torchcompile_plugin.profile.model.attribution import line_lookups
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    GpuQueue,
    LaunchSequence,
    gpu_queue,
    host_segments,
    launch_sequence,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import bounds_by_device, is_gpu_bound_by, unprofiled_host_step_ns

CALL_NS = 5_000  # of a call that does not wait, where no other call shows it; chosen by eye
_RETURN_NS = 20_000  # a call returns at most this long after the end of its wait; chosen on the recordings


class Model(NamedTuple):
    """Columns of pieces of host time, of the points that they lead to, and of the work that these queue (ns)."""

    host: Int64s  # how long each piece takes
    piece_point: Int64s  # the point that it leads to
    before: Int64s  # by point, what is not in pieces: 0, or less where calls of two threads overlap
    own: Int64s  # time of the call without waiting
    waits: Mask  # by point (row) and stream (column), whether the call waits for what is queued
    returns: Int64s  # how long after that it returns
    target: Int64s  # work that a call waits for because the queue is full, -1 for none
    # Columns of `GpuQueue`.
    point: Int64s
    stream: Int64s
    dur: Int64s
    latency: Int64s
    gap: Int64s
    after: Int64s
    after_gap: Int64s
    free: Int64s
    begin: int  # of the first point


def model(profile: Profile) -> Model:
    """Return the steps as they were recorded."""
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    length = lane.end - lane.begin
    usual = int(np.median(length[lane.launches])) if lane.launches.any() else CALL_NS
    waits, latest = _awaited(lane, queue)
    waited = latest > lane.begin
    # a tenth of a long call, as its end may be late by more; chosen by eye
    prompt = lane.end - latest <= np.maximum(_RETURN_NS, length // 10)
    waits &= (lane.synchronises | (waited & prompt))[:, None]
    waiting = np.asarray(waits.any(axis=1))
    target = _targets(lane, queue, usual, waiting)
    ready = np.where(target >= 0, queue.end[target] if len(queue) else 0, latest)
    held = (waiting & waited) | (target >= 0)
    pieces = profile.of(host_segments)
    apart = np.diff(lane.begin, prepend=lane.begin[:1]) - np.concatenate(([0], length[:-1]))[: len(lane)]
    return Model(
        host=pieces.ns,
        piece_point=pieces.point,
        before=apart - sums(pieces.point, pieces.ns, len(lane)),
        own=np.where(held, np.minimum(length, usual), length),
        waits=waits,
        returns=np.where(held, lane.end - ready, np.minimum(np.maximum(lane.end - ready, 0), CALL_NS)),
        target=target,
        begin=int(lane.begin[0]) if len(lane) else 0,
        **{name: column for name, column in vars(queue).items() if name in Model._fields},
    )


def _awaited(lane: LaunchSequence, queue: GpuQueue) -> tuple[Mask, Int64s]:
    """Return whether the work queued on each stream had ended when each call returned, and when the last of it did."""
    streams = len(queue.free)
    done = np.zeros((len(lane), streams), bool)
    latest = np.full(len(lane), np.iinfo(np.int64).min // 2)
    for stream in range(streams):
        work = np.flatnonzero(queue.stream == stream)
        ends = np.concatenate((queue.free[stream : stream + 1], np.maximum.accumulate(queue.end[work])))
        last = ends[np.searchsorted(queue.point[work], np.arange(len(lane)), side="right")]
        done[:, stream] = last <= lane.end
        latest = np.where(done[:, stream], np.maximum(latest, last), latest)
    return done, latest


def _targets(lane: LaunchSequence, queue: GpuQueue, usual: int, waits: Mask) -> Int64s:
    """Return what a launch that takes long while much is queued waits for: the work that ended last.

    It waits until the queue has room.
    """
    target = np.full(len(lane), -1, np.int64)
    # 10 times as long as usual; chosen by eye on the recordings
    slow = np.flatnonzero(lane.launches & ~waits & (lane.end - lane.begin > 10 * usual))
    if not len(slow) or not len(queue):
        return target
    order = np.argsort(queue.end, kind="stable")
    index = np.searchsorted(queue.end[order], lane.end[slow], side="right") - 1
    work = order[np.maximum(index, 0)]
    ended = queue.end[work]
    is_full = (index >= 0) & (ended > lane.begin[slow]) & (lane.end[slow] - ended < _RETURN_NS)
    is_full &= queue.point[work] < slow
    target[slow[is_full]] = work[is_full]
    return target


class Replayed(NamedTuple):
    """Times of the points of the launch sequence, and of the work in the queue (ns)."""

    begin: Int64s
    end: Int64s
    work_begin: Int64s
    work_end: Int64s


def replay(model: Model, not_done_before: Int64s | None = None) -> Replayed:
    """Return when each call and each piece of work begins and ends. Linear in their number.

    Until a call waits the host's times are sums: only the calls that do and the work between two of them are walked.
    not_done_before: by piece of work the time before which something outside of the model does not let it end.
    """
    led = model.before + sums(model.piece_point, model.host, len(model.before))
    end = model.begin + np.cumsum(led + model.own)
    begin = end - model.own
    held = np.full(len(model.point), model.begin) if not_done_before is None else not_done_before
    reached = begin[model.point] + model.latency
    work = (model.stream, reached, model.gap, model.after, model.after_gap, model.dur, held)
    calls = np.flatnonzero(model.waits.any(axis=1) | (model.target >= 0))
    launched = np.searchsorted(model.point, calls, side="right")
    columns = (launched, end[calls], model.returns[calls], model.target[calls], model.waits[calls])
    waits = [*zip(*(column.tolist() for column in columns)), (len(model.point), 0, 0, -1, [])]
    rows = zip(*(column.tolist() for column in work))
    starts, stops, delays = _walk(rows, waits, model.free.tolist())
    later = np.zeros(len(begin), np.int64)
    later[calls] = delays[:-1]
    later = np.maximum.accumulate(later)
    work_times = (np.array(times, np.int64) for times in (starts, stops))
    return Replayed(begin + np.append(0, later)[:-1], end + later, *work_times)


# How much work is launched until a call waits, when it returns without waiting, and how long after it has waited; the
# work that it waits for, -1 for none, and by stream whether it waits for that.
_Wait = tuple[int, int, int, int, list[bool]]


def _walk(
    work: Iterator[tuple[int, ...]], waits: Iterable[_Wait], free: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Return when each piece of work begins and ends, and how much later each call returns that waits.

    free: by stream when it is done with all before.
    """
    starts: list[int] = []
    stops: list[int] = []
    delays: list[int] = []
    late = 0
    for launched, back, returns, target, streams in waits:
        for stream, start, gap, after, after_gap, dur, held in islice(work, launched - len(stops)):
            start += late
            if free[stream] + gap > start:  # `max` would take twice as long
                start = free[stream] + gap
            if after >= 0 and stops[after] + after_gap > start:
                start = stops[after] + after_gap
            starts.append(start)
            stop = start + dur
            if held > stop:
                stop = held
            stops.append(stop)
            if stop > free[stream]:
                free[stream] = stop
        done = [end for end, is_awaited in zip(free, streams) if is_awaited]
        if target >= 0:
            done.append(stops[target])
        late = max([late, *(end + returns - back for end in done)])
        delays.append(late)
    return starts, stops, delays


class Clock(NamedTuple):
    """Mean length of a step (ns)."""

    host: float
    device: int  # the slowest one; -1 where none has the work of two steps
    step: float  # by the clock of the bottleneck


def recorded_clock(profile: Profile) -> Clock:
    """Return the clock of the steps as recorded. Raises IndexError where the launch sequence is empty."""
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    return clock(lane, queue, Replayed(lane.begin, lane.end, queue.start, queue.end))


def clock(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> Clock:
    """Return the clock of a launch sequence and its queue with these times: the mean over the steady steps."""
    marks = times.begin[lane.marks]
    # A sequence of one call takes no time.
    lengths = np.diff(marks) if len(marks) > 1 else np.zeros(1, np.int64)
    host = float(lengths[lane.steady].mean())
    windows = gpu_windows(lane, queue, times)
    if not windows:
        return Clock(host, -1, host)
    device, steps = max(windows.items(), key=lambda item: item[1].mean)
    inside = (queue.device == device) & np.isin(_step_of_work(lane, queue), steps.rows)
    work = int((times.work_end - times.work_begin)[inside].sum()) / len(steps.rows)
    is_gpu_bound = is_gpu_bound_by(steps.mean, host, float(lengths[steps.rows].mean()), work)
    return Clock(host, device, max(steps.mean if is_gpu_bound else host, least_step(lane, queue, times)))


def _step_of_work(lane: LaunchSequence, queue: GpuQueue) -> Int64s:
    """Return the step of each piece of work; -1 and `lane.steps` are outside of all."""
    return np.searchsorted(lane.marks, queue.point, side="right") - 1


def least_step(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> float:
    """Return how long a step keeps its busiest stream, or CUDA graphs the busiest device (ns): no step is shorter.

    A replay knows one queue per stream; the streams inside a graph share the device, as much as they did when
    recorded.
    """
    if not len(queue):
        return 0.0
    step, count = _step_of_work(lane, queue), len(queue.free)
    counted = np.append(lane.steady, False)[np.minimum(step, lane.steps)] & (step >= 0)
    work = np.where(counted, times.work_end - times.work_begin, 0)
    of_streams = np.bincount(queue.stream, work, count).max()
    return float(max(of_streams, np.bincount(queue.device, queue.alone * work).max())) / int(
        lane.steady.sum()
    )


class GpuWindows(NamedTuple):
    """The steady steps of a model on one device (ns)."""

    rows: Int64s  # among the steps
    # From the first work of each to that of the next; of a single step to the end of its work.
    windows: Intervals

    @property
    def mean(self) -> float:
        """Mean length of a step."""
        return self.windows.total_ns / len(self.rows)


def gpu_windows(lane: LaunchSequence, queue: GpuQueue, times: Replayed) -> dict[int, GpuWindows]:
    """Return the steady steps by device, of the devices that have any whose end is known."""
    step, by_device = _step_of_work(lane, queue), {}
    step = np.where(step < lane.steps, step, -1)
    work = queue.device, queue.stream, step, queue.dur, times.work_begin, times.work_end
    for device, (rows, begin, end) in bounds_by_device(*work):
        counted = (np.arange(len(rows)) < max(len(rows) - 1, 1)) & lane.bounded[rows]
        counted &= lane.steady[rows] | ~(counted & lane.steady[rows]).any()
        if counted.any():
            by_device[device] = GpuWindows(rows[counted], Intervals(begin[counted], end[counted]))
    return by_device


_MOST_NS, _HALVINGS = 1 << 20, 20  # of one slice; halvings of what is between it and nothing
_LONGEST_NS = 20_000  # writing one takes no longer: what is beyond slows everything alike
USUAL_NS = 3_000  # of one slice: what most of 60 programs were slowed by
_SAME = 1.02  # steps that differ by less are as long
_SKIPPED = 6  # halvings at once, as long as they lead to what is smaller
_WITH_LOOKUPS_NS = 1_000  # of one slice: where it takes less, looking up lines does so in proportion
_LEFT = 0.3  # share of a piece of time that is left, whatever was written in it


def events_written(profile: Profile) -> Floats:
    """Return how many slices begin and how many end in each piece of host time, half of one each."""
    trace, pieces, lane = profile.trace, profile.of(host_segments), profile.of(launch_sequence)
    track = np.where(pieces.row >= 0, trace.track[pieces.row], lane.track[pieces.point])
    count = np.zeros(len(track))
    for number in np.unique(track[track >= 0]).tolist():
        rows = np.flatnonzero(track == number)
        first, last = trace.track_bounds[number : number + 2].tolist()
        begin = trace.ts[first:last]
        end = np.sort(begin + trace.dur[first:last], kind="stable")  # which are nearly in order
        window = pieces.begin[rows], pieces.end[rows]
        begun = np.diff(np.searchsorted(begin, window, "right"), axis=0)[0]
        count[rows] = (begun + np.diff(np.searchsorted(end, window), axis=0)[0]) / 2
    return count


def without_overhead(profile: Profile, changed: Model, slice_ns: int) -> Model:
    """Return a changed model as if writing a slice cost nothing. slice_ns: what it cost, 0 for the model itself."""
    recorded_model, took = profile.of(model), profile.of(host_segments).ns
    lookups = profile.of(line_lookups) * min(1.0, slice_ns / _WITH_LOOKUPS_NS)
    own = (recorded_model.own * _left(recorded_model.own, 1, slice_ns)).astype(np.int64)
    left = _left(took - lookups, profile.of(events_written), slice_ns) * (1 - lookups / np.maximum(took, 1))
    # What was queued before is work of steps like these, and shorter by as much.
    now, then = (np.bincount(m.stream, m.dur, len(m.free)) for m in (recorded_model, changed))
    saved = np.maximum(changed.free - changed.begin, 0) * (1 - np.minimum(then / np.maximum(now, 1), 1))
    return changed._replace(
        host=(changed.host * left).astype(np.int64),
        own=np.where(changed.own == recorded_model.own, own, changed.own),
        free=changed.free - np.where(now > 0, saved, 0).astype(np.int64),
    )


def _left(ns: Int64s, slices: Floats | int, slice_ns: int) -> Floats:
    """Return the remaining share of times in which this many slices were written."""
    cost = slices * min(slice_ns, _LONGEST_NS)
    left: Floats = np.maximum(ns - cost, ns * _LEFT) / np.maximum(ns, 1)
    return left * min(1.0, _LONGEST_NS / max(slice_ns, 1))


def profiler_overhead(profile: Profile, step_ns: float) -> int:
    """Return what writing a slice cost (ns): a step without that cost takes as long as an unprofiled one, `step_ns`.

    Where a GPU is the bottleneck, a step shows nothing of the host, unless it is one in which the host ran ahead: then
    the cost is the usual one at least.
    """

    def replayed(slice_ns: int) -> Clock:
        return _clock_without(profile, profile.of(model), slice_ns)

    usual = max(profile.of(_cost_ahead) or 0, USUAL_NS)
    of_gpu = _SAME * replayed(_MOST_NS).step  # no cost makes the GPU's work shorter
    if replayed(0).step <= of_gpu:
        return usual
    cost = least(lambda slice_ns: replayed(slice_ns).step <= max(step_ns, of_gpu), _MOST_NS, _HALVINGS)
    return max(cost, usual) if step_ns <= of_gpu else cost


def _clock_without(profile: Profile, changed: Model, slice_ns: int) -> Clock:
    times = replay(without_overhead(profile, changed, slice_ns))
    return clock(profile.of(launch_sequence), profile.of(gpu_queue), times)


def _cost_ahead(profile: Profile) -> int | None:
    """Return what a slice cost by the noted steps in which the host ran ahead of a GPU.

    Without that cost, and without waiting, the host takes as long for a step. None where no cost makes it so fast.
    """
    noted = profile.data.of(unprofiled_host_step_ns) if profile.data else None
    if noted is None:
        return None
    waiting = profile.of(model)
    alone = waiting._replace(waits=np.zeros_like(waiting.waits), target=np.full_like(waiting.target, -1))

    def is_as_fast(slice_ns: int) -> bool:
        return _clock_without(profile, alone, slice_ns).host <= noted

    return least(is_as_fast, _MOST_NS, _HALVINGS) if is_as_fast(_MOST_NS) else None


def least(holds: Callable[[int], bool], most: int, halvings: int) -> int:
    """Return the least number up to `most` for which `holds` is true, as near as so many halvings bring it.

    It is true for `most`, and for all numbers above one for which it is.
    """
    low, high = 0, most
    # Most answers are small: one test in place of as many halvings, with the same result.
    while halvings > _SKIPPED and holds(high >> _SKIPPED):
        high, halvings = high >> _SKIPPED, halvings - _SKIPPED
    for _ in range(halvings):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
