"""How long did each call of a collective wait for another rank, and how long did the transfer take?

A call waits until the last of its ranks has come, or until the rank has that it needs data of; the rest is transfer.
Both sum to its duration. A rank that was not read may have come later still: then the wait is a lower bound, and what
of the rest is transfer is unknown. A sender needs nobody, and may wait for room: until all have come that is unknown,
too, and so it is where a root is needed, which torch does not name.
"""

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import calls, holds_all_ranks, instances, senders
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import Mask, distinct, sums
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union

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
