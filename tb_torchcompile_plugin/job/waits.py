"""Of each call of a collective: how long it waited for another rank, and how long the transfer took.

A call waits until the last of its ranks has come, or until the one has that it needs data of; the rest is transfer.
Both sum to its duration. A member that is not here may have come later still: then the wait is a lower bound, and
nothing tells of the rest whether it is transfer. A sender needs nobody, and may wait for room: until all have come
nothing tells. So it is where a root is needed, which torch does not name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.calls import Calls, calls
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import holds_all, instances, sender
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union


class Waits(NamedTuple):
    """Columns of the calls (ns). begin, end: on the common clock. wait, transfer: -1 for calls of no instance.
    awaited: the place of the rank that it waited for, -1 where it did not wait. last: whether all others waited.
    unknown: of the transfer what may be waiting, at its begin; 0 for calls of no instance."""

    begin: Int64s
    end: Int64s
    wait: Int64s
    transfer: Int64s
    awaited: Int64s
    last: npt.NDArray[np.bool_]
    unknown: Int64s

    @property
    def transferred(self) -> Int64s:
        """What is known to be transfer; 0 for calls of no instance."""
        return np.maximum(self.transfer, 0) - self.unknown


def waits(job: Job) -> Waits:
    """wait + transfer is the duration, to the ns."""
    made, offset = job.of(calls), job.of(clocks).offset_ns
    begin, end = made.begin - offset[made.place], made.end - offset[made.place]
    wait, awaited = np.full((2, len(begin)), -1)
    last, unknown = np.zeros(len(begin), bool), np.zeros(len(begin), np.int64)
    for rows in job.of(instances).members:
        wait[rows] = 0
        needed = _needed(made, rows, begin)
        if needed is not None:
            held = np.maximum(0, np.minimum(end[rows], begin[needed]) - begin[rows])
            wait[rows] = held
            awaited[rows[held > 0]] = made.place[needed]
            last[needed] = holds_all(made, rows)
        unknown[rows] = _unknown(job, rows, begin, wait)
    transfer = np.where(wait >= 0, made.dur - wait, -1)
    assert ((wait < 0) | ((transfer >= 0) & (wait + transfer == made.dur))).all()
    assert ((unknown >= 0) & (unknown <= np.maximum(transfer, 0))).all()
    return Waits(begin, end, wait, transfer, awaited, last, unknown)


def _needed(made: Calls, rows: Int64s, begin: Int64s) -> int | None:
    """The member without which the others cannot go on: the last to come; of a send and its recv the sender. None where
    only a root is needed, which torch does not name."""
    if holds_all(made, rows):
        return int(rows[np.argmax(begin[rows])])
    return sender(made, rows)


def _unknown(job: Job, rows: Int64s, begin: Int64s, wait: Int64s) -> Int64s:
    """Of these calls' transfers what may be waiting: until all are here, whoever is needed; all where one is not."""
    dur = job.of(calls).dur[rows]
    together = np.clip(begin[rows].max() - begin[rows], 0, dur) if all_here(job, rows) else dur
    return np.asarray(together - wait[rows], np.int64)


def all_here(job: Job, rows: Int64s) -> bool:
    """Whether each rank of the group is among these, or both of a send and its recv; where torch did not record which
    they are, whether the job is complete."""
    made = job.of(calls)
    if sender(made, rows) is not None:
        return True
    group = made.kinds[int(rows[0])].group
    return len(rows) == len(group.ranks) if group and group.ranks else not job.missing


def waiting(job: Job, place: int) -> Intervals:
    """When collectives of a rank waited for another one, by the clock of its trace."""
    made, known = job.of(calls), job.of(waits)
    mine = np.flatnonzero((made.place == place) & (known.wait > 0))
    begin = made.begin[mine] - job.ranks[place].profile.trace.base_ns
    return union(begin, begin + known.wait[mine])


def transferring(job: Job, place: int) -> Intervals:
    """When collectives of a rank are known to transfer, by the clock of its trace."""
    made, known = job.of(calls), job.of(waits)
    mine = np.flatnonzero((made.place == place) & (known.transferred > 0))
    end = made.end[mine] - job.ranks[place].profile.trace.base_ns
    return union(end - known.transferred[mine], end)


def blame(job: Job) -> Int64s:
    """How long each rank (row) waited for each (column), in ns; square, in the order of the job's ranks."""
    made, known = job.of(calls), job.of(waits)
    matrix = np.zeros((len(job.ranks),) * 2, np.int64)
    here = np.flatnonzero(known.awaited >= 0)
    np.add.at(matrix, (made.place[here], known.awaited[here]), known.wait[here])
    return matrix
