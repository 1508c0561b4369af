"""When does everything begin and end if all ranks of a job run their models together?

Each rank goes on as far as it can, until it needs a collective to be over of which another rank has not come yet;
with the last of them all that waited for it go on. A piece of work that cannot end yet holds what is queued behind it
on its stream and what waits for it, and nothing else. Linear in the calls and pieces of work of all ranks.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Int64s, Mask, sums
from tb_torchcompile_plugin.profile.model.model import Model, Replayed

_NEVER = np.iinfo(np.int64).min // 2


class CircularWaitError(Exception):
    """In the models, ranks wait for each other in a circle."""


class Tied(NamedTuple):
    """Matched calls that are in the model of their rank, as columns."""

    rank_index: Int64s  # index of the rank
    work: Int64s  # index in its queue
    instance: Int64s  # numbered from 0
    ahead: Int64s  # what its clock is ahead (ns)
    # How long it goes on after the last that it needs began (ns); below 0 by errors of clocks.
    transfer: Int64s
    needs: Mask  # whether it waits for others
    needed: Mask  # whether others wait for it

    def latest(self, begin: Int64s) -> Int64s:
        """Return by instance when the last of those that are needed begins."""
        latest = np.full(int(self.instance.max(initial=-1)) + 1, _NEVER)
        np.maximum.at(latest, self.instance[self.needed], begin[self.needed])
        return latest


_Call = tuple[int, int, int, bool, bool]  # of one rank: instance, ahead, transfer, needs and needed of `Tied`


class _Instances:
    """By instance how many needed calls are still to come, and when the last one came, on the common clock."""

    def __init__(self, tied: Tied) -> None:
        self.missing = np.bincount(tied.instance[tied.needed]).tolist()
        self.latest = [_NEVER] * len(self.missing)
        self.waiting: list[list[_Walk]] = [[] for _ in self.missing]


def sweep(models: Sequence[Model], tied: Tied) -> list[Replayed]:
    """Return when everything begins and ends, by rank, on its own clock. Raises CircularWaitError."""
    instances = _Instances(tied)
    calls: list[dict[int, _Call]] = [{} for _ in models]
    for index, work, *call in zip(*(column.tolist() for column in tied)):
        calls[index][work] = tuple(call)
    walks = [_Walk(model, of_rank, instances) for model, of_rank in zip(models, calls)]
    able = deque(walks)
    while able:
        able.extend(able.popleft().go())
        if not able:
            able.extend(walk for walk in walks if walk.let_go())
    if not all(walk.over for walk in walks):
        raise CircularWaitError
    return [Replayed(*(np.array(column, np.int64) for column in walk.times)) for walk in walks]


class _Walk:
    """`replay` of one rank with work that may have to wait."""

    def __init__(self, model: Model, calls: dict[int, _Call], instances: _Instances) -> None:
        self._calls, self._instances = calls, instances
        self._able: list[_Walk] = []
        self._after: list[int] = model.after.tolist()
        self._point, self._stream, self._dur, self._latency, self._gap, self._after_gap = (
            column.tolist()
            for column in (model.point, model.stream, model.dur, model.latency, model.gap, model.after_gap)
        )
        led = model.before + sums(model.piece_point, model.host, len(model.before))
        self._before, self._own, self._returns, self._target = (
            column.tolist() for column in (led, model.own, model.returns, model.target)
        )
        self._waits = {
            int(row): np.flatnonzero(model.waits[row]).tolist()
            for row in np.flatnonzero(model.waits.any(axis=1))
        }
        self._free = model.free.tolist()
        self._queues: list[deque[int]] = [deque() for _ in self._free]
        self._behind: set[int] = set()  # streams with work that has not ended
        self._begins, self._ends = [0] * len(led), [0] * len(led)
        self._starts: list[int | None] = [None] * len(self._point)
        self._stops: list[int | None] = [None] * len(self._point)
        self.times = (self._begins, self._ends, self._starts, self._stops)
        # The time, the next work and the next point; whether the call at that point has begun.
        self._now, self._work, self._next, self._called = model.begin, 0, 0, False

    @property
    def over(self) -> bool:
        return self._next == len(self._before) and not self._behind

    def go(self) -> "list[_Walk]":
        """Go on as far as possible; return who can go on because of that."""
        self._drain()
        while self._next < len(self._before):
            if not self._called:
                self._call()
            if not self._returned():
                self._drain()
                if not self._returned():
                    break
        self._drain()
        able, self._able = self._able, []
        return able

    def let_go(self) -> bool:
        """Let work go on that waits for work called after it; return whether any did.

        Calls of two threads may be in such an order in the launch sequence, which is walked as if there were one
        thread. It is a way out where nobody can go on.
        """
        first = [self._queues[stream][0] for stream in self._behind]
        waiting = [work for work in first if self._after[work] >= self._work]
        for work in waiting:
            self._after[work] = -1
        return bool(waiting)

    def _call(self) -> None:
        """Begin the call at the next point, and queue its work."""
        point = self._next
        self._begins[point] = self._now + self._before[point]
        self._now = self._begins[point] + self._own[point]
        self._called = True
        while self._work < len(self._point) and self._point[self._work] == point:
            stream = self._stream[self._work]
            self._queues[stream].append(self._work)
            self._work += 1
            if stream not in self._behind:
                self._behind.add(stream)
                self._run(stream)

    def _returned(self) -> bool:
        """Return from the call if what it waits for has ended; whether it did."""
        point, target = self._next, self._target[self._next]
        streams = self._waits.get(point, ())
        if not self._behind.isdisjoint(streams) or (target >= 0 and self._stops[target] is None):
            return False
        if streams:
            self._now = max(self._now, max(self._free[stream] for stream in streams) + self._returns[point])
        if target >= 0:
            self._now = max(self._now, (self._stops[target] or 0) + self._returns[point])
        self._ends[point] = self._now
        self._next, self._called = point + 1, False
        return True

    def _drain(self) -> None:
        while any(self._run(stream) for stream in sorted(self._behind)):
            pass

    def _run(self, stream: int) -> bool:
        """Run a stream; return whether any of its work ended."""
        queue, has_ended = self._queues[stream], False
        while queue and self._run_one(queue[0], stream):
            queue.popleft()
            has_ended = True
        if not queue:
            self._behind.discard(stream)
        return has_ended

    def _run_one(self, work: int, stream: int) -> bool:
        """Run one piece of work; return whether it ended."""
        start, call = self._starts[work], self._calls.get(work)
        if start is None:
            start = self._begins[self._point[work]] + self._latency[work]
            start = max(start, self._free[stream] + self._gap[work])
            if self._after[work] >= 0:
                awaited = self._stops[self._after[work]]
                if awaited is None:
                    return False
                start = max(start, awaited + self._after_gap[work])
            self._starts[work] = start
            if call is not None:
                self._come(call, start)
        stop = start + self._dur[work]
        if call is not None:
            instance, ahead, transfer, needs, _ = call
            if needs and self._instances.missing[instance]:
                return False
            if needs:
                stop = max(stop, self._instances.latest[instance] + ahead + transfer)
        self._stops[work] = stop
        self._free[stream] = max(self._free[stream], stop)
        return True

    def _come(self, call: _Call, begin: int) -> None:
        """Note that a call has begun; with the last one that is needed those that wait can go on."""
        instances, (number, ahead, _, needs, needed) = self._instances, call
        if needed:
            instances.latest[number] = max(instances.latest[number], begin - ahead)
            instances.missing[number] -= 1
        if not instances.missing[number]:
            self._able += instances.waiting[number]
            instances.waiting[number] = []
        elif needs:
            instances.waiting[number].append(self)
