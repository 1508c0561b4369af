"""How long is a step, recorded or if the program changes? A model of the steps, its replay, and the clock of either.

The model holds what the host does between its calls, what each call waits for, and what it queues. A change of the
program is a change of these columns; `replay` walks them again. With the recorded ones it gives the recorded times
back.

On a GPU a step lasts from the first work that it launched to the first that the next one launched, on the stream that
works longest. The slower clock is the step's: a host that runs ahead, or a GPU that waits, is no bottleneck.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Mask, sums
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    LaunchSequence,
    host_segments,
    launch_sequence,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import bounds_by_device, is_gpu_bound_by

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
    step = steps.mean if is_gpu_bound else host
    return Clock(host, device, max(step, least_step(lane, queue, times)))


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
    busiest = np.bincount(queue.stream, work, count).max()
    return float(max(busiest, np.bincount(queue.device, queue.alone * work).max())) / int(lane.steady.sum())


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
