"""Which calls of several ranks are one collective?

By torch's id of it; else by its group's sequence number; else it is the k-th that the group launched from a step on
that all ranks have. What was launched before the recording began has no launch, and is of no instance: it is counted
and never guessed. Calls that share a key and differ in what they do, or in how much, are of none either.

A send and its recv are always counted: torch's numbers, and the ids made of them, are of all that a rank exchanges with
whomever, so those of two ranks differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.rank_calls import Group, Kind, rank_calls
from tb_torchcompile_plugin.job.digest.rank_digest import DigestCalls, calls_of, windows_of
from tb_torchcompile_plugin.job.job import Job, OneRank, TracedJob
from tb_torchcompile_plugin.profile.columns import distinct, ordinals
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, PAIRED

# The collectives of all ranks as columns, with their kinds and groups as numbers that all ranks share.


class Calls(NamedTuple):
    """One row a collective that a rank ran, rank by rank in order of time. place: of the rank among the job's. begin,
    end, launch (-1 where that was not recorded): Unix time in ns, each rank's by its own clock. seq: the group's own
    number of it, comms: a hash of torch's id of it; -1 unknown. kind: place in `kinds`."""

    place: Int64s
    begin: Int64s
    end: Int64s
    launch: Int64s
    seq: Int64s
    kind: Int64s
    comms: Int64s
    kinds: list[Kind]

    @property
    def dur(self) -> Int64s:
        return self.end - self.begin

    def of_rank(self, place: int) -> slice:
        """The rows of one rank."""
        return slice(*np.searchsorted(self.place, (place, place + 1)).tolist())

    def kind_of(self, row: int | np.integer) -> Kind:
        """What the call in this row is."""
        return self.kinds[int(self.kind[row])]

    def groups(self) -> Int64s:
        """Of each call a number of its group, -1 where that is not known."""
        number = numbered(kind.group for kind in self.kinds)[self.kind]
        return np.where(self.of_kind(kind.group is not None for kind in self.kinds), number, -1)

    def of_kind(self, of_each: Iterable[bool]) -> npt.NDArray[np.bool_]:
        """By call what holds for its kind; of_each: one for each of `kinds`."""
        return np.array([*of_each, False])[self.kind]


