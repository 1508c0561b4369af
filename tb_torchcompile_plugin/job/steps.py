"""Where does each rank's time go in each step: compute, waiting, transfer, copies or idling? To the ns.

A step of a rank is its GPU's: from the first work that it launched to the first that the next one did. Compute that
overlaps communication counts as overlapped; of communication alone, what waits for another rank is separate from what
transfers, and from what may do either.
"""

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, RankGpu
from tb_torchcompile_plugin.job.instances import calls, waits
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, covered_ns, subtract, sums, union


class RankSteps(NamedTuple):
    """The steps of one rank as columns (ns); all but `step` and `span` sum to `span`."""

    step: list[str]
    span: Int64s
    compute: Int64s
    overlapped: Int64s
    exposed_transfer: Int64s
    exposed_wait: Int64s
    exposed_unknown: Int64s  # waits or transfers
    exposed_memory: Int64s
    idle: Int64s

    @property
    def counted(self) -> Int64s:
        """Lengths of the steps whose end is known: all but the last one (see `mean_of_steps`)."""
        return self.span[:-1] if len(self.span) > 1 else self.span


def job_step_ns(job: Job) -> list[int]:
    """Return the length of each step of the job: that on its slowest rank.

    A step of a rank is its GPU's, or the host's where it launched nothing.
    """
    longest: dict[str, int] = {}
    for digest, steps in zip(job.digests, job.of(job_steps)):
        windows = digest.columns.windows
        names, lengths = (
            (steps.step, steps.counted) if steps else (windows.names, windows.end - windows.begin)
        )
        for name, ns in zip(names, lengths.tolist()):
            longest[name] = max(longest.get(name, 0), ns)
    return list(longest.values())


def job_step_us(job: Job) -> float | None:
    """Return how long a step of the job is, that of its slowest rank; None where no rank has steps."""
    return max((digest.step_us for digest in job.digests if digest.step_us is not None), default=None)


def marked_steps(job: Job) -> int:
    """Return how many steps were marked, on the rank with the most; 1 without any, for the span."""
    return max(1, *(len(digest.columns.windows.names) for digest in job.digests))


class WaitedInSteps(NamedTuple):
    """How long ranks waited for others in the steps that all ranks have, without what was recorded before and behind.

    Where they share no step: in all that was recorded.
    """

    steps: int
    waited: Int64s  # by rank (ns)
    caused_by: Int64s  # by rank: how long all others waited for it


def waited_in_steps(job: Job) -> WaitedInSteps:
    """Return the waits inside of the shared steps: those of a rank are no longer than its steps."""
    windows = [_windows(digest) for digest in job.digests]
    shared = set(windows[0][0]).intersection(*(names for names, _ in windows[1:]))
    calls_, times, ranks = job.of(calls), job.of(waits), len(job.digests)
    inside = np.maximum(times.wait, 0)
    for index, (names, (begin, end)) in enumerate(windows if shared else ()):
        rows, is_shared = calls_.of_rank(index), np.array([name in shared for name in names], bool)
        wait_begin = calls_.begin[rows] - job.digests[index].base_ns
        steps = union(begin[is_shared], end[is_shared])
        inside[rows] = covered_ns(steps, wait_begin, wait_begin + inside[rows])
    waited = np.flatnonzero(times.awaited >= 0)
    by_rank, caused_by = (
        sums(rank_index[waited], inside[waited], ranks) for rank_index in (calls_.rank_index, times.awaited)
    )
    return WaitedInSteps(len(shared), by_rank, caused_by)


def _windows(digest: RankDigest) -> tuple[list[str], Intervals]:
    """Return the steps of a rank on its GPU, or on the host where they launched nothing, by the clock of its trace."""
    windows, gpu = digest.columns.windows, digest.columns.gpu
    if gpu is None:
        return windows.names, Intervals(windows.begin, windows.end)
    names = [windows.names[row] for row in gpu.steps.window.tolist()]
    return names, Intervals(gpu.steps.begin, gpu.steps.end)


def job_steps(job: Job) -> list[RankSteps | None]:
    """Return the steps by rank; None if none launched GPU work."""
    return [
        _rank_steps(job, index, digest, digest.columns.gpu) if digest.columns.gpu else None
        for index, digest in enumerate(job.digests)
    ]


def _rank_steps(job: Job, index: int, digest: RankDigest, gpu: RankGpu) -> RankSteps:
    """Split what communicates alone by whether it waits, transfers, or may do either."""
    rows, own, times = job.of(calls).of_rank(index), gpu.steps, job.of(waits)
    begin, end = (column[rows] - digest.base_ns for column in (job.of(calls).begin, job.of(calls).end))
    wait, sent = np.maximum(times.wait[rows], 0), times.transferred[rows]
    not_waiting = subtract(gpu.exposed, union(begin, begin + wait))
    unknown = subtract(not_waiting, union(end - sent, end))
    alone_ns, not_waiting_ns, unknown_ns = (
        covered_ns(part, own.begin, own.end) for part in (gpu.exposed, not_waiting, unknown)
    )
    names = digest.columns.windows.names
    steps = RankSteps(
        step=[names[window] for window in own.window.tolist()],
        span=own.end - own.begin,
        compute=own.compute,
        overlapped=own.overlapped,
        exposed_transfer=not_waiting_ns - unknown_ns,
        exposed_wait=alone_ns - not_waiting_ns,
        exposed_unknown=unknown_ns,
        exposed_memory=own.exposed_memory,
        idle=own.idle,
    )
    assert np.array_equal(steps.span, sum(steps[2:]))
    return steps
