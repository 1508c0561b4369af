"""What if a rank came as early as its peers? Without what it did beyond them before each collective, all replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.host_costs import HostCosts, host_costs, launched_between, waits_order
from tb_torchcompile_plugin.job.digest.rank_calls import rank_calls
from tb_torchcompile_plugin.job.instances import Instances, calls, holding, instances, senders
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import GPU_CAUSES, Late, late
from tb_torchcompile_plugin.job.sweep import Tied, sweep
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import Floats, places_in
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.clock import Clock, clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.model.model import CALL_NS, Model, model
from tb_torchcompile_plugin.profile.model.profiler_overhead import (
    USUAL_NS,
    Recording,
    least,
    without_recording,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import unrecorded_step_ns
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, PAIRED

# All ranks of a job replayed together: a collective goes on when the last of its ranks has come, a recv
# when its send has. With the recorded models that gives the recorded steps back.


Change = Callable[[Model], Model]
_AS_IT_IS: Mapping[int, Change] = MappingProxyType({})
_MOST_NS, _HALVINGS = 1 << 16, 12  # of the cost of one slice


def tied(job: TracedJob) -> Tied:
    """Of instances of which every member that is known is in a model."""
    made, known, times, offset = job.of(calls), job.of(instances), job.of(waits), job.of(clocks).offset_ns
    work = _works(job)
    all_hold = job.of(holding)
    some = known.where(_all_of(known, work[known.rows] >= 0) & (all_hold | _are_pairs(job)))
    rows, alike = some.rows, made.of_kind(one.operation in HOLD_ALL for one in made.kinds)
    base = np.array([one.base_ns for one in job.digests], np.int64)
    held = Tied(
        place=made.place[rows],
        work=work[rows],
        instance=some.number,
        ahead=(offset - (base - base.min()))[made.place[rows]],
        transfer=times.end[rows],
        needs=(alike | made.of_kind(one.operation == "recv" for one in made.kinds))[rows],
        needed=(alike | made.of_kind(one.operation == "send" for one in made.kinds))[rows],
    )
    begin = times.begin[rows]
    return held._replace(transfer=held.transfer - np.maximum(begin, held.latest(begin)[held.instance]))


def _works(job: TracedJob) -> Int64s:
    """By call its place in the queue of its rank, -1 where it is not there."""
    return np.concatenate(
        [places_in(one.profile.of(gpu_queue).row, one.profile.of(rank_calls).row) for one in job.ranks]
    )


def _are_pairs(job: Job) -> npt.NDArray[np.bool_]:
    """By instance whether it is one send with what receives it."""
    made, known = job.of(calls), job.of(instances)
    paired = made.of_kind(one.operation in PAIRED for one in made.kinds)
    return _all_of(known, paired[known.rows]) & (job.of(senders) >= 0)


def _all_of(known: Instances, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """By instance whether it holds for all of its calls."""
    return np.asarray(np.bincount(known.number[mask], minlength=len(known)) == known.sizes)


def by_place(place: Int64s, ranks: int) -> list[Int64s]:
    """The rows of each rank."""
    order = np.argsort(place, kind="stable")
    return np.split(order, np.searchsorted(place[order], np.arange(1, ranks)))


def job_clocks(
    job: TracedJob,
    changes: Mapping[int, Change] = _AS_IT_IS,
    transfers: Floats | float = 1.0,
    slice_ns: int = 0,
) -> list[Clock]:
    """How long the steps of each rank take. changes: of the models of ranks, by place. transfers: the share of each
    transfer that is left, of all or by tied call. slice_ns: what writing a slice cost. Raises IndexError where a rank
    has no model, and CircularWaitError."""
    held = job.of(tied)
    held = held._replace(transfer=(held.transfer * transfers).astype(np.int64))
    models = []
    for place, (one, mine) in enumerate(zip(job.ranks, by_place(held.place, len(job.ranks)))):
        made = changes.get(place, _same)(one.profile.of(model))
        models.append(_alone(held, mine, without_recording(one.profile, made, Recording(slice_ns))))
    return [
        clock(one.profile.of(host_lane), one.profile.of(gpu_queue), times)
        for one, times in zip(job.ranks, sweep(models, held))
    ]


def _same(made: Model) -> Model:
    return made


def _alone(held: Tied, mine: Int64s, made: Model) -> Model:
    """A rank's collectives, if it waited for nobody."""
    dur, waiting = made.dur.copy(), mine[held.needs[mine]]
    dur[held.work[waiting]] = np.maximum(held.transfer[waiting], 0)
    return made._replace(dur=dur)


def has_models(job: TracedJob) -> bool:
    """Whether every rank launched GPU work, so that all of them can be replayed."""
    return all(len(one.profile.of(host_lane)) > 1 and len(one.profile.of(gpu_queue)) for one in job.ranks)


def pace_ns(clocks: list[Clock]) -> float:
    """A step of the job: ranks that wait for each other take equally long, but for what one was ahead at the begin."""
    return min(one.step for one in clocks)


def recording_cost_ns(job: TracedJob) -> int:
    """What writing a slice cost each rank, if the job's steps take as long unrecorded as was noted; 0 where nothing was
    noted, or no longer."""
    noted = [one.profile.data.of(unrecorded_step_ns) for one in job.ranks if one.profile.data]
    step = max((ns for ns in noted if ns), default=0)
    if not step or pace_ns(job.of(job_clocks)) <= step:
        return 0
    if pace_ns(job_clocks(job, slice_ns=_MOST_NS)) > step:
        return USUAL_NS
    return least(lambda cost: pace_ns(job_clocks(job, slice_ns=cost)) <= step, _MOST_NS, _HALVINGS)


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
