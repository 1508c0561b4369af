"""Which calls of several ranks are one collective?

By torch's id of it; else by its group's sequence number; else it is the k-th that the group launched from a step on
that all ranks have. What was launched before the recording began has no launch, and is of no instance: it is counted
and never guessed. Calls that share a key and differ in what they do, or in how much, are of none either.

A send and its recv are always counted: torch's numbers, and the ids made of them, are of all that a rank exchanges with
whomever, so those of two ranks differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import Calls, Group, Kind, calls
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, PAIRED


class Instances(NamedTuple):
    """of_call: the instance of each call, -1 for none. members: its calls, by place in `calls`, in the order of the
    ranks. Instances are in the order in which they ended."""

    of_call: Int64s
    members: list[Int64s]


def instances(job: Job) -> Instances:
    """Those of which two ranks are there."""
    made = job.of(calls)
    by_key: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(_keys(job, made)):
        if key is not None:
            by_key[key].append(place)
    known = [np.array(rows, np.int64) for rows in by_key.values() if _is_one(made, rows)]
    known.sort(key=lambda rows: int(made.end[rows].max()))
    of_call = np.full(len(made.row), -1)
    for number, rows in enumerate(known):
        of_call[rows] = number
    return Instances(of_call, known)


def holds_all(made: Calls, rows: Int64s) -> bool:
    """Whether nobody is done with this instance before everybody has come."""
    return made.kinds[int(rows[0])].operation in HOLD_ALL


def sender(made: Calls, rows: Int64s) -> int | None:
    """The member that hands its data to the other one; None where that is not what they do."""
    senders = [row for row in rows.tolist() if made.kinds[row].operation == "send"]
    return senders[0] if len(senders) == 1 else None


def _is_one(made: Calls, rows: list[int]) -> bool:
    """Whether these are of different ranks, and do the same."""
    kinds = {_shared(made.kinds[row]) for row in rows}
    return len(rows) > 1 and len(kinds) == 1 and len(set(made.place[rows].tolist())) == len(rows)


def _shared(kind: Kind) -> Hashable:
    """What calls of one collective have in common. All-to-all: each rank may send more or less than another."""
    bytes_ = None if kind.operation == "all_to_all" else kind.message_bytes
    return "pair" if kind.operation in PAIRED else kind.operation, kind.dtype, bytes_


def _keys(job: Job, made: Calls) -> Iterator[Hashable]:
    """Of each call; None for one that nothing tells."""
    counted = _counted(job, made)
    for kind, seq, count in zip(made.kinds, made.seq.tolist(), counted):
        paired = kind.operation in PAIRED
        if kind.comms_id and not paired:
            yield "id", kind.comms_id, kind.group
        elif kind.group is not None and seq >= 0 and not paired:
            yield "seq", kind.group, seq
        else:
            yield None if count is None else ("count", *count)


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
    others = [one for one in kind.group.ranks if one != rank]
    if peer < 0 and len(others) == 1 and len(kind.group.ranks) == 2:
        (peer,) = others
    if peer < 0:
        return None
    return _Row(kind.group, *((rank, peer) if kind.operation == "send" else (peer, rank)))


_Count = tuple[_Row, int]


def _counted(job: Job, made: Calls) -> list[_Count | None]:
    """The number of each launched call in its row on its rank, from the first step that all ranks have.

    Without steps in common from the first one on, where all ranks launched as many.
    """
    from_ns = job.of(anchors)
    counts: Counter[tuple[int, _Row]] = Counter()
    numbers: list[_Count | None] = [None] * len(made.row)
    for call in np.argsort(made.launch, kind="stable").tolist():
        place = int(made.place[call])
        row = _row_of(made.kinds[call], job.ranks[place].rank)
        if row is not None and made.launch[call] >= max(from_ns[place] if from_ns else 0, 0):
            numbers[call] = row, counts[place, row]
            counts[place, row] += 1
    return numbers if from_ns else _even(numbers, counts)


def _even(numbers: list[_Count | None], counts: Counter[tuple[int, _Row]]) -> list[_Count | None]:
    totals: dict[_Row, set[int]] = defaultdict(set)
    for (_, row), count in counts.items():
        totals[row].add(count)
    return [number if number and len(totals[number[0]]) == 1 else None for number in numbers]


def anchors(job: Job) -> list[int]:
    """By rank when the first step begins that all of them have (ns, Unix time); [] where they share none."""
    windows = [one.profile.of(StepWindows) for one in job.ranks]
    shared = set(windows[0].names).intersection(*(window.names for window in windows[1:]))
    first = next((name for name in windows[0].names if name in shared), None)
    if first is None:
        return []
    return [
        int(window.starts[window.names.index(first)]) + one.profile.trace.base_ns
        for one, window in zip(job.ranks, windows)
    ]
