"""Where each rank's time goes in each step: compute, communication in its two halves, copies, idling. To the ns.

A step of a rank is its GPU's: from the first work that it launched to the first that the next one did. Compute that
communication runs beside counts as overlapped; of communication alone what waits for another rank is told from what
transfers, and from what may do either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, gpu_of, windows_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import transferring, waiting
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.steps import mean_of_steps


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
        StepLengths(steps.step, steps.counted) if steps else _on_host(one)
        for one, steps in zip(job.digests, job.of(job_steps))
    ]


def _on_host(one: RankDigest) -> StepLengths:
    windows = one.of(windows_of)
    return StepLengths(windows.names, windows.end - windows.begin)


def marked_steps(job: Job) -> int:
    """How many steps were marked, on the rank with the most; 1 without any, for the span."""
    return max(1, *(len(one.of(windows_of).names) for one in job.digests))


def job_steps(job: Job) -> list[RankSteps | None]:
    """By rank; None where no step of it launched GPU work."""
    return [_of_rank(job, place, one) for place, one in enumerate(job.digests)]


def _of_rank(job: Job, place: int, one: RankDigest) -> RankSteps | None:
    gpu, names = one.of(gpu_of), one.of(windows_of).names
    if gpu is None:
        return None
    own = gpu.steps

    def inside(intervals: Intervals) -> Int64s:
        return covered_ns(intervals, own.begin, own.end)

    unheld = subtract(gpu.exposed, job.of(waiting, place))
    alone, not_waiting = inside(gpu.exposed), inside(unheld)
    untold = inside(subtract(unheld, job.of(transferring, place)))
    rows = RankSteps(
        step=[names[row] for row in own.window.tolist()],
        span=own.end - own.begin,
        compute=own.compute,
        overlapped=own.overlapped,
        exposed_transfer=not_waiting - untold,
        exposed_wait=alone - not_waiting,
        exposed_unknown=untold,
        exposed_memory=own.exposed_memory,
        idle=own.idle,
    )
    assert np.array_equal(rows.span, sum(rows[2:]))
    return rows
