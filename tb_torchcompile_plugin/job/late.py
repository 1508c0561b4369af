"""Why does a rank arrive late? What it did between two collectives beyond what its peers did between the same two.

Several ranks may be late at one collective, and all of them are compared. Each is compared with one peer, the one in
the middle, so that the causes sum to the excess. Waiting for a GPU that
itself waits for another rank is nobody's excess. Where the host was in time and its GPU was not, the work that was
launched in between is compared: the same kernels may run slower, or there are more of them.
"""

from collections import Counter, defaultdict
from math import ceil
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_digest import details_of
from tb_torchcompile_plugin.job.instances import (
    calls,
    clocks,
    first_shared_steps,
    holds_all_ranks,
    instances,
    needed_calls,
    waiting,
    waits,
)
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import Int64s, Mask, covered_ns, sums
from tb_torchcompile_plugin.profile.model.attribution import Attribution, HostCauseKind
from tb_torchcompile_plugin.reader.arrays import grouped

GPU_CAUSES: tuple[HostCauseKind, ...] = ("slower_kernels", "more_work")
WAITS: tuple[HostCauseKind, ...] = ("synchronise", "memory_copy", "launch")  # for a GPU
# If kernels of other grids have this share of the excess, all of it is more work: libraries' grids do not show sizes.
# Chosen by eye on the recordings.
_MORE_WORK_SHARE = 0.1
_LEAST_NS = 20_000  # ranks are apart by as much in any job; observed on the recordings
_MOST_RANKS = 512  # whose lateness is explained; it bounds the time of a large job
_NEVER = -(1 << 62)  # ns, before all times
# Where more than half of the ranks are late together, the rank in the middle is late itself, and the early ones are
# the peers. Fewer than three of them, or than a quarter, may do less by design: they are no peers. Lateness has two
# clusters if half of the distance between their middles is empty, as ranks that are late by less are not of a group of
# late ranks either. Chosen by eye on planted jobs.
_FEWEST_EARLY, _LEAST_EARLY, _APART = 3, 0.25, 0.5


class Late(NamedTuple):
    """One collective at which a rank was late."""

    rank_index: int  # index of the rank
    peer: int  # index of the rank that it is compared with
    instance: int
    begin: int  # between two launches, or from the first step on (ns, on the clock of its trace)
    end: int
    lateness: int  # how much later than its peer it came
    parts: dict[Attribution, int]  # the excess by cause (ns)
    usual: dict[Attribution, int]  # how long each took the peer (ns)
    together: int  # how many ranks were late at it

    @property
    def excess(self) -> int:
        """How much more it did than its peer."""
        return sum(self.parts.values())


def late(job: Job) -> list[Late]:
    """Return where ranks were late at collectives that hold all, in order of time.

    Of very many ranks only those that are late most. Of ranks that come from collectives of other groups only those
    whose own doing is at least half of their lateness: the others waited there.
    """
    lateness_ = job.of(lateness)
    by_rank = sums(lateness_.rank_index, lateness_.ns, len(job.digests))
    latest = np.argsort(-by_rank, kind="stable")[:_MOST_RANKS]
    together = np.bincount(lateness_.instance, minlength=1)[lateness_.instance]
    lates: dict[int, list[Late]] = defaultdict(list)
    for row in np.flatnonzero(np.isin(lateness_.rank_index, latest)).tolist():
        since, before = job.of(_since, bool(lateness_.by_group[row])), lates[int(lateness_.rank_index[row])]
        late_ = _compared(
            job, since, lateness_.call[row], lateness_.peer[row], int(lateness_.ns[row]), before
        )
        if not lateness_.by_group[row] or 2 * late_.excess >= late_.lateness:
            before.append(late_._replace(together=int(together[row])))
    return sorted((row for ones in lates.values() for row in ones), key=lambda row: row.instance)


def late_by_rank(job: Job) -> dict[int, list[Late]]:
    """Return the same by the index of the rank."""
    return grouped(job.of(late), lambda row: row.rank_index)


class Lateness(NamedTuple):
    """Calls that came later than those of the rank's peers, as columns."""

    instance: Int64s
    rank_index: Int64s  # index of the rank
    call: Int64s
    peer: Int64s  # the call of the rank that came in the middle
    ns: Int64s  # how much later
    by_group: Mask  # whether both are compared from the last collective of the same group on


def lateness(job: Job) -> Lateness:
    """Return where ranks came late, in order of time."""
    least = max(_LEAST_NS, 2 * (job.of(clocks).residual_ns_p95 or 0))
    ranks = len(job.digests)
    later = _later(job, np.ones(ranks, bool))
    early = early_ranks(sums(later.rank_index, later.ns, ranks))
    later = later if early.all() else _later(job, early)
    return Lateness._make(column[later.ns > least] for column in later)


