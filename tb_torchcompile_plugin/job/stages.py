"""Which stage of a pipeline computes longest? Stages are ranks that hand their work to the next one by send and recv.

The longest stage sets the pace of each step, whatever its rank does right: the reason is its part of the model, and
not a late rank. With even stages each computes as long as all do in the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.as_early import Change
from tb_torchcompile_plugin.job.digest.host_costs import computes
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.profile.columns import Floats, Mask
from tb_torchcompile_plugin.profile.model.model import Model
from tb_torchcompile_plugin.torch_names.collectives import PAIRED

_MOST_STEPS = (
    2 / 3
)  # share of the steps in which a stage must be the longest; chosen by eye on the recordings
_LONGER = 1.1  # times the mean that it must compute; chosen by eye on the recordings


class Stages(NamedTuple):
    """A pipeline whose stages are uneven."""

    compute_ns: Floats  # of each rank in an average step
    longest: int  # index of the rank

    @property
    def mean_ns(self) -> float:
        return float(self.compute_ns.mean())


def stages(job: Job) -> Stages | None:
    """Return None where not all ranks hand work on, or where none of them computes longest in most steps."""
    steps = [rank for rank in job.of(job_steps) if rank is not None]
    if len(steps) < len(job.digests) or not _all_hand_on(job):
        return None
    compute = [
        np.asarray((rank.compute + rank.overlapped)[: len(rank.counted)], np.float64) for rank in steps
    ]
    count = min(map(len, compute))
    first = np.array([rank[:count] for rank in compute]).argmax(axis=0)
    longest = int(np.bincount(first).argmax())
    means = np.array([rank.mean() for rank in compute])
    is_uneven = (first == longest).mean() >= _MOST_STEPS and means[longest] >= _LONGER * means.mean()
    return Stages(means, longest) if is_uneven else None


def _all_hand_on(job: Job) -> bool:
    calls_, instances_ = job.of(calls), job.of(instances)
    is_paired = calls_.of_kind(kind.operation in PAIRED for kind in calls_.kinds)
    rows = instances_.rows[is_paired[instances_.rows[instances_.first]][instances_.number]]
    return len(np.unique(calls_.place[rows])) == len(job.digests)


def even_stages(job: TracedJob, uneven: Stages) -> dict[int, Change]:
    """Return the changes of the models of all ranks, by index: the same work, shared evenly."""
    factors = uneven.mean_ns / np.maximum(uneven.compute_ns, 1)
    return {
        index: _scaled(rank.profile.of(computes), float(factor))
        for index, (rank, factor) in enumerate(zip(job.ranks, factors))
    }


def _scaled(work: Mask, factor: float) -> Change:
    def change(model: Model) -> Model:
        return model._replace(dur=np.where(work, model.dur * factor, model.dur).astype(np.int64))

    return change
