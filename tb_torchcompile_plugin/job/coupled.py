"""All ranks of a job replayed together: a collective goes on when the last of its ranks has come.

Each rank's model is walked as if nobody waited; then again, with no collective done before the latest begin of its
members and its transfer, until nothing moves. Times only grow on the way, to what they are when all that holds. With
the recorded models it gives the recorded steps back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import holds_all, instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import places_in
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.clock import Clock, clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.model import Model, model
from tb_torchcompile_plugin.profile.model.replay import Replayed, replay
from tb_torchcompile_plugin.profile.model.unrecorded import USUAL_NS, Recording, least, without_recording
from tb_torchcompile_plugin.profile.noted_steps import unrecorded_step_ns

Change = Callable[[Model], Model]
_AS_IT_IS: Mapping[int, Change] = MappingProxyType({})
_ROUNDS = 200
_MOST_NS, _HALVINGS = 1 << 16, 12  # of the cost of one slice
_NEVER = np.iinfo(np.int64).min // 2


class NotSettledError(Exception):
    """Ranks wait for each other so often by turns that their times were not found in so many rounds."""


class Tied(NamedTuple):
    """Matched calls that are in the model of their rank, as columns: place of the rank, place in its queue, instance
    (numbered from 0), what its clock is ahead (ns), and how long it goes on after the last member began
    (ns): less than nothing by what the clocks are off."""

    place: Int64s
    work: Int64s
    instance: Int64s
    ahead: Int64s
    transfer: Int64s


def tied(job: Job) -> Tied:
    """Of instances of which every member that is known is in a model."""
    made, known, times, offset = job.of(calls), job.of(instances), job.of(waits), job.of(clocks).offset_ns
    queues = [one.profile.of(gpu_queue).row for one in job.ranks]
    work = np.concatenate([places_in(row, made.row[made.place == place]) for place, row in enumerate(queues)])
    whole = [rows for rows in known.members if holds_all(made, rows) and (work[rows] >= 0).all()]
    rows = np.concatenate([np.zeros(0, np.int64), *whole])
    instance = np.repeat(np.arange(len(whole)), [len(one) for one in whole])
    base = np.array([one.profile.trace.base_ns for one in job.ranks], np.int64)
    return Tied(
        place=made.place[rows],
        work=work[rows],
        instance=instance,
        ahead=(offset - (base - base.min()))[made.place[rows]],
        transfer=times.end[rows]
        - np.maximum(times.begin[rows], _latest(times.begin[rows], instance)[instance]),
    )


def job_clocks(
    job: Job, changes: Mapping[int, Change] = _AS_IT_IS, transfers: float = 1.0, slice_ns: int = 0
) -> list[Clock]:
    """How long the steps of each rank take. changes: of the models of ranks, by place. transfers: the share of each
    transfer that is left. slice_ns: what writing a slice cost. Raises IndexError where a rank has no model, and
    NotSettledError."""
    held = job.of(tied)
    held = held._replace(transfer=(held.transfer * transfers).astype(np.int64))
    models = []
    for place, one in enumerate(job.ranks):
        made = changes.get(place, _same)(one.profile.of(model))
        models.append(_alone(held, place, without_recording(one.profile, made, Recording(slice_ns))))
    walked = [replay(made) for made in models]
    for _ in range(_ROUNDS):
        until, done = _done(held, walked)
        if (until <= done).all():
            break
        walked = [replay(made, _held(held, place, made, until)) for place, made in enumerate(models)]
    else:
        raise NotSettledError
    return [
        clock(one.profile.of(host_lane), one.profile.of(gpu_queue), times)
        for one, times in zip(job.ranks, walked)
    ]


def _same(made: Model) -> Model:
    return made


def _alone(held: Tied, place: int, made: Model) -> Model:
    """A rank's collectives, if it waited for nobody."""
    dur, mine = made.dur.copy(), held.place == place
    dur[held.work[mine]] = np.maximum(held.transfer[mine], 0)
    return made._replace(dur=dur)


def _done(held: Tied, walked: list[Replayed]) -> tuple[Int64s, Int64s]:
    """When each tied call may be done at the earliest, and when it is; by the clock of its rank."""
    begin, end = np.zeros((2, len(held.work)), np.int64)
    for place, times in enumerate(walked):
        mine = held.place == place
        begin[mine], end[mine] = times.work_begin[held.work[mine]], times.work_end[held.work[mine]]
    latest = _latest(begin - held.ahead, held.instance)
    return latest[held.instance] + held.ahead + held.transfer, end


def _latest(begin: Int64s, instance: Int64s) -> Int64s:
    """By instance when its last member begins."""
    latest = np.full(int(instance.max(initial=-1)) + 1, _NEVER)
    np.maximum.at(latest, instance, begin)
    return latest


def _held(held: Tied, place: int, made: Model, until: Int64s) -> Int64s:
    """By work of a rank's queue when it may be done."""
    not_before, mine = np.full(len(made.dur), _NEVER), held.place == place
    not_before[held.work[mine]] = until[mine]
    return not_before


def has_models(job: Job) -> bool:
    """Whether every rank launched GPU work, so that all of them can be replayed."""
    return all(len(one.profile.of(host_lane)) > 1 and len(one.profile.of(gpu_queue)) for one in job.ranks)


def pace_ns(clocks: list[Clock]) -> float:
    """A step of the job: ranks that wait for each other take equally long, but for what one was ahead at the begin."""
    return min(one.step for one in clocks)


def recording_cost_ns(job: Job) -> int:
    """What writing a slice cost each rank, if the job's steps take as long unrecorded as was noted; 0 where nothing was
    noted, or no longer."""
    noted = [one.profile.data.of(unrecorded_step_ns) for one in job.ranks if one.profile.data]
    step = max((ns for ns in noted if ns), default=0)
    if not step or pace_ns(job.of(job_clocks)) <= step:
        return 0
    if pace_ns(job_clocks(job, slice_ns=_MOST_NS)) > step:
        return USUAL_NS
    return least(lambda cost: pace_ns(job_clocks(job, slice_ns=cost)) <= step, _MOST_NS, _HALVINGS)