def _later(job: Job, early: Mask) -> Lateness:
    """Return how much later than its peer, an early rank, each call came, or earlier."""
    begin, instances_ = job.of(waits).begin, job.of(instances)
    (near, is_near), (far, is_far) = (_peers(job, early, by_group) for by_group in (False, True))
    # Ranks of one host or shard that come from a collective of their own may all be late.
    are_few = 2 * np.bincount(instances_.number[is_near], minlength=len(instances_)) <= instances_.sizes
    is_by_group = (near < 0) | (are_few & (far >= 0))
    call, by_group = instances_.rows, is_by_group[instances_.number]
    peer = np.where(is_by_group, far, near)[instances_.number]
    is_compared = np.where(by_group, is_far, is_near) & (peer >= 0)
    ns = np.where(is_compared, begin[call] - begin[peer], 0)
    return Lateness(instances_.number, job.of(calls).rank_index[call], call, peer, ns, by_group)


def early_ranks(later: Int64s) -> Mask:
    """Return with which ranks to compare: all, or the early ones if more than half are late together.

    later: by how much each rank is later than the one in the middle.
    """
    order, early = np.argsort(later, kind="stable"), np.ones(len(later), bool)
    ns = later[order]
    counts = np.arange(max(_FEWEST_EARLY, ceil(_LEAST_EARLY * len(ns))), (len(ns) + 1) // 2)
    if len(counts):
        empty = ns[counts] - ns[counts - 1]
        count = int(counts[empty.argmax()])
        apart = np.median(ns[count:]) - np.median(ns[:count])
        early[order[count:]] = empty.max() <= max(_APART * apart, _LEAST_NS)
    return early


def _peers(job: Job, early: Mask, by_group: bool) -> tuple[Int64s, Mask]:
    """Return by instance the call in the middle, without the last, of those that come from the same collective as it.

    Of the early ranks, where any of them is there. -1 for none, and where one need not wait for all. Also return which
    of the instances' rows come from there.
    """
    instances_, since, begin = job.of(instances), job.of(_since, by_group), job.of(waits).begin
    rows, latest = instances_.rows, job.of(needed_calls)[instances_.number]
    is_same = (
        since.comparable[rows] & since.comparable[latest] & (since.instance[rows] == since.instance[latest])
    )
    peers = np.flatnonzero(is_same & (rows != latest) & job.of(holds_all_ranks)[instances_.number])
    is_early = early[since.rank_index[rows]]
    peers = peers[np.lexsort((rows[peers], begin[rows[peers]], ~is_early[peers], instances_.number[peers]))]
    number, are_early = instances_.number[peers], is_early[peers]
    count = np.bincount(number, minlength=len(instances_))
    usual = np.bincount(number[are_early], minlength=len(instances_))
    offset = np.where(usual > 0, usual, count) // 2
    middle = np.append(rows[peers], -1)[np.minimum(np.cumsum(count) - count + offset, len(peers))]
    return np.where(count > 0, middle, -1), is_same


class _Since(NamedTuple):
    """What is compared of each call, as columns: from when to when (ns, on the clock of its trace)."""

    rank_index: Int64s  # index of the rank
    begin: Int64s
    end: Int64s
    instance: Int64s  # after which; -1: from the first step on
    comparable: Mask  # whether it can be compared at all


def _since(job: Job, by_group: bool) -> _Since:
    """Return for each matched call from the launch of the one before it, on its rank, to its own launch.

    by_group: from the one before it of its group.
    """
    calls_, instance = job.of(calls), job.of(instances).of_call
    group = calls_.groups() if by_group else np.zeros_like(calls_.rank_index)
    order = np.lexsort((calls_.launch, group, calls_.rank_index))
    rows = order[(instance[order] >= 0) & (calls_.launch[order] >= 0) & (group[order] >= 0)]
    base = np.array([digest.base_ns for digest in job.digests], np.int64)
    rank_index, launch = calls_.rank_index[rows], calls_.launch[rows] - base[calls_.rank_index[rows]]
    is_first = (np.diff(rank_index, prepend=-1) > 0) | (np.diff(group[rows], prepend=-1) != 0)
    # What can be compared begins with the first step that all have, or with the recording.
    first = np.array([int(digest.columns.header.begin_ns) for digest in job.digests], np.int64)
    if shared := job.of(first_shared_steps):
        first = np.array(shared, np.int64) - base
    begin = np.where(is_first, first[rank_index], np.roll(launch, 1))
    columns = np.full((3, len(calls_.rank_index)), -1)
    columns[:, rows] = begin, launch, np.where(is_first, -1, np.roll(instance[rows], 1))
    # By rank until when it is known what its host did.
    reach = np.array([digest.columns.cuts.max(initial=_NEVER) for digest in job.digests], np.int64)
    comparable = np.zeros(len(calls_.rank_index), bool)
    comparable[rows] = (begin <= launch) & (launch <= reach[rank_index])
    return _Since(calls_.rank_index, columns[0], columns[1], columns[2], comparable)


def _compared(job: Job, since: _Since, row: int, peer: int, ns: int, before: list[Late]) -> Late:
    """Compare two calls; before: what was found of the late rank before."""
    windows = [(int(since.rank_index[at]), int(since.begin[at]), int(since.end[at])) for at in (row, peer)]
    own, others = (_host_parts(job, *window) for window in windows)
    (rank_index, begin, end), (peer_index, _, _) = windows
    for earlier in before:
        # It waited for this in the collectives of another group.
        if begin <= earlier.begin and earlier.end <= end:
            own.subtract(earlier.parts)
        elif max(begin, earlier.begin) < min(end, earlier.end):
            shared = _host_parts(job, rank_index, max(begin, earlier.begin), min(end, earlier.end))
            own.subtract({blamed: min(max(ns, 0), shared[blamed]) for blamed, ns in earlier.parts.items()})
    # The excess by cause, most first. Whoever waits longer for a GPU is not ahead by that.
    excess = {blamed: own[blamed] - others[blamed] for blamed in dict.fromkeys((*own, *others))}
    excess |= {blamed: max(ns, 0) for blamed, ns in excess.items() if blamed.cause in WAITS}
    parts = {blamed: ns for blamed, ns in sorted(excess.items(), key=lambda pair: -pair[1]) if ns}
    worked = sum(ns for blamed, ns in parts.items() if blamed.cause not in WAITS)
    if worked < ns // 2:
        gpu = _gpu_difference(*(_kernels(job, *window) for window in windows))
        # A GPU that is behind stays so: of this lateness only a part is since the collective before.
        parts = gpu if sum(gpu.values()) >= min(ns // 2, sum(parts.values())) else parts
    instance = int(job.of(instances).of_call[row])
    return Late(rank_index, peer_index, instance, begin, end, ns, parts, dict(others), 1)


def compared_steps(job: Job) -> int:
    """Return of how many steps it is known why a rank is late; of very many calls only of the first steps."""
    return max(digest.host_steps for digest in job.digests)


def _host_parts(job: Job, rank_index: int, begin: int, end: int) -> Counter[Attribution]:
    """Return what the launching threads did, without waiting for a GPU that waited for another rank."""
    costs = job.digests[rank_index].of(details_of).host
    rows = _rows_between(job, rank_index, costs.stretch, begin, end)
    from_, until = np.maximum(costs.wait_begin, begin), np.minimum(costs.wait_end, end)
    waits_ = np.flatnonzero(until > from_)
    waiting_ns = covered_ns(job.of(waiting, rank_index), from_[waits_], until[waits_])
    code = np.concatenate((costs.code[rows], costs.wait_code[waits_]))
    ns = np.concatenate((costs.ns[rows], (until - from_)[waits_] - waiting_ns))
    codes, key = np.unique(code, return_inverse=True)
    total = sums(key, ns, len(codes)).tolist()
    return Counter({costs.blamed[code]: ns for code, ns in zip(codes.tolist(), total)})


_Kernels = dict[tuple[str, str], tuple[int, int]]  # (name, grid) → how many, and how long in all (ns)


def _kernels(job: Job, rank_index: int, begin: int, end: int) -> _Kernels:
    """Return what was launched, except collectives."""
    parts = job.digests[rank_index].of(details_of).kernels
    rows = _rows_between(job, rank_index, parts.stretch, begin, end)
    codes, key = np.unique(parts.kernel[rows], return_inverse=True)
    columns = (sums(key, column[rows], len(codes)).tolist() for column in (parts.launches, parts.ns))
    return {parts.kernels[code]: (count, ns) for code, count, ns in zip(codes.tolist(), *columns)}


def _rows_between(job: Job, rank_index: int, stretch: Int64s, begin: int, end: int) -> slice:
    """Return the rows, which ascend by stretch, of the stretches between two cuts."""
    stretches = np.searchsorted(job.digests[rank_index].columns.cuts, (begin, end))
    return slice(*np.searchsorted(stretch, stretches).tolist())


def _gpu_difference(own: _Kernels, others: _Kernels) -> dict[Attribution, int]:
    """Compare kernel by kernel: the same ones may be slower, or there are more of them, or larger ones."""
    slower, more = 0, Counter[str]()
    for key in dict.fromkeys((*own, *others)):
        (count, ns), (usual_count, usual_ns) = own.get(key, (0, 0)), others.get(key, (0, 0))
        if count == usual_count:
            slower += ns - usual_ns
        else:
            more[key[0]] += ns - usual_ns
    total, blamed = slower + sum(more.values()), Attribution("slower_kernels", "", "", 0)
    if more and sum(more.values()) >= _MORE_WORK_SHARE * total:
        blamed = Attribution("more_work", max(more, key=more.__getitem__), "", 0)
    return {blamed: total} if total else {}
