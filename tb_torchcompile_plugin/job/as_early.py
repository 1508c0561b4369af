"""Predict the step if a rank arrives as early as its peers, by replaying all ranks without its additional work.

In a replay of a job a collective goes on when the last of its ranks has come, a recv when its send has. With the
recorded models that gives the recorded steps back.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import compress
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.make import HostCosts, computes, host_costs, launched
from tb_torchcompile_plugin.job.digest.rank_calls import communication_rows
from tb_torchcompile_plugin.job.instances import (
    Instances,
    calls,
    clocks,
    holds_all_ranks,
    instances,
    senders,
    waits,
)
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import GPU_CAUSES, Late, late_by_rank
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.sweep import Tied, sweep
from tb_torchcompile_plugin.profile.columns import Floats, Int64s, Mask, indices_in
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    LaunchSequence,
    averaged,
    gpu_queue,
    launch_sequence,
    overlappable_share,
)
from tb_torchcompile_plugin.profile.model.model import (
    CALL_NS,
    USUAL_NS,
    Clock,
    Model,
    clock,
    least,
    model,
    without_overhead,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, compiling_steps, incomplete_steps, step_time
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, PAIRED

Change = Callable[[Model], Model]
_UNCHANGED: Mapping[int, Change] = MappingProxyType({})
_MOST_NS, _HALVINGS = 1 << 16, 12  # of the cost of recording one event
_MOST_STEPS = 2 / 3  # share of steps in which a stage must be the longest; chosen by eye on the recordings
_LONGER = 1.1  # times the mean that it must compute; chosen by eye on the recordings
_STILL_WAITS = 0.5  # share of its waiting that must be left of a call; with less it does not wait any more


def tied(job: TracedJob) -> Tied:
    """Return the calls of instances of which every known member is in a model."""
    calls_, instances_, times = job.of(calls), job.of(instances), job.of(waits)
    # By call its index in the queue of its rank, -1 where it is not there.
    work = np.concatenate(
        [
            indices_in(rank.profile.of(gpu_queue).row, rank.profile.of(communication_rows))
            for rank in job.ranks
        ]
    )
    paired = calls_.of_kind(kind.operation in PAIRED for kind in calls_.kinds)
    are_pairs = _all_of(instances_, paired[instances_.rows]) & (job.of(senders) >= 0)
    selected = instances_.where(
        _all_of(instances_, work[instances_.rows] >= 0) & (job.of(holds_all_ranks) | are_pairs)
    )
    rows, hold = selected.rows, calls_.of_kind(kind.operation in HOLD_ALL for kind in calls_.kinds)
    base = np.array([digest.base_ns for digest in job.digests], np.int64)
    calls_in_models = Tied(
        rank_index=calls_.rank_index[rows],
        work=work[rows],
        instance=selected.number,
        ahead=(job.of(clocks).offset_ns - (base - base.min()))[calls_.rank_index[rows]],
        transfer=times.end[rows],
        needs=(hold | calls_.of_kind(kind.operation == "recv" for kind in calls_.kinds))[rows],
        needed=(hold | calls_.of_kind(kind.operation == "send" for kind in calls_.kinds))[rows],
    )
    begin = times.begin[rows]
    from_ = np.maximum(begin, calls_in_models.latest(begin)[calls_in_models.instance])
    return calls_in_models._replace(transfer=calls_in_models.transfer - from_)


def _all_of(instances_: Instances, mask: Mask) -> Mask:
    """Return by instance whether a mask holds for all of its calls."""
    return np.asarray(np.bincount(instances_.number[mask], minlength=len(instances_)) == instances_.sizes)


def by_rank(rank_index: Int64s, ranks: int) -> list[Int64s]:
    """Return the rows of each rank."""
    order = np.argsort(rank_index, kind="stable")
    return np.split(order, np.searchsorted(rank_index[order], np.arange(1, ranks)))


def job_clocks(
    job: TracedJob,
    changes: Mapping[int, Change] = _UNCHANGED,
    transfers: Floats | float = 1.0,
    slice_ns: int = 0,
) -> list[Clock]:
    """Return how long the steps of each rank take. Raises IndexError where a rank has no model, and CircularWaitError.

    changes: of the models of ranks, by index. transfers: the share of each transfer that is left, of all or by tied
    call. slice_ns: what recording an event cost.
    """
    calls_ = job.of(tied)
    calls_ = calls_._replace(transfer=(calls_.transfer * transfers).astype(np.int64))
    models = []
    for index, (rank, rows) in enumerate(zip(job.ranks, by_rank(calls_.rank_index, len(job.ranks)))):
        changed = rank.profile.of(model)
        if index in changes:
            changed = changes[index](changed)
        changed = without_overhead(rank.profile, changed, slice_ns)
        # Collectives as if the rank waited for no other rank.
        dur, waiting = changed.dur.copy(), rows[calls_.needs[rows]]
        dur[calls_.work[waiting]] = np.maximum(calls_.transfer[waiting], 0)
        models.append(changed._replace(dur=dur))
    return [
        clock(lane, rank.profile.of(gpu_queue), times)
        for rank, lane, times in zip(job.ranks, job.of(_launch_sequences), sweep(models, calls_))
    ]


def _launch_sequences(job: TracedJob) -> list[LaunchSequence]:
    """Return the sequence of each rank.

    While some ranks compile the others wait, which is time of the job: only a step in which all do is left out.
    """
    profiles = [rank.profile for rank in job.ranks]
    compiling = (compress(profile.of(StepWindows).names, profile.of(compiling_steps)) for profile in profiles)
    in_all, sequences = set.intersection(*map(set, compiling)), []
    for profile in profiles:
        windows = profile.of(StepWindows)
        counted = np.array([name not in in_all for name in windows.names], bool) & ~profile.of(
            incomplete_steps
        )
        lane = profile.of(launch_sequence)
        sequences.append(averaged(lane, windows, counted) if len(windows) else lane)
    return sequences


def has_models(job: TracedJob) -> bool:
    """Whether every rank launched GPU work, so that all can be replayed."""
    return all(
        len(rank.profile.of(launch_sequence)) > 1 and len(rank.profile.of(gpu_queue)) for rank in job.ranks
    )


def step_of_job_ns(clocks: list[Clock]) -> float:
    """Return the length of a step of the job.

    Ranks that wait for each other take equally long, but for what one was ahead at the begin.
    """
    return min(rank.step for rank in clocks)


def overhead_per_event_ns(job: TracedJob) -> int:
    """Return what recording an event cost each rank, if the job's steps take as long unprofiled as was noted.

    0 where nothing was noted, or no longer steps.
    """
    steps = (rank.profile.of(step_time) for rank in job.ranks)
    step = max((round(1000 * time.step_us) for time in steps if time.unprofiled_steps), default=0)
    if not step or step_of_job_ns(job.of(job_clocks)) <= step:
        return 0
    if step_of_job_ns(job_clocks(job, slice_ns=_MOST_NS)) > step:
        return USUAL_NS
    return least(lambda cost: step_of_job_ns(job_clocks(job, slice_ns=cost)) <= step, _MOST_NS, _HALVINGS)


def replayed_step_ns(
    job: TracedJob, changes: Mapping[int, Change] = _UNCHANGED, transfers: Floats | float = 1.0
) -> float:
    """Return the step of the job replayed without what profiling added, with some changes of its ranks."""
    return step_of_job_ns(job_clocks(job, changes, transfers, job.of(overhead_per_event_ns)))


def without_excess(job: TracedJob, rank_index: int, shared: bool = True) -> Change:
    """Return the change of the model of a rank. shared: whether more work than others have is shared, or gone."""
    profile = job.ranks[rank_index].profile
    costs, lates = profile.of(host_costs), job.of(late_by_rank).get(rank_index, [])
    left, work_left = np.ones(len(costs.begin)), np.ones(len(profile.of(gpu_queue)))
    for row in lates:
        if any(blamed.cause in GPU_CAUSES for blamed in row.parts):
            _cut_work(profile, row, row.together / len(job.ranks) if shared else 0.0, work_left)
        else:
            _cut_host(costs, row, left)
    left = _with_tail(costs, left, max((row.end for row in lates), default=0))
    host, own, waiting = np.split(left, costs.bounds[1:3])
    waits_left = np.empty(len(waiting))
    waits_left[costs.waits_order] = waiting
    no_wait = waits_left < _STILL_WAITS

    def change(changed: Model) -> Model:
        own_ns = np.where(no_wait, np.minimum(changed.own, CALL_NS), changed.own * own)
        return changed._replace(
            host=(changed.host * host).astype(np.int64),
            own=own_ns.astype(np.int64),
            dur=(changed.dur * work_left).astype(np.int64),
            waits=changed.waits & ~no_wait[:, None],
            target=np.where(no_wait, -1, changed.target),
        )

    return change


def _cut_host(costs: HostCosts, row: Late, left: Floats) -> None:
    """Reduce the share that is left of each part: what the rank did more of than its peer, by the excess in all."""
    rows, ns = costs.window(row.begin, row.end)
    more = {blamed: excess for blamed, excess in row.parts.items() if excess > 0}
    part = min(1.0, max(row.excess, 0) / max(sum(more.values()), 1))
    total = costs.summed(rows, ns)
    codes, key = np.unique(costs.code[rows], return_inverse=True)
    blamed_rows = [costs.blamed[code] for code in codes.tolist()]
    cut = np.array([min(1.0, part * more.get(blamed, 0) / max(total[blamed], 1)) for blamed in blamed_rows])
    left[rows] *= 1 - cut[key] * ns / np.maximum(costs.end[rows] - costs.begin[rows], 1)


def _with_tail(costs: HostCosts, left: Floats, end: int) -> Floats:
    """Treat what is behind the last of these collectives, which is compared with nothing, like what is before."""
    is_behind = costs.begin >= end
    before = np.flatnonzero(~is_behind)
    ns = costs.end[before] - costs.begin[before]
    whole, kept = costs.summed(before, ns), costs.summed(before, ns * left[before])
    share = np.array([kept[blamed] / whole[blamed] if whole.get(blamed) else 1.0 for blamed in costs.blamed])
    return np.where(is_behind, share[costs.code], left)


def _cut_work(profile: Profile, row: Late, kept: float, left: Floats) -> None:
    """Reduce the share that is left of each kernel that was launched meanwhile.

    kept: the share of more work than others have that each rank keeps when it is shared evenly.
    """
    excess = sum(ns * (1 - kept if blamed.cause == "more_work" else 1) for blamed, ns in row.parts.items())
    work = slice(*np.searchsorted(profile.of(launched), (row.begin, row.end)).tolist())
    total = int(profile.of(gpu_queue).dur[work].sum())
    left[work] = 1 - min(1.0, max(excess, 0) / max(total, 1))


def hideable_share(job: TracedJob) -> Floats:
    """Return by tied call the share of its transfer that could overlap compute, the least among its ranks.

    A transfer is over on all of its ranks at once.
    """
    calls_ = job.of(tied)
    share, least = np.ones(len(calls_.rank_index)), np.ones(int(calls_.instance.max(initial=-1)) + 1)
    for rank, rows in zip(job.ranks, by_rank(calls_.rank_index, len(job.ranks))):
        share[rows] = overlappable_share(
            rank.profile, calls_.work[rows], np.maximum(calls_.transfer[rows], 0)
        )
    np.minimum.at(least, calls_.instance, share)
    return least[calls_.instance]


class Stages(NamedTuple):
    """A pipeline whose stages, which are ranks that hand their work to the next one, are uneven.

    The longest stage sets the pace of each step, whatever its rank does right: the reason is its part of the model, and
    not a late rank.
    """

    compute_ns: Floats  # of each rank in an average step
    longest: int  # index of the rank
    mean_ns: float  # with even stages each computes as long


def stages(job: Job) -> Stages | None:
    """Return None if some ranks do not pass work on, or if no rank computes longest in most steps."""
    steps = [rank for rank in job.of(job_steps) if rank is not None]
    calls_, instances_ = job.of(calls), job.of(instances)
    is_paired = calls_.of_kind(kind.operation in PAIRED for kind in calls_.kinds)
    rows = instances_.rows[is_paired[instances_.rows[instances_.first]][instances_.number]]
    if len(steps) < len(job.digests) or len(np.unique(calls_.rank_index[rows])) < len(job.digests):
        return None
    compute = [
        np.asarray((rank.compute + rank.overlapped)[: len(rank.counted)], np.float64) for rank in steps
    ]
    count = min(map(len, compute))
    first = np.array([rank[:count] for rank in compute]).argmax(axis=0)
    longest = int(np.bincount(first).argmax())
    means = np.array([rank.mean() for rank in compute])
    is_uneven = (first == longest).mean() >= _MOST_STEPS and means[longest] >= _LONGER * means.mean()
    return Stages(means, longest, float(means.mean())) if is_uneven else None


def even_stages(job: TracedJob, uneven: Stages) -> dict[int, Change]:
    """Return the changes of the models of all ranks, by index: the same work, shared evenly."""
    factors = uneven.mean_ns / np.maximum(uneven.compute_ns, 1)
    return {
        index: partial(_scaled, rank.profile.of(computes), float(factor))
        for index, (rank, factor) in enumerate(zip(job.ranks, factors))
    }


def _scaled(work: Mask, factor: float, changed: Model) -> Model:
    return changed._replace(dur=np.where(work, changed.dur * factor, changed.dur).astype(np.int64))
