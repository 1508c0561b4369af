"""A step as a graph that can be walked: what the host does between its calls, what each call waits for, what it queues.

A change of the program is a change of these columns; `replay` walks them again. With the recorded ones it gives the
recorded times back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import GpuQueue, gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import HostLane, host_lane
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
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
