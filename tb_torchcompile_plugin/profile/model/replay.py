"""Walking a model of steps: when does each call begin and end, and each piece of work?"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.model import Model, summed


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
