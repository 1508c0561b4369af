"""How long is a step if the program changes? A model of the steps, and its replay.

The model holds what the host does between its calls, what each call waits for, and what it queues. A change of the
program is a change of these columns; `replay` walks them again. With the recorded ones it gives the recorded times
back.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Int64s, Mask, sums
from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    LaunchSequence,
    host_segments,
    launch_sequence,
)
from tb_torchcompile_plugin.profile.profile import Profile

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
