"""Which calls of several ranks are one collective, how far are the ranks' clocks apart, and who waited for whom?

One collective are calls with one id from torch; otherwise those with one sequence number of their group; otherwise the
k-th that the group launched from a step on that all ranks have. What was launched before the recording began has no
launch and belongs to no instance: it is counted and never guessed. Neither do calls that share a key and differ in what
they do, or in how much. A send and its recv are always counted: torch's numbers, and the ids made of them, count all
that a rank exchanges with any other, so those of two ranks differ.

All ranks of a collective are done with it at one time, which sets the clocks. From the first rank on, each is set by
the median, over the collectives that it shares with one that is set already, of how much later it ended there. Then the
offset of a rank is moved by the median of how much later it still ends than the median of the ranks; what is left after
that shows how good the common clock is. Ranks that only send data to each other are linked by that afterwards: a
receiver that came before its data is done with it when the sender is.

A call waits until the last of its ranks has come, or until the rank has that it needs data of; the rest is transfer.
Both sum to its duration. A rank that was not read may have come later still: then the wait is a lower bound, and what
of the rest is transfer is unknown. A sender needs no data, but may wait for room: until all have come, its wait is
unknown, too. So is that of calls with a root, which torch does not name.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.rank_calls import Calls, Group, Kind, communication_rows, numbered
from tb_torchcompile_plugin.job.job import Job, OneRank
from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Intervals,
    Mask,
    distinct,
    ordinals,
    ranges,
    sums,
    union,
)
from tb_torchcompile_plugin.reader.memo import cached_once
from tb_torchcompile_plugin.torch_names.collectives import ALL_TO_ALL, HOLD_ALL, PAIRED

_BY_ID, _BY_SEQ, _BY_COUNT = range(3)


def calls(job: Job) -> Calls:
    """Return the collectives of all ranks; kinds have numbers that all ranks share."""
    codes: dict[Kind, int] = {}
    parts = []
    for index, digest in enumerate(job.digests):
        part = digest.columns.calls
        number = np.array([codes.setdefault(kind, len(codes)) for kind in part.kinds] or [0], np.int64)
        parts.append(part._replace(rank_index=np.full(len(part.begin), index), kind=number[part.kind]))
    columns = (np.concatenate(column) for column in zip(*(part[:-1] for part in parts)))
    return Calls._make((*columns, list(codes)))


def rows_of_calls(about: OneRank) -> Int64s:
    """Return the trace's rows of a rank's calls. Raises UserError where its digest is of another trace."""
    rows, digest = about.profile.of(communication_rows), about.job.digests[about.rank_index]
    if len(rows) != len(digest.columns.calls.begin):
        raise UserError(
            "the digest of this rank belongs to another trace",
            file=digest.worker,
            next_step="Write it again with: tb-torchcompile index",
        )
    return rows


class Instances:
    """The calls of each collective."""

    def __init__(self, of_call: Int64s, rows: Int64s, first: Int64s) -> None:
        self.of_call = of_call  # the instance of each call, -1 for none
        # Rows of `calls`, instance by instance in the order in which they ended, each in the order of the ranks.
        self.rows = rows
        self.first = first  # of each instance in `rows`

    def __len__(self) -> int:
        return len(self.first)

    @cached_once
    def sizes(self) -> Int64s:
        """How many calls each has."""
        return np.diff(np.append(self.first, len(self.rows)))

    @cached_once
    def number(self) -> Int64s:
        """The instance of each of `rows`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def largest(self, values: Int64s) -> Int64s:
        """Return the largest value among the calls of each; values: by call."""
        return np.maximum.reduceat(values[self.rows], self.first) if len(self) else self.first

    def smallest(self, values: Int64s) -> Int64s:
        """Return the smallest value among the calls of each; values: by call."""
        return np.minimum.reduceat(values[self.rows], self.first) if len(self) else self.first

    def some(self, numbers: Int64s) -> "Instances":
        """Return these instances, numbered in this order."""
        sizes = self.sizes[numbers]
        rows = self.rows[ranges(self.first[numbers], sizes)[1]]
        return Instances(self.of_call, rows, np.cumsum(sizes) - sizes)

    def where(self, mask: Mask) -> "Instances":
        """Return the instances of a mask, numbered from 0."""
        return self.some(np.flatnonzero(mask))


