"""Which calls of several ranks are one collective?

By torch's id of it; else by its group's sequence number; else it is the k-th that the group launched from a step on
that all ranks have. What was launched before the recording began has no launch, and is of no instance: it is counted
and never guessed. Calls that share a key and differ in what they do, or in how much, are of none either.
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

_PAIRED = ("send", "recv")


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


def _is_one(made: Calls, rows: list[int]) -> bool:
    """Whether these are of different ranks, and do the same."""
    kinds = {_shared(made.kinds[row]) for row in rows}
    return len(rows) > 1 and len(kinds) == 1 and len(set(made.place[rows].tolist())) == len(rows)


def _shared(kind: Kind) -> Hashable:
    return "pair" if kind.operation in _PAIRED else kind.operation, kind.dtype, kind.message_bytes


def _keys(job: Job, made: Calls) -> Iterator[Hashable]:
    """Of each call; None for one that nothing tells."""
    counted = _counted(job, made)
    for kind, seq, count in zip(made.kinds, made.seq.tolist(), counted):
        if kind.comms_id:
            yield "id", kind.comms_id, kind.group
        elif kind.group is None:
            yield None
        elif seq >= 0:
            yield "seq", kind.group, _pair(kind), seq
        else:
            yield None if count is None else ("count", kind.group, _pair(kind), count)


def _pair(kind: Kind) -> Hashable:
    """Of a send and its recv the two ranks; what they exchange has numbers of its own."""
    return (kind.source, kind.destination) if kind.operation in _PAIRED else None


def _counted(job: Job, made: Calls) -> list[int | None]:
    """The number of each launched call among those of its group on its rank, from the first step that all ranks have.

    Without steps in common from the first one on, where all ranks of the group launched as many.
    """
    from_ns = anchors(job)
    counts: Counter[tuple[int, Group, Hashable]] = Counter()
    numbers: list[int | None] = [None] * len(made.row)
    for row in np.argsort(made.launch, kind="stable").tolist():
        kind, place = made.kinds[row], int(made.place[row])
        if made.launch[row] < max(from_ns[place] if from_ns else 0, 0) or kind.group is None:
            continue
        key = (place, kind.group, _pair(kind))
        numbers[row] = counts[key]
        counts[key] += 1
    return numbers if from_ns else _even(made, numbers, counts)


def _even(
    made: Calls, numbers: list[int | None], counts: Counter[tuple[int, Group, Hashable]]
) -> list[int | None]:
    totals: dict[Hashable, set[int]] = defaultdict(set)
    for (_, group, pair), count in counts.items():
        totals[group, pair].add(count)
    return [
        number if len(totals[kind.group, _pair(kind)]) == 1 else None
        for kind, number in zip(made.kinds, numbers)
    ]


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