def calls(job: Job) -> Calls:
    """Of all ranks."""
    parts = [one.of(calls_of) for one in job.digests]
    codes: dict[Kind, int] = {}
    kinds = [_shared_kinds(part, codes) for part in parts]
    return Calls(
        place=np.repeat(np.arange(len(parts)), [len(part.begin) for part in parts]),
        begin=np.concatenate([part.begin for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        launch=np.concatenate([part.launch for part in parts]),
        seq=np.concatenate([part.seq for part in parts]),
        kind=np.concatenate(kinds),
        comms=np.concatenate([part.comms for part in parts]),
        kinds=list(codes),
    )


def _shared_kinds(part: DigestCalls, codes: dict[Kind, int]) -> Int64s:
    """The kinds of one rank by the numbers of all."""
    return np.array([codes.setdefault(one, len(codes)) for one in part.kinds] or [0], np.int64)[part.kind]


def numbered(of_kinds: Iterable[Hashable]) -> Int64s:
    """Equal numbers for what is equal, from 0 on; one for each kind."""
    codes: dict[Hashable, int] = {}
    return np.array([codes.setdefault(one, len(codes)) for one in of_kinds] or [0], np.int64)


def rows_of_calls(about: OneRank) -> Int64s:
    """Of a rank's calls, in their order, the rows in its trace. Raises UserError where its digest is of another one."""
    rows = about.profile.of(rank_calls).row
    if len(rows) != len(about.job.digests[about.place].of(calls_of).begin):
        raise UserError(
            "the digest of this rank is not of its trace",
            file=about.job.digests[about.place].worker,
            next_step="Write it again with: tb-torchcompile index",
        )
    return rows


def trace_rows(job: TracedJob) -> Int64s:
    """By call its row in the trace of its rank."""
    return np.concatenate([one.profile.of(rank_calls).row for one in job.ranks])


class Instances:
    """of_call: the instance of each call, -1 for none. rows: the calls of all instances, by place in `calls`, instance
    by instance in the order in which they ended, each in the order of the ranks. first: of each instance in `rows`."""

    def __init__(self, of_call: Int64s, rows: Int64s, first: Int64s) -> None:
        self.of_call, self.rows, self.first = of_call, rows, first

    def __len__(self) -> int:
        return len(self.first)

    @once
    def sizes(self) -> Int64s:
        """How many calls each has."""
        return np.diff(np.append(self.first, len(self.rows)))

    @once
    def number(self) -> Int64s:
        """The instance of each of `rows`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def members(self) -> list[Int64s]:
        """The calls of each."""
        return np.split(self.rows, self.first[1:]) if len(self) else []

    def some(self, numbers: Int64s) -> Instances:
        """Few of them; numbered anew, in this order."""
        first, sizes = self.first[numbers], self.sizes[numbers]
        ends = np.cumsum(sizes)
        places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - (ends - sizes), sizes)
        return Instances(self.of_call, self.rows[places], ends - sizes)

    def where(self, mask: npt.NDArray[np.bool_]) -> Instances:
        """Some of them, by instance; numbered anew."""
        rows = self.rows[mask[self.number]]
        first = np.concatenate(([0], np.cumsum(self.sizes[mask])))[:-1]
        return Instances(self.of_call, rows, first)


def instances(job: Job) -> Instances:
    """Those of which two ranks are there."""
    made = job.of(calls)
    keys, known = _keys(job, made)
    rows = np.flatnonzero(known)
    _, key = distinct(*(column[rows] for column in keys))
    order = np.lexsort((rows, key))
    rows, key = rows[order], key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    all_of_them = Instances(np.full(len(made.place), -1), rows, first)
    one = all_of_them.where(_is_one(made, all_of_them))
    ended = np.maximum.reduceat(made.end[one.rows], one.first) if len(one) else one.first
    return _numbered(one, np.lexsort((one.rows[one.first], ended)))


def _numbered(one: Instances, order: Int64s) -> Instances:
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    number = rank[one.number]
    rows = one.rows[np.argsort(number, kind="stable")]
    one.of_call[rows] = np.sort(number)
    return Instances(one.of_call, rows, np.searchsorted(np.sort(number), np.arange(len(one))))


def holding(job: Job) -> npt.NDArray[np.bool_]:
    """By instance whether nobody is done with it before everybody has come."""
    made, known = job.of(calls), job.of(instances)
    return made.of_kind(one.operation in HOLD_ALL for one in made.kinds)[known.rows[known.first]]


def senders(job: Job) -> Int64s:
    """By instance the member that hands its data to the other one; -1 where that is not what they do."""
    made, known = job.of(calls), job.of(instances)
    sends = made.of_kind(one.operation == "send" for one in made.kinds)[known.rows]
    sender = np.full(len(known), -1)
    sender[known.number[sends]] = known.rows[sends]
    count = np.bincount(known.number[sends], minlength=len(known))
    return np.where(count == 1, sender, -1)


def _is_one(made: Calls, known: Instances) -> npt.NDArray[np.bool_]:
    """Whether these are of different ranks, and do the same."""
    if not len(known):
        return np.zeros(0, bool)
    shared = numbered(map(_shared, made.kinds))[made.kind[known.rows]]
    same = np.minimum.reduceat(shared, known.first) == np.maximum.reduceat(shared, known.first)
    pairs, _ = distinct(known.number, made.place[known.rows])
    ranks = np.bincount(pairs[0], minlength=len(known))
    return np.asarray((known.sizes > 1) & same & (ranks == known.sizes))


def _shared(kind: Kind) -> Hashable:
    """What calls of one collective have in common. All-to-all: each rank may send more or less than another."""
    bytes_ = None if kind.operation == "all_to_all" else kind.message_bytes
    return kind.what, kind.dtype, bytes_


_BY_ID, _BY_SEQ, _BY_COUNT = range(3)


def _keys(job: Job, made: Calls) -> tuple[tuple[Int64s, Int64s, Int64s], npt.NDArray[np.bool_]]:
    """Of each call: (what it is known by, that, of which group or row); and which calls are known at all."""
    alone = ~made.of_kind(one.operation in PAIRED for one in made.kinds)
    group = made.groups()
    row, count = _counted(job, made)
    by_id = alone & (made.comms >= 0)
    by_seq = alone & ~by_id & (group >= 0) & (made.seq >= 0)
    by = np.select([by_id, by_seq], [_BY_ID, _BY_SEQ], _BY_COUNT)
    comms = np.unique(made.comms, return_inverse=True)[1]  # hashes are wide
    keys = by, np.select([by_id, by_seq], [comms, made.seq], count), np.where(by == _BY_COUNT, row, group)
    return keys, by_id | by_seq | (count >= 0)


class _Row(NamedTuple):
    """Calls that are numbered in one row: of a group; or of two ranks of it, from one to the other."""

    group: Group
    source: int
    destination: int


def _row_of(kind: Kind, rank: int) -> _Row | None:
    """None where nothing tells the group, or the other rank. torch tells a send where to and a recv where from; in a
    group of two it can only be the other one."""
    if kind.group is None:
        return None
    if kind.operation not in PAIRED:
        return _Row(kind.group, -1, -1)
    peer = kind.destination if kind.operation == "send" else kind.source
    others = [one for one in kind.group.ranks if one != rank] if len(kind.group.ranks) == 2 else []
    if peer < 0 and len(others) == 1:
        (peer,) = others
    if peer < 0:
        return None
    return _Row(kind.group, *((rank, peer) if kind.operation == "send" else (peer, rank)))


def _counted(job: Job, made: Calls) -> tuple[Int64s, Int64s]:
    """The row of each launched call and its number in it on its rank, from the first step that all ranks have; -1 for
    others. Without steps in common from the first one on, where all ranks launched as many."""
    from_ns = job.of(anchors)
    least = np.maximum(np.array(from_ns, np.int64), 0) if from_ns else np.zeros(len(job.digests), np.int64)
    row = _rows(job, made)
    counted = np.flatnonzero((row >= 0) & (made.launch >= least[made.place]))
    counted = counted[np.argsort(made.launch[counted], kind="stable")]
    keys, of_key = distinct(row[counted], made.place[counted])
    number = np.full(len(row), -1)
    number[counted] = ordinals(of_key)
    if not from_ns:
        sizes = np.bincount(of_key, minlength=keys.shape[1])
        number[np.isin(row, _uneven(keys[0], sizes))] = -1
    return row, number


def _rows(job: Job, made: Calls) -> Int64s:
    pairs, pair = distinct(made.kind, made.place)
    rows = [_row_of(made.kinds[kind], job.digests[place].rank) for kind, place in pairs.T.tolist()]
    codes = {one: code for code, one in enumerate(dict.fromkeys(one for one in rows if one))}
    return np.array([codes[one] if one else -1 for one in rows] or [-1], np.int64)[pair]


def _uneven(row: Int64s, sizes: Int64s) -> Int64s:
    """Rows of which ranks launched not as many calls."""
    pairs, _ = distinct(row, sizes)
    rows, count = np.unique(pairs[0], return_counts=True)
    return rows[count > 1]


def anchors(job: Job) -> list[int]:
    """By rank when the first step begins that all of them have (ns, Unix time); [] where they share none."""
    windows = [one.of(windows_of) for one in job.digests]
    shared = set(windows[0].names).intersection(*(window.names for window in windows[1:]))
    first = next((name for name in windows[0].names if name in shared), None)
    if first is None:
        return []
    return [
        int(window.begin[window.names.index(first)]) + one.base_ns
        for one, window in zip(job.digests, windows)
    ]