def instances(job: Job) -> Instances:
    """Return the collectives of which two ranks are there."""
    calls_ = job.of(calls)
    keys, is_known = _keys(job, calls_)
    rows = np.flatnonzero(is_known)
    _, key = distinct(*(column[rows] for column in keys))
    order = np.lexsort((rows, key))
    rows, key = rows[order], key[order]
    of_call = np.full(len(calls_.rank_index), -1)
    candidates = Instances(of_call, rows, np.flatnonzero(np.diff(key, prepend=-1)))
    collectives = candidates.where(_is_collective(calls_, candidates))
    first_rows = collectives.rows[collectives.first]
    ordered = collectives.some(np.lexsort((first_rows, collectives.largest(calls_.end))))
    of_call[ordered.rows] = ordered.number
    return ordered


def _keys(job: Job, calls_: Calls) -> tuple[tuple[Int64s, Int64s, Int64s], Mask]:
    """Return for each call (kind of key, key, its group or row), and which calls have a key at all."""
    is_alone = ~calls_.of_kind(kind.operation in PAIRED for kind in calls_.kinds)
    group = calls_.groups()
    row, count = _counted(job, calls_)
    by_id = is_alone & (calls_.comms >= 0)
    by_seq = is_alone & ~by_id & (group >= 0) & (calls_.seq >= 0)
    by = np.select([by_id, by_seq], [_BY_ID, _BY_SEQ], _BY_COUNT)
    comms = np.unique(calls_.comms, return_inverse=True)[1]  # hashes are wide
    key = np.select([by_id, by_seq], [comms, calls_.seq], count)
    return (by, key, np.where(by == _BY_COUNT, row, group)), by_id | by_seq | (count >= 0)


def _counted(job: Job, calls_: Calls) -> tuple[Int64s, Int64s]:
    """Return the row of each launched call and its number in it on its rank, -1 for others.

    They are counted from the first step that all ranks have; without one from the first call on, where all ranks
    launched as many.
    """
    anchors_ = job.of(first_shared_steps)
    since = np.maximum(np.array(anchors_, np.int64), 0) if anchors_ else np.zeros(len(job.digests), np.int64)
    row = _rows(job, calls_)
    counted = np.flatnonzero((row >= 0) & (calls_.launch >= since[calls_.rank_index]))
    counted = counted[np.argsort(calls_.launch[counted], kind="stable")]
    keys, of_key = distinct(row[counted], calls_.rank_index[counted])
    number = np.full(len(row), -1)
    number[counted] = ordinals(of_key)
    if not anchors_:
        sizes = np.bincount(of_key, minlength=keys.shape[1])
        pairs, _ = distinct(keys[0], sizes)
        rows, lengths = np.unique(pairs[0], return_counts=True)
        number[np.isin(row, rows[lengths > 1])] = -1
    return row, number


# Calls that are numbered in one row: of a group, or from one of its ranks to another (-1 for all).
_Row = tuple[Group, int, int]


def _rows(job: Job, calls_: Calls) -> Int64s:
    """Return by call a number of its row, -1 for none."""
    pairs, pair = distinct(calls_.kind, calls_.rank_index)
    rows = [
        _row_of(calls_.kinds[kind], job.digests[rank_index].rank) for kind, rank_index in pairs.T.tolist()
    ]
    codes = {row: code for code, row in enumerate(dict.fromkeys(row for row in rows if row))}
    return np.array([codes[row] if row else -1 for row in rows] or [-1], np.int64)[pair]


