"""Why does a rank come last? What it did between two collectives beyond what its peers did between the same two.

It is compared with one peer, the one in the middle, so that the causes sum to the excess. Where the host was in time
and its GPU was not, the GPU's work is compared: the same kernels may run slower, or there are more of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import Calls, calls
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import anchors, instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import Waits, waiting, waits
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns
from tb_torchcompile_plugin.profile.model.culprits import CulpritCause, culprits, culprits_of
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL

LateCause = Literal[CulpritCause, "slower_kernels", "more_work"]
GPU_CAUSES: tuple[LateCause, ...] = ("slower_kernels", "more_work")
_WAITS: tuple[CulpritCause, ...] = ("synchronise", "memory_copy", "communication", "launch")
_LEAST_NS = 20_000  # what ranks are apart anyway


class Blamed(NamedTuple):
    """cause, name: what it is; file, line: the user's line, "" and 0 where none is known."""

    cause: LateCause
    name: str
    file: str
    line: int


class Late(NamedTuple):
    """One collective at which a rank was last. place: the rank; peer: the one that it is compared with. begin, end:
    between which two launches (ns, on the clock of its trace); work_begin, work_end: between which two kernels.
    The first collective comes from the begin of the first common step. lateness: how much later than its peer it came.
    parts: the excess by cause, which they sum to (ns)."""

    place: int
    peer: int
    instance: int
    begin: int
    end: int
    work_begin: int
    work_end: int
    lateness: int
    parts: dict[Blamed, int]

    @property
    def excess(self) -> int:
        return sum(self.parts.values())


def late(job: Job) -> list[Late]:
    """Of the collectives that hold all, in order of time; without those at which nobody was late to speak of."""
    made, times, known = job.of(calls), job.of(waits), job.of(instances)
    least = max(_LEAST_NS, 2 * (job.of(clocks).residual_ns_p95 or 0))
    before = _before(job)
    lates = []
    for number, rows in enumerate(known.members):
        if made.kinds[int(rows[0])].operation not in HOLD_ALL:
            continue
        last = int(rows[np.argmax(times.begin[rows])])
        peer = _peer(times, before, rows, last)
        if peer is not None and times.begin[last] - times.begin[peer] > least:
            lates.append(_one(job, made, times, before, last, peer, number))
    return lates


class _From(NamedTuple):
    """Where a rank comes from. instance: of the collective before, -1 for the begin of the first common step. launch,
    end: when that was on the host, and on the GPU (ns, Unix time)."""

    instance: int
    launch: int
    end: int


_Before = dict[int, _From]


def _before(job: Job) -> _Before:
    """By call the matched one that its rank launched before it."""
    made, instance, begin = job.of(calls), job.of(instances).of_call, job.of(anchors)
    order = np.lexsort((made.launch, made.place))
    order = order[(instance[order] >= 0) & (made.launch[order] >= 0)]
    before: _Before = {}
    for row, last in zip(order.tolist(), [-1, *order.tolist()]):
        place = int(made.place[row])
        if last >= 0 and made.place[last] == place:
            before[row] = _From(int(instance[last]), int(made.launch[last]), int(made.end[last]))
        elif begin and made.launch[row] >= begin[place]:
            before[row] = _From(-1, begin[place], begin[place])
    return before


