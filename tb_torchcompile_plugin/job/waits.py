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

from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import calls, holding, instances, senders
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import distinct, sums
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union

_NEVER = np.iinfo(np.int64).min


class Waits(NamedTuple):
    """Columns of the calls (ns). begin, end: on the common clock. wait, transfer: -1 for calls of no instance.
    awaited: the place of the rank that it waited for, -1 where it did not wait. last: whether all others waited.
    unknown: of the transfer what may be waiting, at its begin; transferred: what is known to be transfer; both 0 for
    calls of no instance."""

    begin: Int64s
    end: Int64s
    wait: Int64s
    transfer: Int64s
    awaited: Int64s
    last: npt.NDArray[np.bool_]
    unknown: Int64s
    transferred: Int64s


def waits(job: Job) -> Waits:
    """wait + transfer is the duration, to the ns."""
    made, offset, known = job.of(calls), job.of(clocks).offset_ns, job.of(instances)
    begin, end = made.begin - offset[made.place], made.end - offset[made.place]
    wait, awaited = np.full((2, len(begin)), -1)
    last, unknown = np.zeros(len(begin), bool), np.zeros(len(begin), np.int64)
    rows, needed = known.rows, job.of(needed_calls)
    until = np.where(needed >= 0, begin[needed] if len(begin) else needed, _NEVER)[known.number]
    wait[rows] = np.maximum(np.minimum(end[rows], until), begin[rows]) - begin[rows]
    waited = wait[rows] > 0
    awaited[rows[waited]] = made.place[needed[known.number[waited]]]
    last[needed[needed >= 0]] = job.of(holding)[needed >= 0]
    unknown[rows] = _together(job, begin) - wait[rows]
    transfer = np.where(wait >= 0, made.dur - wait, -1)
    assert ((wait < 0) | ((transfer >= 0) & (wait + transfer == made.dur))).all()
    assert ((unknown >= 0) & (unknown <= np.maximum(transfer, 0))).all()
    return Waits(begin, end, wait, transfer, awaited, last, unknown, np.maximum(transfer, 0) - unknown)


def needed_calls(job: Job) -> Int64s:
    """By instance the member without which the others cannot go on: the last to come; of a send and its recv the
    sender. -1 where only a root is needed, which torch does not name."""
    made, offset, known = job.of(calls), job.of(clocks).offset_ns, job.of(instances)
    rows = known.rows
    order = np.lexsort((-rows, (made.begin - offset[made.place])[rows], known.number))
    latest = rows[order][known.first + known.sizes - 1]
    return np.where(job.of(holding), latest, job.of(senders))


def _together(job: Job, begin: Int64s) -> Int64s:
    """Of the instances' calls for how long not all were there: until then it is not known who waits, whoever is needed;
    all of it where one is not here."""
    made, known = job.of(calls), job.of(instances)
    if not len(known):
        return known.rows
    dur, latest = made.dur[known.rows], np.maximum.reduceat(begin[known.rows], known.first)
    apart = np.clip(latest[known.number] - begin[known.rows], 0, dur)
    return np.where(job.of(all_here)[known.number], apart, dur)


def all_here(job: Job) -> npt.NDArray[np.bool_]:
    """By instance whether each rank of the group is there, or both of a send and its recv; where torch did not record
    which they are, whether the job is complete."""
    made, known = job.of(calls), job.of(instances)
    size = np.array([*(kind.group_size for kind in made.kinds), 0])[made.kind[known.rows[known.first]]]
    complete = np.where(size > 0, known.sizes == size, not job.missing)
    return np.asarray((job.of(senders) >= 0) | complete)


def waiting(job: Job, place: int) -> Intervals:
    """When collectives of a rank waited for another one, by the clock of its trace."""
    mine = job.of(calls).of_rank(place)
    wait = job.of(waits).wait[mine]
    begin = job.of(calls).begin[mine][wait > 0] - job.digests[place].base_ns
    return union(begin, begin + wait[wait > 0])


class Blame(NamedTuple):
    """Who waited for whom, as columns: the places of both ranks, and how long in all (ns)."""

    waiting: Int64s
    awaited: Int64s
    ns: Int64s

    def caused_by(self, ranks: int) -> Int64s:
        """By place how long the others waited for it."""
        return sums(self.awaited, self.ns, ranks)

    def of(self, place: int) -> Int64s:
        """Rows of one rank that waited, most first."""
        mine = np.flatnonzero(self.waiting == place)
        return mine[np.argsort(-self.ns[mine], kind="stable")]


def blame(job: Job) -> Blame:
    """In order of the ranks."""
    made, known = job.of(calls), job.of(waits)
    here = np.flatnonzero(known.awaited >= 0)
    pairs, pair = distinct(made.place[here], known.awaited[here])
    waiting_, awaited = pairs
    return Blame(waiting_, awaited, sums(pair, known.wait[here], pairs.shape[1]))