def _row_of(kind: Kind, rank: int) -> _Row | None:
    """Return None where the group or the other rank is unknown.

    torch records where a send goes to and where a recv comes from; in a group of two it can only be the other rank.
    """
    if kind.group is None:
        return None
    if kind.operation not in PAIRED:
        return kind.group, -1, -1
    peer = kind.destination if kind.operation == "send" else kind.source
    others = [other for other in kind.group.ranks if other != rank] if len(kind.group.ranks) == 2 else []
    if peer < 0 and len(others) == 1:
        (peer,) = others
    if peer < 0:
        return None
    return (kind.group, rank, peer) if kind.operation == "send" else (kind.group, peer, rank)


def first_shared_steps(job: Job) -> list[int]:
    """Return by rank when the first common step begins (ns, Unix time); [] without one."""
    windows = [digest.columns.windows for digest in job.digests]
    shared = set(windows[0].names).intersection(*(window.names for window in windows[1:]))
    first = next((name for name in windows[0].names if name in shared), None)
    if first is None:
        return []
    return [
        int(window.begin[window.names.index(first)]) + digest.base_ns
        for digest, window in zip(job.digests, windows)
    ]


def _is_collective(calls_: Calls, candidates: Instances) -> Mask:
    """Return by instance whether its calls are of different ranks and do the same."""
    sizes = (None if kind.operation == ALL_TO_ALL else kind.message_bytes for kind in calls_.kinds)
    in_common = numbered((kind.what, kind.dtype, size) for kind, size in zip(calls_.kinds, sizes))
    in_common = in_common[calls_.kind]
    pairs, _ = distinct(candidates.number, calls_.rank_index[candidates.rows])
    ranks = np.bincount(pairs[0], minlength=len(candidates))
    is_same = candidates.smallest(in_common) == candidates.largest(in_common)
    return np.asarray((candidates.sizes > 1) & is_same & (ranks == candidates.sizes))


def holds_all_ranks(job: Job) -> Mask:
    """Return by instance whether no rank leaves before all ranks have arrived."""
    calls_, instances_ = job.of(calls), job.of(instances)
    holds = calls_.of_kind(kind.operation in HOLD_ALL for kind in calls_.kinds)
    return holds[instances_.rows[instances_.first]]


def senders(job: Job) -> Int64s:
    """Return by instance the call that sends data to the other one; -1 where it is not a pair."""
    calls_, instances_ = job.of(calls), job.of(instances)
    sends = calls_.of_kind(kind.operation == "send" for kind in calls_.kinds)[instances_.rows]
    sender = np.full(len(instances_), -1)
    sender[instances_.number[sends]] = instances_.rows[sends]
    count = np.bincount(instances_.number[sends], minlength=len(instances_))
    return np.where(count == 1, sender, -1)


_NEVER = np.iinfo(np.int64).min


class Waits(NamedTuple):
    """Columns of the calls (ns)."""

    begin: Int64s  # on the common clock, as `end`
    end: Int64s
    wait: Int64s  # -1 for calls of no instance, as `transfer`
    transfer: Int64s
    awaited: Int64s  # index of the rank that it waited for, -1 where it did not wait
    last: Mask  # whether all others waited for it
    unknown: Int64s  # what of the transfer may be waiting, at its begin; 0 for calls of no instance
    transferred: Int64s  # what is known to be transfer; 0 for calls of no instance


