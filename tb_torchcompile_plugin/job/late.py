"""Why does a rank come last? What it did between two collectives beyond what its peers did between the same two.

It is compared with one peer, the one in the middle, so that the causes sum to the excess. Waiting for a GPU that itself
waits for another rank is nobody's excess. Where the host was in time and its GPU was not, the work that was launched in
between is compared: the same kernels may run slower, or there are more of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.calls import calls, communication_rows
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import anchors, holds_all, instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import Waits, waiting, waits
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns
from tb_torchcompile_plugin.profile.model.culprits import Culprit, CulpritCause, culprits, culprits_of
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile

LateCause = Literal[CulpritCause, "slower_kernels", "more_work"]
GPU_CAUSES: tuple[LateCause, ...] = ("slower_kernels", "more_work")
WAITS: tuple[LateCause, ...] = ("synchronise", "memory_copy", "launch")  # for a GPU
_MORE_SHARE = 0.1  # of the excess in kernels of other grids, and all of it is: libraries' grids tell no sizes
_LEAST_NS = 20_000  # what ranks are apart anyway


class Blamed(NamedTuple):
    """cause, name: what it is; file, line: the user's line, "" and 0 where none is known."""

    cause: LateCause
    name: str
    file: str
    line: int


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
    """Of the collectives that hold all, in order of time; without those at which nobody was late to speak of."""
    made, times, known = job.of(calls), job.of(waits), job.of(instances)
    least = max(_LEAST_NS, 2 * (job.of(clocks).residual_ns_p95 or 0))
    between, lates = job.of(_since), []
    for number, rows in enumerate(known.members):
        if not holds_all(made, rows):
            continue
        last = int(rows[np.argmax(times.begin[rows])])
        peer = _peer(between, times, rows, last)
        if peer is not None and times.begin[last] - times.begin[peer] > least:
            lateness = int(times.begin[last] - times.begin[peer])
            lates.append(_one(job, between, last, peer, number, lateness))
    return lates


class _Since(NamedTuple):
    """What is compared of one call: its rank, from when to when (ns, on the clock of its trace), and after which
    instance; -1: from the first step on."""

    place: int
    begin: int
    end: int
    instance: int


def _since(job: Job) -> dict[int, _Since]:
    """By matched call from the launch of the one before it, on its rank, to its own; of those in the host lane."""
    made, instance = job.of(calls), job.of(instances).of_call
    order = np.lexsort((made.launch, made.place))
    since: dict[int, _Since] = {}
    lanes = [one.profile.of(host_lane) for one in job.ranks]
    ends = [int(lane.begin[-1]) + 1 if len(lane) else 0 for lane in lanes]
    before = {place: (begin, -1) for place, begin in enumerate(_first(job))}
    for row in order[(instance[order] >= 0) & (made.launch[order] >= 0)].tolist():
        place = int(made.place[row])
        launch = int(made.launch[row]) - job.ranks[place].profile.trace.base_ns
        begin, after = before[place]
        before[place] = launch, int(instance[row])
        if begin <= launch < ends[place]:
            since[row] = _Since(place, begin, launch, after)
    return since


def _first(job: Job) -> list[int]:
    """By rank when what can be compared begins: the first step that all have, or what was recorded."""
    shared = job.of(anchors)
    return [
        shared[place] - one.profile.trace.base_ns if shared else one.profile.trace.window()[0]
        for place, one in enumerate(job.ranks)
    ]


