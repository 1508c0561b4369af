"""Where does each rank's time go in each step: compute, waiting, transfer, copies or idling? To the ns.

A step of a rank is its GPU's: from the first work that it launched to the first that the next one did. Compute that
overlaps communication counts as overlapped; of communication alone, what waits for another rank is separate from what
transfers, and from what may do either.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, RankGpu, RankGpuSteps
from tb_torchcompile_plugin.job.instances import calls
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import sums
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract, union
from tb_torchcompile_plugin.profile.steps import mean_of_steps


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

    @property
    def mean_ns(self) -> float:
        """Mean length of a step."""
        return mean_of_steps(self.span)


class StepLengths(NamedTuple):
    """How long the steps of one rank take, of those whose end is known."""

    step: list[str]
    ns: Int64s


def job_lengths(job: Job) -> list[StepLengths]:
    """Return by rank the lengths of its GPU's steps, and of the host's where they launched nothing."""
    lengths = []
    for digest, steps in zip(job.digests, job.of(job_steps)):
        windows = digest.columns.windows
        on_host = StepLengths(windows.names, windows.end - windows.begin)
        lengths.append(StepLengths(steps.step, steps.counted) if steps else on_host)
    return lengths


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
    """Return by rank its steps; None where none of them launched GPU work."""
    rows: list[RankSteps | None] = [None] * len(job.digests)
    gpus = {
        index: digest.columns.gpu
        for index, digest in enumerate(job.digests)
        if digest.columns.gpu is not None
    }
    low, high = _bounds(job, gpus) if gpus else (0, 0)
    # Ranks whose times have room one behind the other in 64 bits: all of them, unless times are absurd.
    most = max(1, (1 << 61) // (high - low + 1))
    for start in range(0, len(gpus), most):
        chunk = {index: gpus[index] for index in list(gpus)[start : start + most]}
        columns = _columns(job, chunk)
        bounds = np.cumsum([0, *(len(gpu.steps.window) for gpu in chunk.values())])
        for (index, gpu), begin, end in zip(chunk.items(), bounds[:-1].tolist(), bounds[1:].tolist()):
            names = job.digests[index].columns.windows.names
            step = [names[row] for row in gpu.steps.window.tolist()]
            rows[index] = RankSteps(step, *(column[begin:end] for column in columns))
    return rows


def _bounds(job: Job, gpus: Mapping[int, RankGpu]) -> tuple[int, int]:
    """Return between which moments all times are (ns, Unix time)."""
    begins, ends = [job.of(calls).begin], [job.of(calls).end]
    for index, gpu in gpus.items():
        base = job.digests[index].base_ns
        begins += [gpu.steps.begin + base, gpu.exposed.starts + base]
        ends += [gpu.steps.end + base, gpu.exposed.ends + base]
    return int(np.concatenate(begins).min()), int(np.concatenate(ends).max())


def _columns(job: Job, gpus: Mapping[int, RankGpu]) -> list[Int64s]:
    """Return the steps of these ranks on one line: times of each are behind all of the rank before."""
    low, high = _bounds(job, gpus)
    moved = np.arange(len(job.digests)) * (high - low + 2) - low
    indices, calls_, times = np.array(list(gpus)), job.of(calls), job.of(waits)
    shift = (moved + np.array([digest.base_ns for digest in job.digests], np.int64))[indices]
    own = RankGpuSteps(*map(np.concatenate, zip(*(gpu.steps for gpu in gpus.values()))))
    of_step = np.repeat(shift, [len(gpu.steps.begin) for gpu in gpus.values()])
    begin, end = own.begin + of_step, own.end + of_step
    of_exposed = np.repeat(shift, [len(gpu.exposed.starts) for gpu in gpus.values()])
    starts, ends = map(np.concatenate, zip(*(gpu.exposed for gpu in gpus.values())))
    exposed = Intervals(starts + of_exposed, ends + of_exposed)
    call = np.flatnonzero(np.isin(calls_.rank_index, indices))
    waited = call[times.wait[call] > 0]
    sent = call[times.transferred[call] > 0]
    waiting = calls_.begin[waited] + moved[calls_.rank_index[waited]]
    sending = calls_.end[sent] + moved[calls_.rank_index[sent]]
    not_waiting = subtract(exposed, union(waiting, waiting + times.wait[waited]))
    unknown = subtract(not_waiting, union(sending - times.transferred[sent], sending))
    alone_ns, not_waiting_ns, unknown_ns = (
        covered_ns(part, begin, end) for part in (exposed, not_waiting, unknown)
    )
    parts = (
        own.compute,
        own.overlapped,
        not_waiting_ns - unknown_ns,
        alone_ns - not_waiting_ns,
        unknown_ns,
        own.exposed_memory,
        own.idle,
    )
    assert np.array_equal(own.end - own.begin, sum(parts))
    return [own.end - own.begin, *parts]
