"""Walking a model of steps: when does each call begin and end, and each piece of work?"""

from __future__ import annotations

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
    something outside of the model does not let it end."""
    point, stream = model.point.tolist(), model.stream.tolist()
    held = [model.begin] * len(point) if not_done_before is None else not_done_before.tolist()
    dur, latency, gap = model.dur.tolist(), model.latency.tolist(), model.gap.tolist()
    after, after_gap = model.after.tolist(), model.after_gap.tolist()
    led = model.before + summed(model.piece_point, model.host, len(model.before))
    before, own, returns, target = (
        column.tolist() for column in (led, model.own, model.returns, model.target)
    )
    waits = {
        int(row): np.flatnonzero(model.waits[row]).tolist() for row in np.flatnonzero(model.waits.any(axis=1))
    }
    free = model.free.tolist()
    begins, ends = [0] * len(before), [0] * len(before)
    starts, stops = [0] * len(point), [0] * len(point)
    now, work, many = model.begin, 0, len(point)
    for place in range(len(before)):
        begin = now + before[place]
        now = begin + own[place]
        while work < many and point[work] == place:
            lane = stream[work]
            start = max(begin + latency[work], free[lane] + gap[work])
            if after[work] >= 0:
                start = max(start, stops[after[work]] + after_gap[work])
            starts[work] = start
            stops[work] = max(start + dur[work], held[work])
            free[lane] = max(free[lane], stops[work])
            work += 1
        if place in waits:
            now = max(now, max(free[lane] for lane in waits[place]) + returns[place])
        if target[place] >= 0:
            now = max(now, stops[target[place]] + returns[place])
        begins[place], ends[place] = begin, now
    return Replayed(*(np.array(column, np.int64) for column in (begins, ends, starts, stops)))