def _peer(between: dict[int, _Since], times: Waits, rows: Int64s, last: int) -> int | None:
    """The other member that came in the middle, of those that come from the same collective."""
    if last not in between:
        return None
    others = [
        row
        for row in rows.tolist()
        if row != last and row in between and between[row].instance == between[last].instance
    ]
    others.sort(key=lambda row: int(times.begin[row]))
    return others[len(others) // 2] if others else None


def _one(job: Job, between: dict[int, _Since], last: int, peer: int, number: int, lateness: int) -> Late:
    since, usual = between[last], between[peer]
    mine, others = (_host_parts(job, one) for one in (since, usual))
    parts = _difference(mine, others)
    worked = sum(ns for one, ns in parts.items() if one.cause not in WAITS)
    if worked < lateness // 2:
        gpu = _gpu_difference(*(_kernels(job, one) for one in (since, usual)))
        # A GPU that is behind stays so: of this lateness only a part is since the collective before.
        parts = gpu if sum(gpu.values()) >= min(lateness // 2, sum(parts.values())) else parts
    return Late(since.place, usual.place, number, since.begin, since.end, lateness, parts, dict(others))


def _difference(mine: Counter[Blamed], others: Counter[Blamed]) -> dict[Blamed, int]:
    """Whoever waits longer for a GPU is not ahead by that."""
    difference = {one: mine[one] - others[one] for one in dict.fromkeys((*mine, *others))}
    difference = {one: max(ns, 0) if one.cause in WAITS else ns for one, ns in difference.items()}
    return {one: ns for one, ns in sorted(difference.items(), key=lambda pair: -pair[1]) if ns}


def compared_steps(job: Job) -> int:
    """Of how many steps it is known why a rank is late, marked or not: of very many calls only those of the first ones
    are taken."""
    return max(one.profile.of(host_lane).steps for one in job.ranks)


class HostCosts(NamedTuple):
    """What the host lane was busy with, as columns: the pieces between its calls, the calls' own time, and their
    waiting, one part behind the other, each in order of time. begin, end (ns); code: place of the culprit in `blamed`.
    reach: when all that stands before, in its part, has ended; bounds: of the three parts."""

    begin: Int64s
    end: Int64s
    code: Int64s
    reach: Int64s
    blamed: list[Blamed]
    bounds: tuple[int, int, int, int]

    def window(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """What lies in a window, by place, and how much of each does."""
        parts = [np.arange(*self._inside(part, begin, end)) for part in pairwise(self.bounds)]
        rows = np.concatenate(parts)
        ns = np.minimum(self.end[rows], end) - np.maximum(self.begin[rows], begin)
        return rows, np.maximum(ns, 0)

    def _inside(self, part: tuple[int, int], begin: int, end: int) -> tuple[int, int]:
        first, last = part
        low = np.searchsorted(self.reach[first:last], begin, side="right")
        return first + int(low), first + max(int(low), int(np.searchsorted(self.begin[first:last], end)))

    def summed(self, rows: Int64s, ns: Int64s | npt.NDArray[np.float64]) -> dict[Blamed, float]:
        """By culprit; one may stand in the list twice, for pieces and for calls."""
        codes, code = np.unique(self.code[rows], return_inverse=True)
        sums: dict[Blamed, float] = defaultdict(float)
        for one, total in zip(codes.tolist(), np.bincount(code, ns, len(codes)).tolist()):
            sums[self.blamed[one]] += total
        return sums


def host_costs(profile: Profile) -> HostCosts:
    """Of the lane of a rank."""
    lane, pieces, own = profile.of(host_lane), profile.of(host_pieces), profile.of(model).own
    between, at = profile.of(culprits), culprits_of(profile, lane.row)
    blamed = [_blamed(one) for one in (*between.culprits, *at.culprits)]
    code = at.code + len(between.culprits)
    working = np.minimum(lane.begin + own, lane.end)
    waits = profile.of(waits_order)
    ends = pieces.end, working, lane.end[waits]
    count = len(pieces.point)
    return HostCosts(
        np.concatenate((pieces.begin, lane.begin, working[waits])),
        np.concatenate(ends),
        np.concatenate((between.code, code, code[waits])),
        np.concatenate([np.maximum.accumulate(one) for one in ends]),
        blamed,
        (0, count, count + len(lane), count + 2 * len(lane)),
    )


def waits_order(profile: Profile) -> Int64s:
    """The calls of the lane in the order in which they begin to wait."""
    lane, own = profile.of(host_lane), profile.of(model).own
    return np.argsort(np.minimum(lane.begin + own, lane.end), kind="stable")


def _blamed(culprit: Culprit) -> Blamed:
    """The key of a compiled graph is another one on each rank."""
    return Blamed(*(culprit._replace(name="") if culprit.cause == "graph" else culprit))


def _host_parts(job: Job, since: _Since) -> Counter[Blamed]:
    """What the launching threads did, without waiting for a GPU that waited for another rank."""
    costs = job.ranks[since.place].profile.of(host_costs)
    rows, ns = costs.window(since.begin, since.end)
    waits = rows >= costs.bounds[2]
    begin = np.maximum(costs.begin[rows[waits]], since.begin)
    end = np.minimum(costs.end[rows[waits]], since.end)
    held = covered_ns(job.of(waiting, since.place), begin, np.maximum(begin, end))
    ns[waits] -= np.minimum(ns[waits], held)
    return Counter({blamed: int(total) for blamed, total in costs.summed(rows, ns).items()})


def launched_between(profile: Profile, begin: int, end: int) -> slice:
    """Which work of a rank's queue was launched in a window (ns, on the clock of its trace)."""
    low, high = np.searchsorted(profile.of(_launched), (begin, end))
    return slice(int(low), int(high))


def _launched(profile: Profile) -> Int64s:
    """When each piece of work was launched; ascending, as the queue is in the order of its launches."""
    return profile.of(host_lane).begin[profile.of(gpu_queue).point]


def computes(profile: Profile) -> npt.NDArray[np.bool_]:
    """Which work of a rank's queue is no collective."""
    return ~np.isin(profile.of(gpu_queue).row, profile.of(communication_rows))


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


def _kernels(job: Job, since: _Since) -> _Kernels:
    """What was launched, but for collectives."""
    profile = job.ranks[since.place].profile
    trace, queue = profile.trace, profile.of(gpu_queue)
    here = launched_between(profile, since.begin, since.end)
    mine = np.flatnonzero(profile.of(computes)[here]) + here.start
    grids = [*(trace.texts.get("grid") or ()), ""]
    sums: _Kernels = {}
    rows = queue.row[mine]
    grid = codes_of(trace, "grid", rows)
    for row, code, ns in zip(rows.tolist(), grid.tolist(), queue.dur[mine].tolist()):
        key = trace.names[trace.name[row]], grids[code]
        count, total = sums.get(key, (0, 0))
        sums[key] = count + 1, total + ns
    return sums
