"""All ranks of a job replayed together: a collective goes on when the last of its ranks has come, a recv when its send
has. With the recorded models that gives the recorded steps back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.rank_calls import rank_calls
from tb_torchcompile_plugin.job.instances import Instances, holding, instances, senders
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.sweep import Tied, sweep
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import Floats, places_in
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.clock import Clock, clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.model.model import Model, model
from tb_torchcompile_plugin.profile.model.profiler_overhead import (
    USUAL_NS,
    Recording,
    least,
    without_recording,
)
from tb_torchcompile_plugin.profile.steps import unrecorded_step_ns
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, PAIRED

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
