"""Why does a rank come last? What it did between two collectives beyond what its peers did between the same two.

It is compared with one peer, the one in the middle, so that the causes sum to the excess. Waiting for a GPU that itself
waits for another rank is nobody's excess. Where the host was in time and its GPU was not, the work that was launched in
between is compared: the same kernels may run slower, or there are more of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.host_costs import Blamed, LateCause
from tb_torchcompile_plugin.job.digest.rank_digest import cuts_of, host_of_rank, kernels_of
from tb_torchcompile_plugin.job.instances import anchors, calls, holding, instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import needed_calls, waiting, waits
from tb_torchcompile_plugin.profile.columns import sums
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns

GPU_CAUSES: tuple[LateCause, ...] = ("slower_kernels", "more_work")
WAITS: tuple[LateCause, ...] = ("synchronise", "memory_copy", "launch")  # for a GPU
_MORE_SHARE = 0.1  # of the excess in kernels of other grids, and all of it is: libraries' grids tell no sizes
_LEAST_NS = 20_000  # what ranks are apart anyway
_MOST_RANKS = 64  # of which it is told why they are late
_NEVER = -(1 << 62)


class Late(NamedTuple):
    """One collective at which a rank was last. place: the rank; peer: the one that it is compared with. begin, end:
    between which two launches, or from the first step on (ns, on the clock of its trace). lateness: how much later than
    its peer it came. parts: the excess by cause, which they sum to; usual: how long each took the peer (ns)."""

    place: int
    peer: int
    instance: int
    begin: int
    end: int
    lateness: int
    parts: dict[Blamed, int]
    usual: dict[Blamed, int]

    @property
    def excess(self) -> int:
        return sum(self.parts.values())


def late(job: Job) -> list[Late]:
    """Of the collectives that hold all, in order of time; without those at which nobody was late to speak of. Of very
    many ranks only those that are late most."""
    known = job.of(lateness)
    mine = np.flatnonzero(np.isin(known.place, np.argsort(-known.by_rank, kind="stable")[:_MOST_RANKS]))
    lates: dict[int, list[Late]] = defaultdict(list)
    for number in mine.tolist():
        one = _one(job, known, number, lates[int(known.place[number])])
        lates[one.place].append(one)
    return sorted((one for ones in lates.values() for one in ones), key=lambda one: one.instance)


class Lateness(NamedTuple):
    """Instances at which a rank came later than its peers, as columns. place: the rank; last, peer: its call, and that
    of the one that came in the middle; ns: how much later. by_group: whether both are compared from the last collective
    of the same group on. by_rank: the sum of each."""

    instance: Int64s
    place: Int64s
    last: Int64s
    peer: Int64s
    ns: Int64s
    by_group: npt.NDArray[np.bool_]
    by_rank: Int64s


def lateness(job: Job) -> Lateness:
    """In order of time."""
    made, begin, last = job.of(calls), job.of(waits).begin, job.of(needed_calls)
    least = max(_LEAST_NS, 2 * (job.of(clocks).residual_ns_p95 or 0))
    near, far = (_peers(job, last, by_group) for by_group in (False, True))
    peer = np.where(near >= 0, near, far)
    ns = np.where(peer >= 0, begin[last] - begin[peer], 0) if len(begin) else peer
    late_ = np.flatnonzero(ns > least)
    place = made.place[last[late_]]
    total = sums(place, ns[late_], len(job.digests))
    return Lateness(late_, place, last[late_], peer[late_], ns[late_], near[late_] < 0, total)


def late_there(job: Job, row: int, peer: int, ns: int) -> Late | None:
    """The same of any call (place in `calls`) beside another one; None where it is not known what their hosts did."""
    between = job.of(_since, False)
    if not (between.known[row] and between.known[peer]):
        return None
    windows = between.window(np.int64(row)), between.window(np.int64(peer))
    return _beside(job, *windows, int(job.of(instances).of_call[row]), ns, [])


class _Since(NamedTuple):
    """What is compared of each call, as columns: its rank, from when to when (ns, on the clock of its trace), and after
    which instance; -1: from the first step on. known: whether it can be compared at all."""

    place: Int64s
    begin: Int64s
    end: Int64s
    instance: Int64s
    known: npt.NDArray[np.bool_]

    def window(self, row: np.int64) -> tuple[int, int, int]:
        """Place of the rank, begin and end."""
        return int(self.place[row]), int(self.begin[row]), int(self.end[row])


def _since(job: Job, by_group: bool) -> _Since:
    """Of each matched call from the launch of the one before it, on its rank, to its own; of those in the host lane.
    by_group: from the one before it of its group."""
    made, instance = job.of(calls), job.of(instances).of_call
    group = made.groups() if by_group else np.zeros_like(made.place)
    order = np.lexsort((made.launch, group, made.place))
    rows = order[(instance[order] >= 0) & (made.launch[order] >= 0) & (group[order] >= 0)]
    base = np.array([one.base_ns for one in job.digests], np.int64)
    place, launch = made.place[rows], made.launch[rows] - base[made.place[rows]]
    is_first = (np.diff(place, prepend=-1) > 0) | (np.diff(group[rows], prepend=-1) != 0)
    begin = np.where(is_first, np.array(_first(job), np.int64)[place], np.roll(launch, 1))
    columns = np.full((3, len(made.place)), -1)
    columns[:, rows] = begin, launch, np.where(is_first, -1, np.roll(instance[rows], 1))
    known = np.zeros(len(made.place), bool)
    known[rows] = (begin <= launch) & (launch <= np.array(_reach(job), np.int64)[place])
    return _Since(made.place, columns[0], columns[1], columns[2], known)


def _reach(job: Job) -> list[int]:
    """By rank until when it is known what its host did."""
    return [int(one.of(cuts_of)[-1]) if len(one.of(cuts_of)) else _NEVER for one in job.digests]


def _first(job: Job) -> list[int]:
    """By rank when what can be compared begins: the first step that all have, or what was recorded."""
    shared = job.of(anchors)
    return [
        shared[place] - one.base_ns if shared else int(one.message.begin_ns)
        for place, one in enumerate(job.digests)
    ]


def _peers(job: Job, last: Int64s, by_group: bool) -> Int64s:
    """By instance the other member that came in the middle, of those that come from the same collective as the last;
    -1 for none, and where one need not wait for all."""
    known, between, begin = job.of(instances), job.of(_since, by_group), job.of(waits).begin
    rows, latest = known.rows, last[known.number]
    same = between.known[rows] & between.known[latest] & (between.instance[rows] == between.instance[latest])
    mine = np.flatnonzero(same & (rows != latest) & job.of(holding)[known.number])
    mine = mine[np.lexsort((rows[mine], begin[rows[mine]], known.number[mine]))]
    count = np.bincount(known.number[mine], minlength=len(known))
    middle = np.append(rows[mine], -1)[np.minimum(np.cumsum(count) - count + count // 2, len(mine))]
    return np.where(count > 0, middle, -1)


def _one(job: Job, known: Lateness, number: int, before: list[Late]) -> Late:
    between = job.of(_since, bool(known.by_group[number]))
    windows = between.window(known.last[number]), between.window(known.peer[number])
    return _beside(job, *windows, int(known.instance[number]), int(known.ns[number]), before)


_Window = tuple[int, int, int]  # place of a rank, begin and end


def _beside(job: Job, since: _Window, usual: _Window, instance: int, ns: int, before: list[Late]) -> Late:
    """before: what was already told of this rank."""
    mine, others = (_host_parts(job, *one) for one in (since, usual))
    for one in before:
        # It waited for this in the collectives of another group.
        if since[1] <= one.begin and one.end <= since[2]:
            mine.subtract(one.parts)
    parts = _difference(mine, others)
    worked = sum(ns for one, ns in parts.items() if one.cause not in WAITS)
    if worked < ns // 2:
        gpu = _gpu_difference(*(_kernels(job, *one) for one in (since, usual)))
        # A GPU that is behind stays so: of this lateness only a part is since the collective before.
        parts = gpu if sum(gpu.values()) >= min(ns // 2, sum(parts.values())) else parts
    return Late(since[0], usual[0], instance, *since[1:], ns, parts, dict(others))


def _difference(mine: Counter[Blamed], others: Counter[Blamed]) -> dict[Blamed, int]:
    """Whoever waits longer for a GPU is not ahead by that."""
    difference = {one: mine[one] - others[one] for one in dict.fromkeys((*mine, *others))}
    difference = {one: max(ns, 0) if one.cause in WAITS else ns for one, ns in difference.items()}
    return {one: ns for one, ns in sorted(difference.items(), key=lambda pair: -pair[1]) if ns}


def compared_steps(job: Job) -> int:
    """Of how many steps it is known why a rank is late, marked or not: of very many calls only those of the first ones
    are taken."""
    return max(one.host_steps for one in job.digests)


def _host_parts(job: Job, place: int, begin: int, end: int) -> Counter[Blamed]:
    """What the launching threads did, without waiting for a GPU that waited for another rank."""
    costs = job.digests[place].of(host_of_rank)
    stretches = np.searchsorted(job.digests[place].of(cuts_of), (begin, end))
    mine = slice(*np.searchsorted(costs.stretch, stretches).tolist())
    from_, until = np.maximum(costs.wait_begin, begin), np.minimum(costs.wait_end, end)
    waits = np.flatnonzero(until > from_)
    held = covered_ns(job.of(waiting, place), from_[waits], until[waits])
    code = np.concatenate((costs.code[mine], costs.wait_code[waits]))
    ns = np.concatenate((costs.ns[mine], (until - from_)[waits] - held))
    codes, at = np.unique(code, return_inverse=True)
    return Counter(
        {costs.blamed[one]: total for one, total in zip(codes.tolist(), sums(at, ns, len(codes)).tolist())}
    )


_Kernels = dict[tuple[str, str], tuple[int, int]]  # (name, grid) → how many, and how long in all (ns)


def _gpu_difference(mine: _Kernels, others: _Kernels) -> dict[Blamed, int]:
    """Kernel by kernel: are the same ones slower, or are there more of them, or larger ones?"""
    slower, more = 0, Counter[str]()
    for key in dict.fromkeys((*mine, *others)):
        (count, ns), (usual_count, usual_ns) = mine.get(key, (0, 0)), others.get(key, (0, 0))
        if count == usual_count:
            slower += ns - usual_ns
        else:
            more[key[0]] += ns - usual_ns
    total = slower + sum(more.values())
    if more and sum(more.values()) < _MORE_SHARE * total:
        more = Counter()
    if not more:
        return {Blamed("slower_kernels", "", "", 0): total} if total else {}
    parts = {Blamed("more_work", max(more, key=lambda name: more[name]), "", 0): total}
    return {one: ns for one, ns in parts.items() if ns}


def _kernels(job: Job, place: int, begin: int, end: int) -> _Kernels:
    """What was launched, but for collectives."""
    parts = job.digests[place].of(kernels_of)
    stretches = np.searchsorted(job.digests[place].of(cuts_of), (begin, end))
    mine = slice(*np.searchsorted(parts.stretch, stretches).tolist())
    codes, at = np.unique(parts.kernel[mine], return_inverse=True)
    columns = (sums(at, column[mine], len(codes)).tolist() for column in (parts.launches, parts.ns))
    return {parts.kernels[code]: (count, ns) for code, count, ns in zip(codes.tolist(), *columns)}
