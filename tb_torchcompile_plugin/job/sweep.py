"""The models of all ranks walked together, once: each goes on as far as it can, until it needs a collective to be over
of which another rank has not come yet; with the last of them all that waited for it go on.

Linear in the calls and pieces of work of all ranks. A piece of work that cannot end yet holds what is queued behind it
on its stream and what waits for it, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.model import Model, Replayed, summed

_NEVER = np.iinfo(np.int64).min // 2


class CircularWaitError(Exception):
    """By the models ranks wait for each other in a circle: none of them can go on."""


class Tied(NamedTuple):
    """Matched calls that are in the model of their rank, as columns: place of the rank, place in its queue, instance
    (numbered from 0), what its clock is ahead (ns), how long it goes on after the last that it needs began (ns): less
    than nothing by what the clocks are off. needs: whether it waits for others; needed: whether others wait for it."""

    place: Int64s
    work: Int64s
    instance: Int64s
    ahead: Int64s
    transfer: Int64s
    needs: npt.NDArray[np.bool_]
    needed: npt.NDArray[np.bool_]

    def latest(self, begin: Int64s) -> Int64s:
        """By instance when the last of those that are needed begins."""
        latest = np.full(int(self.instance.max(initial=-1)) + 1, _NEVER)
        np.maximum.at(latest, self.instance[self.needed], begin[self.needed])
        return latest


class _Instances:
    """How many of the needed are still to come, and when the last of those that came did, on the common clock."""

    def __init__(self, held: Tied) -> None:
        self.missing = np.bincount(held.instance[held.needed]).tolist()
        self.latest = [_NEVER] * len(self.missing)
        self.waiting: list[list[_Walk]] = [[] for _ in self.missing]


class _Call(NamedTuple):
    """A tied call of one rank."""

    instance: int
    ahead: int
    transfer: int
    needs: bool
    needed: bool


def sweep(models: Sequence[Model], held: Tied) -> list[Replayed]:
    """When everything begins and ends, by rank, on its own clock. Raises CircularWaitError."""
    instances = _Instances(held)
    calls: list[dict[int, _Call]] = [{} for _ in models]
    for place, work, *call in zip(*(column.tolist() for column in held)):
        calls[place][work] = _Call(*call)
    walks = [_Walk(model, mine, instances) for model, mine in zip(models, calls)]
    able = deque(walks)
    while able:
        able.extend(able.popleft().go())
        if not able:
            able.extend(walk for walk in walks if walk.let_go())
    if not all(walk.over for walk in walks):
        raise CircularWaitError
    return [walk.times for walk in walks]


class _Walk:
    """One rank on its way; `replay` with work that may have to wait."""

    def __init__(self, model: Model, calls: dict[int, _Call], instances: _Instances) -> None:
        self._calls, self._instances = calls, instances
        self._able: list[_Walk] = []
        self._point, self._stream = model.point.tolist(), model.stream.tolist()
        self._dur, self._latency, self._gap = (
            column.tolist() for column in (model.dur, model.latency, model.gap)
        )
        self._after: list[int] = model.after.tolist()
        self._after_gap: list[int] = model.after_gap.tolist()
        led = model.before + summed(model.piece_point, model.host, len(model.before))
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
        self._now, self._work, self._place, self._called = model.begin, 0, 0, False

    @property
    def over(self) -> bool:
        return self._place == len(self._before) and not self._behind

    @property
    def times(self) -> Replayed:
        columns = (self._begins, self._ends, self._starts, self._stops)
        return Replayed(*(np.array(column, np.int64) for column in columns))

    def go(self) -> list[_Walk]:
        """As far as it can; who can go on by what it did."""
        self._drain()
        while self._place < len(self._before):
            if not self._called:
                self._call()
            if not (self._returned() or (self._drain() and self._returned())):
                break
        self._drain()
        able, self._able = self._able, []
        return able

    def let_go(self) -> bool:
        """Where nobody can go on: work does not wait for what is only called behind it. Calls of two threads may lie so
        in the lane, which is walked as if there were one. Whether any waited so."""
        heads = [self._queues[stream][0] for stream in self._behind]
        waiting = [work for work in heads if self._after[work] >= self._work]
        for work in waiting:
            self._after[work] = -1
        return bool(waiting)

    def _call(self) -> None:
        """Begins the call at the next point, and queues its work."""
        place = self._place
        self._begins[place] = self._now + self._before[place]
        self._now = self._begins[place] + self._own[place]
        self._called = True
        while self._work < len(self._point) and self._point[self._work] == place:
            stream = self._stream[self._work]
            self._queues[stream].append(self._work)
            self._work += 1
            if stream not in self._behind:
                self._behind.add(stream)
                self._run(stream)

    def _returned(self) -> bool:
        """Whether the call comes back: what it waits for has ended."""
        place, target = self._place, self._target[self._place]
        streams = self._waits.get(place, ())
        if not self._behind.isdisjoint(streams) or (target >= 0 and self._stops[target] is None):
            return False
        if streams:
            self._now = max(self._now, max(self._free[stream] for stream in streams) + self._returns[place])
        if target >= 0:
            self._now = max(self._now, (self._stops[target] or 0) + self._returns[place])
        self._ends[place] = self._now
        self._place, self._called = place + 1, False
        return True

    def _drain(self) -> bool:
        """Runs what can run on all streams; True."""
        moved = True
        while moved:
            moved = any(self._run(stream) for stream in sorted(self._behind))
        return True

    def _run(self, stream: int) -> bool:
        """Whether any work of a stream ended."""
        queue, moved = self._queues[stream], False
        while queue and self._run_one(queue[0], stream):
            queue.popleft()
            moved = True
        if not queue:
            self._behind.discard(stream)
        return moved

    def _run_one(self, work: int, stream: int) -> bool:
        """Whether it ended."""
        start, call = self._starts[work], self._calls.get(work)
        if start is None:
            start = self._start(work, stream)
            if start is None:
                return False
            self._starts[work] = start
            if call is not None:
                self._come(call, start - call.ahead)
        stop = start + self._dur[work]
        if call is not None and call.needs:
            if self._instances.missing[call.instance]:
                return False
            stop = max(stop, self._instances.latest[call.instance] + call.ahead + call.transfer)
        self._stops[work] = stop
        self._free[stream] = max(self._free[stream], stop)
        return True

    def _start(self, work: int, stream: int) -> int | None:
        """None where work of another stream that it waits for has not ended."""
        after = self._after[work]
        start: int = max(
            self._begins[self._point[work]] + self._latency[work], self._free[stream] + self._gap[work]
        )
        if after < 0:
            return start
        stop = self._stops[after]
        if stop is None:
            return None
        later: int = stop + self._after_gap[work]
        return later if later > start else start

    def _come(self, call: _Call, begin: int) -> None:
        """It has begun; with the last one that is needed those that wait can go on."""
        every = self._instances
        if call.needed:
            every.latest[call.instance] = max(every.latest[call.instance], begin)
            every.missing[call.instance] -= 1
        if not every.missing[call.instance]:
            self._able += every.waiting[call.instance]
            every.waiting[call.instance] = []
        elif call.needs:
            every.waiting[call.instance].append(self)