def waits(job: Job) -> Waits:
    """Return the waits; wait + transfer is the duration, to the ns."""
    calls_, offset, instances_ = job.of(calls), job.of(clocks).offset_ns, job.of(instances)
    begin, end = calls_.begin - offset[calls_.rank_index], calls_.end - offset[calls_.rank_index]
    wait, awaited = np.full((2, len(begin)), -1)
    last, unknown = np.zeros(len(begin), bool), np.zeros(len(begin), np.int64)
    rows, needed = instances_.rows, job.of(needed_calls)
    until = np.where(needed >= 0, begin[needed] if len(begin) else needed, _NEVER)[instances_.number]
    wait[rows] = np.maximum(np.minimum(end[rows], until), begin[rows]) - begin[rows]
    waited = wait[rows] > 0
    awaited[rows[waited]] = calls_.rank_index[needed[instances_.number[waited]]]
    last[needed[needed >= 0]] = job.of(holds_all_ranks)[needed >= 0]
    # Until all ranks have come it is unknown who waits, whoever is needed; always where one was not read.
    apart = np.clip(instances_.largest(begin)[instances_.number] - begin[rows], 0, calls_.dur[rows])
    incomplete = np.where(job.of(is_complete)[instances_.number], apart, calls_.dur[rows])
    unknown[rows] = incomplete - wait[rows]
    transfer = np.where(wait >= 0, calls_.dur - wait, -1)
    assert ((wait < 0) | ((transfer >= 0) & (wait + transfer == calls_.dur))).all()
    assert ((unknown >= 0) & (unknown <= np.maximum(transfer, 0))).all()
    return Waits(begin, end, wait, transfer, awaited, last, unknown, np.maximum(transfer, 0) - unknown)


def needed_calls(job: Job) -> Int64s:
    """Return by instance the call without which the others cannot go on: the last one; of a pair the send.

    -1 where only a root is needed, which torch does not name.
    """
    calls_, offset, instances_ = job.of(calls), job.of(clocks).offset_ns, job.of(instances)
    rows = instances_.rows
    order = np.lexsort((-rows, (calls_.begin - offset[calls_.rank_index])[rows], instances_.number))
    latest = rows[order][instances_.first + instances_.sizes - 1]
    return np.where(job.of(holds_all_ranks), latest, job.of(senders))


def is_complete(job: Job) -> Mask:
    """Return by instance whether each rank of the group was read, or both of a send and its recv.

    Where torch did not record the ranks of the group: whether the job is complete.
    """
    calls_, instances_ = job.of(calls), job.of(instances)
    sizes = np.array([*(kind.group_size for kind in calls_.kinds), 0])
    size = sizes[calls_.kind[instances_.rows[instances_.first]]]
    complete = np.where(size > 0, instances_.sizes == size, not job.missing)
    return np.asarray((job.of(senders) >= 0) | complete)


def waiting(job: Job, rank_index: int) -> Intervals:
    """Return when collectives of a rank waited for another one, by the clock of its trace."""
    rows = job.of(calls).of_rank(rank_index)
    wait = job.of(waits).wait[rows]
    begin = job.of(calls).begin[rows][wait > 0] - job.digests[rank_index].base_ns
    return union(begin, begin + wait[wait > 0])


class Blame(NamedTuple):
    """Who waited for whom, as columns."""

    waiting: Int64s  # indices of ranks, as `awaited`
    awaited: Int64s
    ns: Int64s  # in all

    def caused_by(self, ranks: int) -> Int64s:
        """Return by rank how long the others waited for it."""
        return sums(self.awaited, self.ns, ranks)

    def of(self, rank_index: int) -> Int64s:
        """Return the rows of one rank that waited, most first."""
        rows = np.flatnonzero(self.waiting == rank_index)
        return rows[np.argsort(-self.ns[rows], kind="stable")]


def blame(job: Job) -> Blame:
    """Return who waited for whom, in order of the ranks."""
    rank_indices, times = job.of(calls).rank_index, job.of(waits)
    rows = np.flatnonzero(times.awaited >= 0)
    pairs, pair = distinct(rank_indices[rows], times.awaited[rows])
    return Blame(pairs[0], pairs[1], sums(pair, times.wait[rows], pairs.shape[1]))


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
    instance, rows = instances_.number, instances_.rows
    rank_index, end = calls_.rank_index[rows], calls_.end[rows]
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