def _peer(times: Waits, before: _Before, rows: Int64s, last: int) -> int | None:
    """The other member that came in the middle, of those that come from the same collective."""
    if last not in before:
        return None
    others = [
        row
        for row in rows.tolist()
        if row != last and row in before and before[row].instance == before[last].instance
    ]
    others.sort(key=lambda row: int(times.begin[row]))
    return others[len(others) // 2] if others else None


def _one(job: Job, made: Calls, times: Waits, before: _Before, last: int, peer: int, number: int) -> Late:
    lateness = int(times.begin[last] - times.begin[peer])
    host = _difference(*(_host_parts(job, made, before[row], row) for row in (last, peer)))
    parts, excess = host, sum(host.values())
    waited = sum(ns for one, ns in host.items() if one.cause in _WAITS)
    if excess - max(waited, 0) < lateness // 2:
        gpu = _gpu_difference(job, made, before, last, peer)
        if sum(gpu.values()) >= lateness // 2:
            parts = gpu
    base = job.ranks[int(made.place[last])].profile.trace.base_ns
    return Late(
        place=int(made.place[last]),
        peer=int(made.place[peer]),
        instance=number,
        begin=before[last].launch - base,
        end=int(made.launch[last]) - base,
        work_begin=before[last].end - base,
        work_end=int(made.begin[last]) - base,
        lateness=lateness,
        parts=parts,
    )


def _difference(mine: Counter[Blamed], others: Counter[Blamed]) -> dict[Blamed, int]:
    difference = {one: mine[one] - others[one] for one in {*mine, *others}}
    return {one: ns for one, ns in sorted(difference.items(), key=lambda pair: -pair[1]) if ns}


class HostCosts(NamedTuple):
    """What the host lane was busy with, piece by piece: begin, end (ns) and the place of the culprit in the list."""

    begin: Int64s
    end: Int64s
    code: Int64s
    blamed: list[Blamed]


def host_costs(profile: Profile) -> HostCosts:
    """The pieces between the calls of the lane, and the calls."""
    lane, pieces = profile.of(host_lane), profile.of(host_pieces)
    between, at = profile.of(culprits), culprits_of(profile, lane.row)
    blamed = [Blamed(*one) for one in (*between.culprits, *at.culprits)]
    return HostCosts(
        np.concatenate((pieces.begin, lane.begin)),
        np.concatenate((pieces.end, lane.end)),
        np.concatenate((between.code, at.code + len(between.culprits))),
        blamed,
    )


def _host_parts(job: Job, made: Calls, before: _From, row: int) -> Counter[Blamed]:
    """What the launching threads did from one launch to the next; what nothing tells is the rest.

    Where the host waits for a collective that waits for another rank, that is not its own doing: it does not count.
    """
    profile = job.ranks[int(made.place[row])].profile
    base = profile.trace.base_ns
    begin, end = before.launch - base, int(made.launch[row]) - base
    costs = profile.of(host_costs)
    first, last = np.maximum(costs.begin, begin), np.minimum(costs.end, end)
    ns = np.maximum(last - first, 0)
    waits_there = np.array([blamed.cause in _WAITS for blamed in costs.blamed] or [False])[costs.code]
    held = np.flatnonzero(waits_there & (ns > 0))
    others = np.zeros(len(ns), np.int64)
    others[held] = covered_ns(job.of(waiting, int(made.place[row])), first[held], last[held])
    ns -= others
    parts: Counter[Blamed] = Counter()
    for code, total in enumerate(np.bincount(costs.code, ns, len(costs.blamed)).astype(np.int64).tolist()):
        parts[costs.blamed[code]] += total
    parts[Blamed("nothing", "", "", 0)] += end - begin - int(others.sum()) - sum(parts.values())
    return parts


def _gpu_difference(job: Job, made: Calls, before: _Before, last: int, peer: int) -> dict[Blamed, int]:
    """The work of the GPU between the two collectives, kernel by kernel: slower ones, and more of them."""
    mine, others = (dict(_kernels(job, made, before[row], row)) for row in (last, peer))
    slower, more = 0, Counter[str]()
    for key in {*mine, *others}:
        (count, ns), (usual_count, usual_ns) = mine.get(key, (0, 0)), others.get(key, (0, 0))
        if count == usual_count:
            slower += ns - usual_ns
        else:
            more[key[0]] += ns - usual_ns
    parts = {Blamed("slower_kernels", "", "", 0): slower}
    if more:
        parts[Blamed("more_work", max(more, key=lambda name: more[name]), "", 0)] = sum(more.values())
    return {one: ns for one, ns in sorted(parts.items(), key=lambda pair: -pair[1]) if ns}


def _kernels(
    job: Job, made: Calls, before: _From, row: int
) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
    """(name, grid) of what ran between two collectives on the GPU, with how many there were and how long (ns)."""
    profile = job.ranks[int(made.place[row])].profile
    trace, work = profile.trace, profile.of(gpu_work)
    begin, end = before.end - trace.base_ns, int(made.begin[row]) - trace.base_ns
    first = trace.ts[work.index]
    here = work.index[(first + trace.dur[work.index] > begin) & (first < end)]
    here = here[[work_category != "communication" for work_category in _categories(profile, here)]]
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    grids = [*(trace.texts.get("grid") or ()), ""]
    for name, grid, ns in zip(
        trace.name[here].tolist(), codes_of(trace, "grid", here).tolist(), trace.dur[here].tolist()
    ):
        one = sums[trace.names[name], grids[grid]]
        one[0], one[1] = one[0] + 1, one[1] + ns
    yield from ((key, (count, ns)) for key, (count, ns) in sums.items())


def _categories(profile: Profile, rows: Int64s) -> list[str]:
    work = profile.of(gpu_work)
    place = np.searchsorted(work.index, rows)
    return [work.categories[code] for code in work.category[place].tolist()]
