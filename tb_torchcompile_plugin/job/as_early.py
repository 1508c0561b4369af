"""What if a rank came as early as its peers? Without what it did beyond them before each collective, all replayed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.coupled import Change
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import GPU_CAUSES, HostCosts, Late, host_costs, late
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.model.model import Model
from tb_torchcompile_plugin.profile.profile import Profile


def as_early(job: Job, places: Iterable[int]) -> dict[int, Change]:
    """The changes of the models of these ranks, by place."""
    return {place: job.of(_without_excess, place) for place in places}


def _without_excess(job: Job, place: int) -> Change:
    profile = job.ranks[place].profile
    costs = profile.of(host_costs)
    left, work_left = np.ones(len(costs.begin)), np.ones(len(profile.of(gpu_queue)))
    for one in job.of(late):
        if one.place == place:
            if any(blamed.cause in GPU_CAUSES for blamed in one.parts):
                work_left *= _work_left(profile, one)
            else:
                left *= _host_left(costs, one)
    pieces = len(profile.of(host_pieces).point)

    def change(made: Model) -> Model:
        return made._replace(
            host=(made.host * left[:pieces]).astype(np.int64),
            own=(made.own * left[pieces:]).astype(np.int64),
            dur=(made.dur * work_left).astype(np.int64),
        )

    return change


def _host_left(costs: HostCosts, one: Late) -> npt.NDArray[np.float64]:
    """The share of each piece and call that is left: what its peer did less of is cut, to the excess in all."""
    ns = np.maximum(np.minimum(costs.end, one.end) - np.maximum(costs.begin, one.begin), 0)
    more = {blamed: excess for blamed, excess in one.parts.items() if excess > 0}
    part = min(1.0, max(one.excess, 0) / max(sum(more.values()), 1))
    cut = np.array([part * more.get(blamed, 0) for blamed in costs.blamed])
    total = np.zeros(len(costs.blamed), np.int64)
    np.add.at(total, costs.code, ns)
    share = np.minimum(cut / np.maximum(_of_same(costs, total), 1), 1.0)[costs.code]
    left: npt.NDArray[np.float64] = 1 - share * ns / np.maximum(costs.end - costs.begin, 1)
    return left


def _of_same(costs: HostCosts, total: Int64s) -> Int64s:
    """The total of each culprit, which may stand in the list twice: for pieces, and for calls."""
    sums: dict[object, int] = {}
    for blamed, ns in zip(costs.blamed, total.tolist()):
        sums[blamed] = sums.get(blamed, 0) + ns
    return np.array([sums[blamed] for blamed in costs.blamed], np.int64)


def _work_left(profile: Profile, one: Late) -> npt.NDArray[np.float64]:
    """The share of each kernel between the two collectives that is left."""
    queue = profile.of(gpu_queue)
    inside = (queue.end > one.work_begin) & (queue.start < one.work_end)
    total = int(queue.dur[inside].sum())
    return np.where(inside, 1 - min(1.0, max(one.excess, 0) / max(total, 1)), 1.0)
