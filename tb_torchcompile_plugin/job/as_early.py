"""What if a rank came as early as its peers? Without what it did beyond them before each collective, all replayed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.coupled import Change
from tb_torchcompile_plugin.job.digest.host_costs import HostCosts, host_costs, launched_between, waits_order
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.late import GPU_CAUSES, Late, late
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.model import CALL_NS, Model
from tb_torchcompile_plugin.profile.profile import Profile

Shares = npt.NDArray[np.float64]


def as_early(job: TracedJob, places: Iterable[int], shared: bool = True) -> dict[int, Change]:
    """The changes of the models of these ranks, by place. shared: whether more work than others have is shared with
    them, or gone."""
    return {place: job.of(_without_excess, place, shared) for place in places}


def _without_excess(job: TracedJob, place: int, shared: bool) -> Change:
    profile = job.ranks[place].profile
    costs, mine = profile.of(host_costs), [one for one in job.of(late) if one.place == place]
    left, work_left = np.ones(len(costs.begin)), np.ones(len(profile.of(gpu_queue)))
    for one in mine:
        if any(blamed.cause in GPU_CAUSES for blamed in one.parts):
            _cut_work(profile, one, len(job.ranks) if shared else 1, work_left)
        else:
            _cut_host(costs, one, left)
    left = _tail_too(costs, left, max((one.end for one in mine), default=0))
    host, own, waiting = np.split(left, costs.bounds[1:3])
    waits = np.empty(len(waiting))
    waits[profile.of(waits_order)] = waiting
    no_wait = waits < _HALF

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


def _cut_host(costs: HostCosts, one: Late, left: Shares) -> None:
    """Takes from the share that is left of each part: what the rank did more of than its peer is cut, to the excess in
    all."""
    rows, ns = costs.window(one.begin, one.end)
    more = {blamed: excess for blamed, excess in one.parts.items() if excess > 0}
    part = min(1.0, max(one.excess, 0) / max(sum(more.values()), 1))
    total = costs.summed(rows, ns)
    codes, code = np.unique(costs.code[rows], return_inverse=True)
    blamed = [costs.blamed[code] for code in codes.tolist()]
    cut = np.array([min(1.0, part * more.get(one, 0) / max(total[one], 1)) for one in blamed])
    left[rows] *= 1 - cut[code] * ns / np.maximum(costs.end[rows] - costs.begin[rows], 1)


def _tail_too(costs: HostCosts, left: Shares, end: int) -> Shares:
    """What is behind the last of these collectives is compared with nothing: it goes as it did before them."""
    behind = costs.begin >= end
    before = np.flatnonzero(~behind)
    ns = costs.end[before] - costs.begin[before]
    whole, kept = costs.summed(before, ns), costs.summed(before, ns * left[before])
    share = np.array([kept[blamed] / whole[blamed] if whole.get(blamed) else 1.0 for blamed in costs.blamed])
    return np.where(behind, share[costs.code], left)


def _cut_work(profile: Profile, one: Late, ranks: int, left: Shares) -> None:
    """Takes from the share that is left of each kernel that was launched meanwhile. More work than others have does not
    vanish: it is shared among so many ranks; with one rank it does."""
    excess = sum(
        ns * ((ranks - 1) / ranks if ranks > 1 and blamed.cause == "more_work" else 1)
        for blamed, ns in one.parts.items()
    )
    mine = launched_between(profile, one.begin, one.end)
    total = int(profile.of(gpu_queue).dur[mine].sum())
    left[mine] = 1 - min(1.0, max(excess, 0) / max(total, 1))
