"""Why does a rank come last? What it did between two collectives beyond what its peers did between the same two.

It is compared with one peer, the one in the middle, so that the causes sum to the excess. Where the host was in time
and its GPU was not, the GPU's work is compared: the same kernels may run slower, or there are more of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import Calls, calls
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import Waits, waits
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
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
    lateness: how much later than its peer it came. parts: the excess by cause, which they sum to (ns)."""

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
    before = _before(made, known.of_call)
    found = []
    for number, rows in enumerate(known.members):
        if made.kinds[int(rows[0])].operation not in HOLD_ALL:
            continue
        last = int(rows[np.argmax(times.begin[rows])])
        peer = _peer(known.of_call, times, before, rows, last)
        if peer is not None and times.begin[last] - times.begin[peer] > least:
            found.append(_one(job, made, times, before, last, peer, number))
    return found


def _before(made: Calls, instance: Int64s) -> dict[int, int]:
    """By call the matched one that its rank launched before it."""
    order = np.lexsort((made.launch, made.place))
    order = order[(instance[order] >= 0) & (made.launch[order] >= 0)]
    return {int(b): int(a) for a, b in pairwise(order.tolist()) if made.place[a] == made.place[b]}


def _peer(instance: Int64s, times: Waits, before: dict[int, int], rows: Int64s, last: int) -> int | None:
    """The other member that came in the middle, of those that come from the same collective."""
    if last not in before:
        return None
    others = [
        row
        for row in rows.tolist()
        if row != last and row in before and instance[before[row]] == instance[before[last]]
    ]
    others.sort(key=lambda row: int(times.begin[row]))
    return others[len(others) // 2] if others else None


def _one(
    job: Job, made: Calls, times: Waits, before: dict[int, int], last: int, peer: int, number: int
) -> Late:
    lateness = int(times.begin[last] - times.begin[peer])
    host = _difference(*(_host_parts(job, made, before[row], row) for row in (last, peer)))
    parts, excess = host, sum(host.values())
    waiting = sum(ns for one, ns in host.items() if one.cause in _WAITS)
    if excess - max(waiting, 0) < lateness // 2:
        gpu = _gpu_difference(job, made, before, last, peer)
        if sum(gpu.values()) >= lateness // 2:
            parts = gpu
    base = job.ranks[int(made.place[last])].profile.trace.base_ns
    return Late(
        place=int(made.place[last]),
        peer=int(made.place[peer]),
        instance=number,
        begin=int(made.launch[before[last]]) - base,
        end=int(made.launch[last]) - base,
        work_begin=int(made.end[before[last]]) - base,
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


def _host_parts(job: Job, made: Calls, before: int, row: int) -> Counter[Blamed]:
    """What the launching threads did from one launch to the next; what nothing tells is the rest."""
    profile = job.ranks[int(made.place[row])].profile
    base = profile.trace.base_ns
    begin, end = int(made.launch[before]) - base, int(made.launch[row]) - base
    costs = profile.of(host_costs)
    ns = np.maximum(np.minimum(costs.end, end) - np.maximum(costs.begin, begin), 0)
    parts: Counter[Blamed] = Counter()
    for code, total in enumerate(np.bincount(costs.code, ns, len(costs.blamed)).astype(np.int64).tolist()):
        parts[costs.blamed[code]] += total
    parts[Blamed("nothing", "", "", 0)] += end - begin - sum(parts.values())
    return parts


def _gpu_difference(job: Job, made: Calls, before: dict[int, int], last: int, peer: int) -> dict[Blamed, int]:
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
    job: Job, made: Calls, before: int, row: int
) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
    """(name, grid) of what ran between two collectives on the GPU, with how many there were and how long (ns)."""
    profile = job.ranks[int(made.place[row])].profile
    trace, work = profile.trace, profile.of(gpu_work)
    begin, end = int(made.end[before]) - trace.base_ns, int(made.begin[row]) - trace.base_ns
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
