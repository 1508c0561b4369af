"""Which calls of several ranks are one collective?

Those with one id from torch; otherwise those with one sequence number of their group; otherwise the k-th that the
group launched from a step on that all ranks have. What was launched before the recording began has no launch and
belongs to no instance: it is counted and never guessed. Neither do calls that share a key and differ in what they do,
or in how much.

A send and its recv are always counted: torch's numbers, and the ids made of them, count all that a rank exchanges with
any other, so those of two ranks differ.
"""

import numpy as np

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.rank_calls import Calls, Group, Kind, communication_rows, numbered
from tb_torchcompile_plugin.job.job import Job, OneRank
from tb_torchcompile_plugin.profile.columns import Mask, distinct, ordinals, ranges
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.memo import cached_once
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, PAIRED

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
        _, indices = ranges(self.first[numbers], sizes)
        return Instances(self.of_call, self.rows[indices], np.cumsum(sizes) - sizes)

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
    # In an all-to-all each rank may send more or less than another.
    sizes = (None if kind.operation == "all_to_all" else kind.message_bytes for kind in calls_.kinds)
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
