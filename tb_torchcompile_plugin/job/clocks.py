"""How far are the clocks of the ranks apart? All ranks of a collective are done with it at one time.

From the first rank on, each is set by the median, over the collectives that it shares with one that is set already,
of how much later it ended there. Then the offset of a rank is moved by the median of how much later it still ends
than the median of the ranks; what is left after that shows how good the common clock is.

Ranks that only send data to each other are linked by that afterwards: a receiver that came before its data is done
with it when the sender is.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_calls import Calls
from tb_torchcompile_plugin.job.instances import Instances, calls, holds_all_ranks, instances, senders
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import distinct
from tb_torchcompile_plugin.profile.intervals import Int64s

_ROUNDS = 16  # at most, of moving offsets until none moves


class Clocks(NamedTuple):
    """The clocks of the ranks, by rank."""

    offset_ns: Int64s  # what a clock is ahead of the common one
    residual_ns_p95: int | None  # how far apart ranks still end; None where no two are linked
    shared: Int64s  # the first rank with a common clock; offsets of ranks without one say nothing about each other


# Two ranks by index, and how much later the second ended each time.
_Links = Iterable[tuple[int, int, Int64s]]


def clocks(job: Job) -> Clocks:
    """Return the clocks; offsets are 0 without any collective."""
    calls_, instances_ = job.of(calls), job.of(instances)
    offset, shared, apart = _by_collectives(
        instances_.where(job.of(holds_all_ranks)), calls_, len(job.digests)
    )
    sender = job.of(senders)
    pairs = np.flatnonzero(sender >= 0)
    first = instances_.rows[instances_.first[pairs]]
    received = np.where(first == sender[pairs], instances_.rows[instances_.first[pairs] + 1], first)
    rows = np.stack((sender[pairs], received), axis=1)
    offset, shared, apart_by_sends = _by_sends(calls_, rows, offset, shared)
    left = np.abs(np.concatenate((apart, apart_by_sends)))
    return Clocks(offset, int(np.percentile(left, 95, method="higher")) if len(left) else None, shared)


def _by_collectives(instances_: Instances, calls_: Calls, ranks: int) -> tuple[Int64s, Int64s, Int64s]:
    """Link ranks by the collectives that hold all of them; return how far from the others each call still ends, too."""
    instance, rank_index, end = (
        instances_.number,
        calls_.rank_index[instances_.rows],
        calls_.end[instances_.rows],
    )
    first = instances_.first[instance]
    others = np.flatnonzero(first != np.arange(len(first)))
    pairs, pair = distinct(rank_index[first[others]], rank_index[others])
    late = (end - end[first])[others][np.argsort(pair, kind="stable")]
    lates = np.split(late, np.cumsum(np.bincount(pair, minlength=pairs.shape[1]))[:-1])
    offset, shared = _offsets(ranks, [(*ends, times) for ends, times in zip(pairs.T.tolist(), lates)])
    for _ in range(_ROUNDS):
        step = medians(rank_index, _behind_median(instance, end - offset[rank_index]), ranks)
        if not step.any():
            break
        offset = offset + step
    return offset, shared, _behind_median(instance, end - offset[rank_index])


def _by_sends(calls_: Calls, pairs: Int64s, offset: Int64s, shared: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Link what is not linked yet by what is sent between them; pairs: rows of `calls` (sent, received)."""
    sides = shared[calls_.rank_index[pairs]]
    pairs = pairs[sides[:, 0] != sides[:, 1]]
    end = (calls_.end - offset[calls_.rank_index])[pairs]
    waited = np.diff(calls_.dur[pairs])[:, 0]
    links = list(_across(shared[calls_.rank_index[pairs]], np.diff(end)[:, 0], waited))
    more, first = _offsets(len(offset), links)
    left = [lates - (more[other] - more[rank]) for rank, other, lates in links]
    return offset + more[shared], first[shared], np.concatenate([np.zeros(0, np.int64), *left])


def _across(sides: Int64s, late: Int64s, waited: Int64s) -> _Links:
    """Yield links of receivers that waited at least half as long as the longest did.

    Others may have come when all data was there. late: how much later each receiver ended; waited: how much longer it
    took than its sender (ns).
    """
    low, high = sides.min(axis=1), sides.max(axis=1)
    late = np.where(sides[:, 0] == low, late, -late)
    for rank, other in sorted(set(zip(low.tolist(), high.tolist()))):
        rows = np.flatnonzero((low == rank) & (high == other))
        wait = np.maximum(waited[rows], 0)
        yield rank, other, late[rows[2 * wait >= wait.max()]]


def _offsets(ranks: int, all_links: _Links) -> tuple[Int64s, Int64s]:
    """Return of each rank what it is ahead of the first of those that it is linked with, and which that is."""
    links: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for rank, other, lates in all_links:
        late = int(np.sort(lates)[(len(lates) - 1) // 2]) if len(lates) else 0
        links[rank].append((len(lates), other, late))
        links[other].append((len(lates), rank, -late))
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
    """Return how much later than the median of its instance each ended; rows of an instance are neighbours."""
    order = np.lexsort((end, instance))
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    count = np.diff(np.append(first, len(instance)))
    ends = end[order]
    middle = (ends[first + (count - 1) // 2] + ends[first + count // 2]) // 2
    return np.asarray(end - np.repeat(middle, count), np.int64)


def medians(rank_index: Int64s, values: Int64s, count: int) -> Int64s:
    """Return for each index below `count` the median of its values, the lower one of two; 0 for none."""
    order = np.lexsort((values, rank_index))
    sizes = np.bincount(rank_index, minlength=count)
    middle = np.cumsum(sizes) - sizes + np.maximum(sizes - 1, 0) // 2
    in_order = np.append(values[order], 0)
    return np.asarray(np.where(sizes > 0, in_order[np.minimum(middle, len(values))], 0), np.int64)
