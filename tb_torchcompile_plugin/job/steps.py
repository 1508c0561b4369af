"""Where each rank's time goes in each step: compute, communication in its two halves, copies, idling. To the ns.

A step of a rank is its GPU's: from the first work that it launched to the first that the next one did. Compute that
communication runs beside counts as overlapped; of communication alone what waits for another rank is told from what
transfers, and from what may do either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import transferring, waiting
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work, layers
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import GpuSteps, StepWindows, gpu_steps, mean_of_steps


class RankSteps(NamedTuple):
    """The steps of one rank as columns (ns); all but `step` and `span` sum to `span`. exposed_unknown: nothing tells
    whether it waits or transfers."""

    step: list[str]
    span: Int64s
    compute: Int64s
    overlapped: Int64s
    exposed_transfer: Int64s
    exposed_wait: Int64s
    exposed_unknown: Int64s
    exposed_memory: Int64s
    idle: Int64s

    @property
    def counted(self) -> Int64s:
        """Lengths of those whose end is known: all but the last one (see `mean_of_steps`)."""
        return self.span[:-1] if len(self.span) > 1 else self.span

    @property
    def mean_ns(self) -> float:
        """Of a step."""
        return mean_of_steps(self.span)


class StepLengths(NamedTuple):
    """How long the steps of one rank take (ns), of those whose end is known."""

    step: list[str]
    ns: Int64s


def job_lengths(job: Job) -> list[StepLengths]:
    """By rank: its GPU's steps, and the host's where they launched nothing."""
    return [
        StepLengths(steps.step, steps.counted) if steps else _on_host(one.profile)
        for one, steps in zip(job.ranks, job.of(job_steps))
    ]


def _on_host(profile: Profile) -> StepLengths:
    windows = profile.of(StepWindows)
    return StepLengths(windows.names, windows.ends - windows.starts)


def marked_steps(job: Job) -> int:
    """How many steps were marked, on the rank with the most; 1 without any, for the span."""
    return max(1, *(len(one.profile.of(StepWindows)) for one in job.ranks))


def job_steps(job: Job) -> list[RankSteps | None]:
    """By rank; None where no step of it launched GPU work."""
    return [_of_rank(job, place) for place in range(len(job.ranks))]


def _of_rank(job: Job, place: int) -> RankSteps | None:
    profile = job.ranks[place].profile
    steps = profile.of(gpu_steps)
    if steps is None or not len(steps.step):
        return None
    names = profile.of(StepWindows).names
    halves = job.of(waiting, place), job.of(transferring, place)
    return _parts(profile, steps, halves, [names[row] for row in steps.step.tolist()])


def _parts(
    profile: Profile, steps: GpuSteps, halves: tuple[Intervals, Intervals], names: list[str]
) -> RankSteps:
    work = profile.of(gpu_work)
    mine = work.where(work.device == steps.device)
    did = layers(profile.trace, mine)
    exposed = subtract(did.communication, did.compute)
    unheld = subtract(exposed, halves[0])
    unknown = subtract(unheld, halves[1])

    def inside(intervals: Intervals) -> Int64s:
        return covered_ns(intervals, steps.begin, steps.end)

    communicating = inside(did.communication)
    computing, active, alone = inside(did.compute), inside(did.memory), inside(exposed)
    untold, not_waiting = inside(unknown), inside(unheld)
    overlapped = computing - inside(
        subtract(did.compute, busy(profile.trace, mine.of("communication").index))
    )
    rows = RankSteps(
        step=names,
        span=steps.length,
        compute=computing - overlapped,
        overlapped=overlapped,
        exposed_transfer=not_waiting - untold,
        exposed_wait=alone - not_waiting,
        exposed_unknown=untold,
        exposed_memory=active - communicating,
        idle=steps.length - active,
    )
    assert np.array_equal(rows.span, sum(rows[2:]))
    return rows
