"""Stages of a pipeline: ranks that hand their work on, each to the next, by send and recv.

The stage that computes longest sets the pace at each step, whatever its rank does right: it is its place in the model,
and not a late rank. With even stages each computes as long as all do in the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.as_early import Change
from tb_torchcompile_plugin.job.digest.host_costs import computes
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.steps import RankSteps, job_steps
from tb_torchcompile_plugin.profile.columns import Floats
from tb_torchcompile_plugin.profile.model.model import Model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.collectives import PAIRED

_EACH = 2 / 3  # of the steps in which a stage is the longest: it is so by its place
_LONGER = 1.1  # than the mean, from which on a stage is


class Stages(NamedTuple):
    """compute_ns: of each rank in an average step. longest: the place of the rank that computes longest at each one."""

    compute_ns: Floats
    longest: int

    @property
    def mean_ns(self) -> float:
        return float(self.compute_ns.mean())


def stages(job: Job) -> Stages | None:
    """None where not all ranks hand work on, or where none of them computes longest at each step."""
    steps = [one for one in job.of(job_steps) if one is not None]
    if len(steps) < len(job.digests) or not _all_hand_on(job):
        return None
    compute = [_computing(one) for one in steps]
    count = min(map(len, compute))
    first = np.array([one[:count] for one in compute]).argmax(axis=0)
    longest = int(np.bincount(first).argmax())
    means = np.array([one.mean() for one in compute])
    by_place = (first == longest).mean() >= _EACH and means[longest] >= _LONGER * means.mean()
    return Stages(means, longest) if by_place else None


def _computing(steps: RankSteps) -> Floats:
    """Of each step whose end is known (ns)."""
    whole = steps.compute + steps.overlapped
    return np.asarray(whole[: len(steps.counted)], np.float64)


def _all_hand_on(job: Job) -> bool:
    made, known = job.of(calls), job.of(instances)
    paired = made.of_kind(one.operation in PAIRED for one in made.kinds)
    handing = paired[known.rows[known.first]][known.number]
    return len(np.unique(made.place[known.rows[handing]])) == len(job.digests)


def even_stages(job: TracedJob, known: Stages) -> dict[int, Change]:
    """The changes of the models of all ranks, by place: the same work, shared evenly."""
    factors = known.mean_ns / np.maximum(known.compute_ns, 1)
    return {
        place: _scaled(one.profile, float(factor))
        for place, (one, factor) in enumerate(zip(job.ranks, factors))
    }


def _scaled(profile: Profile, factor: float) -> Change:
    mine = profile.of(computes)

    def change(made: Model) -> Model:
        return made._replace(dur=np.where(mine, made.dur * factor, made.dur).astype(np.int64))

    return change
