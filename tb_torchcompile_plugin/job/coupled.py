"""All ranks of a job replayed together: a collective goes on when the last of its ranks has come.

Each rank's model is walked on its own; then every matched collective lasts until the latest begin of its members, and
for its transfer. That is repeated until nothing moves. With the recorded models it gives the recorded steps back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.calls import calls
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.clock import Clock, clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.model import Model, model
from tb_torchcompile_plugin.profile.model.replay import Replayed, replay
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL

Change = Callable[[Model], Model]
_ROUNDS, _STILL_NS = 50, 1_000


class Tied(NamedTuple):
    """Matched calls that are in the model of their rank, as columns: place of the rank, place in its queue, instance
    (numbered from 0), what its clock is ahead (ns), and how long it goes on when the last one has come (ns): less than
    no time where clocks are not known that well."""

    place: Int64s
    work: Int64s
    instance: Int64s
    ahead: Int64s
    transfer: Int64s


def tied(job: Job) -> Tied:
    """Of instances of which every member that is known is in a model."""
    made, known, times, offset = job.of(calls), job.of(instances), job.of(waits), job.of(clocks).offset_ns
    work = np.full(len(made.row), -1)
    for place, one in enumerate(job.ranks):
        queue = one.profile.of(gpu_queue)
        mine = np.flatnonzero(made.place == place)
        order = np.argsort(queue.row, kind="stable")
        at = np.minimum(np.searchsorted(queue.row[order], made.row[mine]), max(len(order) - 1, 0))
        if len(order):
            work[mine] = np.where(queue.row[order[at]] == made.row[mine], order[at], -1)
    whole = [
        rows
        for rows in known.members
        if made.kinds[int(rows[0])].operation in HOLD_ALL and (work[rows] >= 0).all()
    ]
    rows = np.concatenate([np.zeros(0, np.int64), *whole])
    latest = np.repeat([times.begin[one].max() for one in whole], [len(one) for one in whole]).astype(
        np.int64
    )
    base = np.array([one.profile.trace.base_ns for one in job.ranks], np.int64)
    return Tied(
        place=made.place[rows],
        work=work[rows],
        instance=np.repeat(np.arange(len(whole)), [len(one) for one in whole]),
        ahead=offset[made.place[rows]] - (base - base.min())[made.place[rows]],
        transfer=made.end[rows] - offset[made.place[rows]] - latest,
    )


def job_clocks(job: Job, changes: Mapping[int, Change] = {}, transfers: float = 1.0) -> list[Clock]:
    """How long the steps of each rank take. changes: of the models of ranks, by place. transfers: the share of each
    transfer that is left. Raises IndexError where a rank has no model."""
    models = [changes.get(place, _as_it_is)(one.profile.of(model)) for place, one in enumerate(job.ranks)]
    held, walked = job.of(tied), [replay(made) for made in models]
    left = np.where(held.transfer > 0, held.transfer * transfers, held.transfer)
    held = held._replace(transfer=left.astype(np.int64))
    for _ in range(_ROUNDS):
        dur = _durations(held, walked)
        moved = 0
        for place, made in enumerate(models):
            mine = held.place == place
            now = made.dur.copy()
            now[held.work[mine]] = dur[mine]
            moved = max(moved, int(np.abs(now - made.dur).max(initial=0)))
            models[place] = made._replace(dur=now)
        if moved < _STILL_NS:
            break
        walked = [replay(made) for made in models]
    return [
        clock(one.profile.of(host_lane), one.profile.of(gpu_queue), times)
        for one, times in zip(job.ranks, walked)
    ]


def _durations(held: Tied, walked: list[Replayed]) -> Int64s:
    """Of each tied call: until the last member has come, and its transfer."""
    begin = np.zeros(len(held.work), np.int64)
    for place, times in enumerate(walked):
        mine = held.place == place
        begin[mine] = times.work_begin[held.work[mine]]
    common = begin - held.ahead
    latest = np.full(int(held.instance.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, held.instance, common)
    return np.asarray(np.maximum(latest[held.instance] - common + held.transfer, 0), np.int64)


def has_models(job: Job) -> bool:
    """Whether every rank launched GPU work, so that all of them can be replayed."""
    return all(len(one.profile.of(host_lane)) > 1 and len(one.profile.of(gpu_queue)) for one in job.ranks)


def _as_it_is(made: Model) -> Model:
    return made


def pace_ns(clocks: list[Clock]) -> float:
    """A step of the job is that of its slowest rank."""
    return max(one.step for one in clocks)
