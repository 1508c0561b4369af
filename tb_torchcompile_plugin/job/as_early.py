"""What if a rank came as early as its peers? Without what it did beyond them before each collective, all replayed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.coupled import Change
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import GPU_CAUSES, HostCosts, Late, host_costs, late, launched_between
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.model import CALL_NS, Model
from tb_torchcompile_plugin.profile.profile import Profile

Shares = npt.NDArray[np.float64]


def as_early(job: Job, places: Iterable[int]) -> dict[int, Change]:
    """The changes of the models of these ranks, by place."""
    return {place: job.of(_without_excess, place) for place in places}


def _without_excess(job: Job, place: int) -> Change:
    profile = job.ranks[place].profile
    costs = profile.of(host_costs)
    left, work_left = np.ones(len(costs.begin)), np.ones(len(profile.of(gpu_queue)))
    for one in job.of(late):
        if one.place == place and any(blamed.cause in GPU_CAUSES for blamed in one.parts):
            work_left *= _work_left(profile, one, len(job.ranks))
        elif one.place == place:
            left *= _host_left(costs, one)
    left = _tail_too(costs, left, max((one.end for one in job.of(late) if one.place == place), default=0))
    host, own, waiting = np.split(left, (costs.pieces, costs.pieces + costs.calls))
    no_wait = waiting < _HALF

    def change(made: Model) -> Model:
        return made._replace(
            host=(made.host * host).astype(np.int64),
            own=np.where(no_wait, np.minimum(made.own, CALL_NS), made.own * own).astype(np.int64),
            dur=(made.dur * work_left).astype(np.int64),
            waits=made.waits & ~no_wait[:, None],
            target=np.where(no_wait, -1, made.target),
        )

    return change


_HALF = 0.5  # a call that waits for less than half as long does not wait any more


def _host_left(costs: HostCosts, one: Late) -> Shares:
    """The share of each part that is left: what the rank did more of than its peer is cut, to the excess in all."""
    ns = costs.inside(one.begin, one.end)
    more = {blamed: excess for blamed, excess in one.parts.items() if excess > 0}
    part = min(1.0, max(one.excess, 0) / max(sum(more.values()), 1))
    total = costs.summed(ns)
    cut = np.array([part * more.get(blamed, 0) / max(total[blamed], 1) for blamed in costs.blamed])
    share = np.minimum(cut, 1.0)[costs.code]
    left: Shares = 1 - share * ns / np.maximum(costs.end - costs.begin, 1)
    return left


def _tail_too(costs: HostCosts, left: Shares, end: int) -> Shares:
    """What is behind the last of these collectives is compared with nothing: it goes as it did before them."""
    behind = costs.begin >= end
    ns = np.where(behind, 0, costs.end - costs.begin)
    whole, kept = costs.summed(ns), costs.summed(ns * left)
    share = np.array([kept[blamed] / whole[blamed] if whole[blamed] > 0 else 1.0 for blamed in costs.blamed])
    return np.where(behind, share[costs.code], left)


def _work_left(profile: Profile, one: Late, ranks: int) -> Shares:
    """The share that is left of each kernel that was launched meanwhile. More work than others have does not vanish: it
    is shared with them."""
    excess = sum(
        ns * ((ranks - 1) / ranks if blamed.cause == "more_work" else 1) for blamed, ns in one.parts.items()
    )
    queue = profile.of(gpu_queue)
    mine = launched_between(profile, one.begin, one.end)
    total = int(queue.dur[mine].sum())
    return np.where(mine, 1 - min(1.0, max(excess, 0) / max(total, 1)), 1.0)
