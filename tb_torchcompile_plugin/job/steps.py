"""Where each rank's time goes in each step: compute, communication in its two halves, copies, idling. To the ns.

A step of a rank is its GPU's: from the first work that it launched to the first that the next one did. Compute that
communication runs beside counts as overlapped; of communication alone what waits for another rank is told from what
transfers, and from what may do either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_digest import OwnSteps, RankDigest, RankGpu, gpu_of, windows_of
from tb_torchcompile_plugin.job.instances import calls
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract, union
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
    rows: list[RankSteps | None] = [None] * len(job.digests)
    gpus = {place: gpu for place, one in enumerate(job.digests) if (gpu := one.of(gpu_of)) is not None}
    for places in _fitting(job, gpus):
        columns = _columns(job, {place: gpus[place] for place in places})
        bounds = np.cumsum([0, *(len(gpus[place].steps.window) for place in places)])
        for place, begin, end in zip(places, bounds[:-1].tolist(), bounds[1:].tolist()):
            names = job.digests[place].of(windows_of).names
            step = [names[row] for row in gpus[place].steps.window.tolist()]
            rows[place] = RankSteps(step, *(column[begin:end] for column in columns))
    return rows


def _fitting(job: Job, gpus: Mapping[int, RankGpu]) -> list[list[int]]:
    """Ranks whose times find room one behind the other in 64 bits: all of them, but where times are absurd."""
    places = list(gpus)
    low, high = _bounds(job, gpus) if places else (0, 0)
    most = max(1, (1 << 61) // (high - low + 1))
    return [places[first : first + most] for first in range(0, len(places), most)]


def _bounds(job: Job, gpus: Mapping[int, RankGpu]) -> tuple[int, int]:
    """Between which moments all that is looked at lies (ns, Unix time)."""
    begin, end = _all(job, gpus, lambda one: (one.steps.begin, one.steps.end))
    starts, ends = _all(job, gpus, lambda one: one.exposed)
    made = job.of(calls)
    low = min(int(column.min()) for column in (begin, starts, made.begin) if len(column))
    return low, max(int(column.max()) for column in (end, ends, made.end) if len(column))


def _all(
    job: Job, gpus: Mapping[int, RankGpu], of_each: Callable[[RankGpu], tuple[Int64s, ...]]
) -> list[Int64s]:
    """Times of these ranks, one rank behind the other (ns, Unix time)."""
    parts = [[column + job.digests[place].base_ns for column in of_each(one)] for place, one in gpus.items()]
    return [np.concatenate(columns) for columns in zip(*parts)]


def _columns(job: Job, gpus: Mapping[int, RankGpu]) -> list[Int64s]:
    """Of the steps of these ranks: times of each lie behind all of the rank before, so that all are one line."""
    low, high = _bounds(job, gpus)
    own = OwnSteps(*(np.concatenate(columns) for columns in zip(*(one.steps for one in gpus.values()))))
    moved = np.arange(len(job.digests)) * (high - low + 2) - low
    places, made, times = np.array(list(gpus)), job.of(calls), job.of(waits)
    of_step = moved[np.repeat(places, [len(one.steps.window) for one in gpus.values()])]
    begin, end = (
        times_ + of_step for times_ in _all(job, gpus, lambda one: (one.steps.begin, one.steps.end))
    )
    of_part = moved[np.repeat(places, [len(one.exposed.starts) for one in gpus.values()])]
    exposed = Intervals(*(times_ + of_part for times_ in _all(job, gpus, lambda one: one.exposed)))
    call = np.flatnonzero(np.isin(made.place, places))
    held = call[times.wait[call] > 0]
    sent = call[times.transferred[call] > 0]
    waiting = made.begin[held] + moved[made.place[held]]
    sending = made.end[sent] + moved[made.place[sent]]
    unheld = subtract(exposed, union(waiting, waiting + times.wait[held]))
    unsent = subtract(unheld, union(sending - times.transferred[sent], sending))
    alone, not_waiting, untold = (covered_ns(one, begin, end) for one in (exposed, unheld, unsent))
    parts = (
        own.compute,
        own.overlapped,
        not_waiting - untold,
        alone - not_waiting,
        untold,
        own.exposed_memory,
        own.idle,
    )
    assert np.array_equal(own.end - own.begin, sum(parts))
    return [own.end - own.begin, *parts]
