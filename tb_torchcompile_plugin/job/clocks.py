"""How far are the clocks of the ranks apart? Those who took part in a collective are done with it at one time.

The offset of a rank is the median, over its collectives, of how much later it ended there than the median of the ranks;
what is left after that tells how good the common clock is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL

_ROUNDS = 64  # groups that share few ranks pass a difference on, half of it each time


class Clocks(NamedTuple):
    """offset_ns: by rank, what its clock is ahead of the common one. residual_ns_p95: how far apart ranks still end."""

    offset_ns: Int64s
    residual_ns_p95: int | None


def clocks(job: Job) -> Clocks:
    """Offsets are 0 where there is no collective that holds all."""
    made, known = job.of(calls), job.of(instances)
    holding = [rows for rows in known.members if made.kinds[int(rows[0])].operation in HOLD_ALL]
    offset = np.zeros(len(job.ranks), np.int64)
    if not holding:
        return Clocks(offset, None)
    rows = np.concatenate(holding)
    instance = np.repeat(np.arange(len(holding)), [len(one) for one in holding])
    place, end = made.place[rows], made.end[rows]
    for _ in range(_ROUNDS):
        late = _behind_median(instance, end - offset[place])
        step = np.array([_median(late[place == rank]) for rank in range(len(offset))])
        if not step.any():
            break
        offset = offset + step
    left = np.abs(_behind_median(instance, end - offset[place]))
    return Clocks(offset, int(np.percentile(left, 95, method="higher")))


def _behind_median(instance: Int64s, end: Int64s) -> Int64s:
    """How much later than the median of its instance each ended; rows of an instance stand together."""
    order = np.lexsort((end, instance))
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    count = np.diff(np.append(first, len(instance)))
    ends = end[order]
    middle = (ends[first + (count - 1) // 2] + ends[first + count // 2]) // 2
    return np.asarray(end - np.repeat(middle, count), np.int64)


def _median(values: Int64s) -> int:
    return int(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 0
