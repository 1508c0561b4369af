"""How far are the clocks of the ranks apart? Those who took part in a collective are done with it at one time.

From the first rank on, each is set by the median, over the collectives that it shares with one that is set already, of
how much later it ended there. Then the offset of a rank is moved by the median of how much later it still ends than the
median of the ranks; what is left after that tells how good the common clock is.

Ranks that only hand data on to each other are tied by that afterwards: a receiver that came before its data is done
with it when the sender is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.instances import Calls, Instances, calls, holding, instances, senders
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import distinct
from tb_torchcompile_plugin.profile.intervals import Int64s

_ROUNDS = 16


class Clocks(NamedTuple):
    """offset_ns: by rank, what its clock is ahead of the common one. residual_ns_p95: how far apart ranks still end,
    None where nothing ties any two. shared: by rank the first one with which it has a clock in common; offsets of ranks
    that have none in common tell nothing of each other."""

    offset_ns: Int64s
    residual_ns_p95: int | None
    shared: Int64s


def clocks(job: Job) -> Clocks:
    """Offsets are 0 without any collective."""
    made, known = job.of(calls), job.of(instances)
    held = _held(known.where(job.of(holding)), made, len(job.digests))
    sent = job.of(senders)
    handed = np.flatnonzero(sent >= 0)
    first = known.rows[known.first[handed]]
    received = np.where(first == sent[handed], known.rows[known.first[handed] + 1], first)
    offset, shared, apart = _handed_on(made, np.stack((sent[handed], received), axis=1), held)
    left = np.abs(np.concatenate((held.apart, apart)))
    return Clocks(offset, int(np.percentile(left, 95, method="higher")) if len(left) else None, shared)


class _Tied(NamedTuple):
    """apart: by call, how far from the others it still ends."""

    offset: Int64s
    shared: Int64s
    apart: Int64s


def _held(known: Instances, made: Calls, ranks: int) -> _Tied:
    """By the collectives that hold all."""
    rows, instance = known.rows, known.number
    place, end = made.place[rows], made.end[rows]
    offset, shared = _linked(ranks, _between(known, made))
    for _ in range(_ROUNDS):
        step = medians(place, _behind_median(instance, end - offset[place]), ranks)
        if not step.any():
            break
        offset = offset + step
    return _Tied(offset, shared, _behind_median(instance, end - offset[place]))


_Links = Iterable[tuple[int, int, Int64s]]  # two places, and how much later the second ended each time


def _between(known: Instances, made: Calls) -> _Links:
    place, end = made.place[known.rows], made.end[known.rows]
    first = known.first[known.number]
    others = np.flatnonzero(first != np.arange(len(first)))
    pairs, pair = distinct(place[first[others]], place[others])
    late = (end - end[first])[others][np.argsort(pair, kind="stable")]
    lates = np.split(late, np.cumsum(np.bincount(pair, minlength=pairs.shape[1]))[:-1])
    return [(one, other, its) for (one, other), its in zip(pairs.T.tolist(), lates)]


def _handed_on(made: Calls, pairs: Int64s, held: _Tied) -> _Tied:
    """What is not tied yet, by what is sent from one to the other. pairs: (sent, received), by place in `calls`."""
    offset, shared = held.offset, held.shared
    sides = shared[made.place[pairs]]
    pairs = pairs[sides[:, 0] != sides[:, 1]]
    end = (made.end - offset[made.place])[pairs]
    waited = np.diff(made.dur[pairs])[:, 0]
    links = list(_across(shared[made.place[pairs]], np.diff(end)[:, 0], waited))
    more, first = _linked(len(offset), links)
    left = [lates - (more[other] - more[one]) for one, other, lates in links]
    return _Tied(offset + more[shared], first[shared], np.concatenate([np.zeros(0, np.int64), *left]))


def _across(sides: Int64s, late: Int64s, waited: Int64s) -> _Links:
    """Of those that waited at least half as long as the longest did: others may have come when all was there. late: how
    much later each receiver ended; waited: how much longer it took than its sender (ns)."""
    low, high = sides.min(axis=1), sides.max(axis=1)
    late = np.where(sides[:, 0] == low, late, -late)
    for one, other in sorted(set(zip(low.tolist(), high.tolist()))):
        mine = np.flatnonzero((low == one) & (high == other))
        long = np.maximum(waited[mine], 0)
        yield one, other, late[mine[2 * long >= long.max()]]


def _linked(ranks: int, all_links: _Links) -> tuple[Int64s, Int64s]:
    """Of each place what it is ahead of the first of those that it is linked with, and which that is."""
    links: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for one, other, lates in all_links:
        late = _median(lates)
        links[one].append((len(lates), other, late))
        links[other].append((len(lates), one, -late))
    offset, shared = np.zeros(ranks, np.int64), np.full(ranks, -1)
    for first in range(ranks):
        waiting = [] if shared[first] >= 0 else [first]
        shared[waiting] = first
        for rank in waiting:
            for _, other, late in sorted(links[rank], reverse=True):
                if shared[other] < 0:
                    offset[other], shared[other] = offset[rank] + late, first
                    waiting.append(other)
    return offset, shared


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


def medians(place: Int64s, values: Int64s, count: int) -> Int64s:
    """At each of `count` places the median of its values, the lower one of two; 0 for none."""
    order = np.lexsort((values, place))
    sizes = np.bincount(place, minlength=count)
    middle = np.cumsum(sizes) - sizes + np.maximum(sizes - 1, 0) // 2
    in_order = np.append(values[order], 0)
    return np.asarray(np.where(sizes > 0, in_order[np.minimum(middle, len(values))], 0), np.int64)
