"""A step as a graph that can be walked: what the host does between its calls, what each call waits for, what it queues.

A change of the program is a change of these columns; `replay` walks them again. With the recorded ones it gives the
recorded times back.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import HostLane, host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile

CALL_NS = 5_000  # what a call takes that does not wait, where no other tells
_RETURN_NS = 20_000  # a call comes back this long after what it waited for, at most


class Model(NamedTuple):
    """Columns of the points of a host lane, and of the work that they queue (ns).

    host: how long each piece of host time takes, piece_point: the point that it leads to. before: what is beside the
    pieces, nothing or, where calls of two threads overlap, less. own: of the call itself, without waiting.
    waits: streams by point whose queued work the call waits for, as columns of a matrix. returns: how long after that
    it comes back. target: work of the queue that a call waits for because the queue is full, -1 for none.
    """

    host: Int64s
    piece_point: Int64s
    before: Int64s
    own: Int64s
    waits: npt.NDArray[np.bool_]
    returns: Int64s
    target: Int64s
    point: Int64s
    stream: Int64s
    dur: Int64s
    latency: Int64s
    gap: Int64s
    after: Int64s
    after_gap: Int64s
    free: Int64s
    begin: int


def model(profile: Profile) -> Model:
    """The steps as they were recorded."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    length = lane.end - lane.begin
    usual = int(np.median(length[lane.launches])) if lane.launches.any() else CALL_NS
    waits, latest = _awaited(lane, queue)
    waited = latest > lane.begin
    prompt = lane.end - latest <= np.maximum(_RETURN_NS, length // 10)
    waits &= (lane.synchronises | (waited & prompt))[:, None]
    waiting = np.asarray(waits.any(axis=1))
    target = _targets(lane, queue, usual, waiting)
    ready = np.where(target >= 0, queue.end[target] if len(queue) else 0, latest)
    held = (waiting & waited) | (target >= 0)
    pieces = profile.of(host_pieces)
    apart = np.diff(lane.begin, prepend=lane.begin[:1]) - np.concatenate(([0], length[:-1]))[: len(lane)]
    return Model(
        host=pieces.ns,
        piece_point=pieces.point,
        before=apart - summed(pieces.point, pieces.ns, len(lane)),
        own=np.where(held, np.minimum(length, usual), length),
        waits=waits,
        returns=np.where(held, lane.end - ready, np.minimum(np.maximum(lane.end - ready, 0), CALL_NS)),
        target=target,
        point=queue.point,
        stream=queue.stream,
        dur=queue.dur,
        latency=queue.latency,
        gap=queue.gap,
        after=queue.after,
        after_gap=queue.after_gap,
        free=queue.free,
        begin=int(lane.begin[0]) if len(lane) else 0,
    )


def summed(point: Int64s, ns: Int64s, points: int) -> Int64s:
    """By point the sum of the pieces that lead to it."""
    sums = np.zeros(points, np.int64)
    np.add.at(sums, point, ns)
    return sums


def _awaited(lane: HostLane, queue: GpuQueue) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Whether the work queued on each stream had ended when each call came back; and when the last of it did."""
    streams = len(queue.free)
    done = np.zeros((len(lane), streams), bool)
    latest = np.full(len(lane), np.iinfo(np.int64).min // 2)
    places = np.arange(len(lane))
    for stream in range(streams):
        mine = np.flatnonzero(queue.stream == stream)
        ends = np.concatenate((queue.free[stream : stream + 1], np.maximum.accumulate(queue.end[mine])))
        last = ends[np.searchsorted(queue.point[mine], places, side="right")]
        done[:, stream] = last <= lane.end
        latest = np.where(done[:, stream], np.maximum(latest, last), latest)
    return done, latest


def _targets(lane: HostLane, queue: GpuQueue, usual: int, waits: npt.NDArray[np.bool_]) -> Int64s:
    """A launch that takes long while much is queued waits until the queue has room: for the work that ended last."""
    target = np.full(len(lane), -1, np.int64)
    slow = np.flatnonzero(lane.launches & ~waits & (lane.end - lane.begin > 10 * usual))
    if not len(slow) or not len(queue):
        return target
    order = np.argsort(queue.end, kind="stable")
    place = np.searchsorted(queue.end[order], lane.end[slow], side="right") - 1
    work = order[np.maximum(place, 0)]
    full = (
        (place >= 0) & (queue.end[work] > lane.begin[slow]) & (lane.end[slow] - queue.end[work] < _RETURN_NS)
    )
    full &= queue.point[work] < slow
    target[slow[full]] = work[full]
    return target


# Walking a model of steps: when does each call begin and end, and each piece of work?


class Replayed(NamedTuple):
    """Times (ns): of the points of the host lane, and of the work in the queue."""

    begin: Int64s
    end: Int64s
    work_begin: Int64s
    work_end: Int64s


def replay(model: Model, not_done_before: Int64s | None = None) -> Replayed:
    """Linear in the number of calls and of pieces of work. not_done_before: by piece of work the time before which
    something outside of the model does not let it end.

    Until a call waits the host's times are sums: only the calls that do and the work between two of them are walked.
    """
    led = model.before + summed(model.piece_point, model.host, len(model.before))
    end = model.begin + np.cumsum(led + model.own)
    begin = end - model.own
    held = np.full(len(model.point), model.begin) if not_done_before is None else not_done_before
    queue = _Queue(model, begin[model.point] + model.latency, held)
    later = np.zeros(len(begin), np.int64)
    late = 0
    calls = np.flatnonzero(model.waits.any(axis=1) | (model.target >= 0))
    launched = np.searchsorted(model.point, calls, side="right")
    columns = (calls, launched, end[calls], model.returns[calls], model.target[calls], model.waits[calls])
    for place, work, back, returns, target, lanes in zip(*(column.tolist() for column in columns)):
        queue.walk(work, late)
        late = max(late, queue.done(lanes, target) + returns - back)
        later[place] = late
    queue.walk(len(model.point), late)
    later = np.maximum.accumulate(later)
    work_times = (np.array(times, np.int64) for times in (queue.starts, queue.stops))
    return Replayed(begin + np.append(0, later)[:-1], end + later, *work_times)


class _Queue:
    """The work in the order of its launches. reached: when each piece comes to the GPU, if no call waits; held: before
    which time it does not end. starts, stops: of what was walked already."""

    def __init__(self, model: Model, reached: Int64s, held: Int64s) -> None:
        columns = (model.stream, reached, model.gap, model.after, model.after_gap, model.dur, held)
        self._left = zip(*(column.tolist() for column in columns))
        self._free: list[int] = model.free.tolist()
        self.starts: list[int] = []
        self.stops: list[int] = []

    def walk(self, until: int, late: int) -> None:
        """Up to this piece, all of it launched so much later. Comparisons, as `max` takes twice as long here."""
        free, starts, stops = self._free, self.starts, self.stops
        for lane, start, gap, after, after_gap, dur, held in islice(self._left, until - len(stops)):
            start += late
            if free[lane] + gap > start:
                start = free[lane] + gap
            if after >= 0 and stops[after] + after_gap > start:
                start = stops[after] + after_gap
            starts.append(start)
            stop = start + dur
            if held > stop:
                stop = held
            stops.append(stop)
            if stop > free[lane]:
                free[lane] = stop

    def done(self, lanes: list[bool], target: int) -> int:
        """When these streams are done with what was walked, and a piece of it, -1 for none."""
        times = [free for free, waits in zip(self._free, lanes) if waits]
        return max([*times, self.stops[target]] if target >= 0 else times)
