"""How long the steps of the training loop took by the handler's notes: unrecorded, as it runs otherwise, and recorded.

By the host's clock, without steps that compiled; `StepTimes` in summary.proto says where a step ends.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tb_torchcompile_plugin.reader.compile_data import CompileData

_FEWEST = 2
_FEW = 5
_LONGEST = 10  # times the median: what takes longer is no step, but a pause between two


def unrecorded_step_ns(data: CompileData) -> int | None:
    """The mean step while no profiler recorded, in ns; None where too few were noted, as with a log.

    One alone may be the first of an epoch, but not where it is shorter than all that were recorded: no recording makes
    a step shorter.
    """
    steps = data.summary.steps
    if len(steps.unrecorded_ns) == 1 and steps.unrecorded_ns[0] < min(steps.recorded_ns, default=0):
        return int(steps.unrecorded_ns[0])
    return _mean(steps.unrecorded_ns)


def recorded_step_ns(data: CompileData) -> int | None:
    """The mean step while one recorded, in ns, from the same source; None where fewer than two were noted."""
    return _mean(data.summary.steps.recorded_ns)


def host_step_ns(data: CompileData) -> int | None:
    """What the host needs for a step at most, unrecorded: where it runs ahead of a GPU, steps are short until the queue
    is full. The second shortest, as one alone may be none; None where fewer than five were noted."""
    noted = sorted(data.summary.steps.unrecorded_ns)
    return noted[1] if len(noted) >= _FEW else None


def _mean(durations_ns: Sequence[int]) -> int | None:
    """Of all that a loop does every few steps, such as waiting for a loader whose workers are behind, each has its
    part."""
    if len(durations_ns) < _FEWEST:
        return None
    most = _LONGEST * statistics.median(durations_ns)
    return round(statistics.fmean(ns for ns in durations_ns if ns <= most))
