"""How far are the clocks of the ranks apart? Those who took part in a collective are done with it at one time.

From the first rank on, each is set by the median, over the collectives that it shares with one that is set already, of
how much later it ended there. Then the offset of a rank is moved by the median of how much later it still ends than the
median of the ranks; what is left after that tells how good the common clock is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.instances import holds_all, instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.intervals import Int64s

_ROUNDS = 16


class Clocks(NamedTuple):
    """offset_ns: by rank, what its clock is ahead of the common one. residual_ns_p95: how far apart ranks still end."""

    offset_ns: Int64s
    residual_ns_p95: int | None


def clocks(job: Job) -> Clocks:
    """Those of ranks that no collective holds together tell nothing of each other; offsets are 0 without any."""
    made, known = job.of(calls), job.of(instances)
    holding = [rows for rows in known.members if holds_all(made, rows)]
    if not holding:
        return Clocks(np.zeros(len(job.ranks), np.int64), None)
    rows = np.concatenate(holding)
    instance = np.repeat(np.arange(len(holding)), [len(one) for one in holding])
    place, end = made.place[rows], made.end[rows]
    offset = _linked(len(job.ranks), [(made.place[one], made.end[one]) for one in holding])
    for _ in range(_ROUNDS):
        late = _behind_median(instance, end - offset[place])
        step = np.array([_median(late[place == rank]) for rank in range(len(offset))])
        if not step.any():
            break
        offset = offset + step
    left = np.abs(_behind_median(instance, end - offset[place]))
    return Clocks(offset, int(np.percentile(left, 95, method="higher")))


def _linked(ranks: int, collectives: list[tuple[Int64s, Int64s]]) -> Int64s:
    """Of each rank what it is ahead of the first of those that it is linked with. collectives: places and ends."""
    apart: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, end in collectives:
        for other, late in zip(place[1:].tolist(), (end[1:] - end[0]).tolist()):
            apart[int(place[0]), other].append(late)
    links: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (one, other), lates in apart.items():
        late = _median(np.array(lates, np.int64))
        links[one].append((len(lates), other, late))
        links[other].append((len(lates), one, -late))
    offset, known = np.zeros(ranks, np.int64), np.zeros(ranks, bool)
    for first in range(ranks):
        waiting = [] if known[first] else [first]
        known[first] = True
        for rank in waiting:
            for _, other, late in sorted(links[rank], reverse=True):
                if not known[other]:
                    offset[other], known[other] = offset[rank] + late, True
                    waiting.append(other)
    return offset


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
