"""How long the steps of the training loop took by the handler's notes: unrecorded, as it runs otherwise, and recorded.

By the host's clock, without steps that compiled; `StepTimes` in summary.proto says where a step ends.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tb_torchcompile_plugin.reader.compile_data import CompileData

_FEWEST = 2  # one alone may be the first of an epoch


def unrecorded_step_ns(data: CompileData) -> int | None:
    """The median step while no profiler recorded, in ns; None where fewer than two were noted, as with a log."""
    return _median(data.summary.steps.unrecorded_ns)


def recorded_step_ns(data: CompileData) -> int | None:
    """The median step while one recorded, in ns, from the same source; None where fewer than two were noted."""
    return _median(data.summary.steps.recorded_ns)


def _median(durations_ns: Sequence[int]) -> int | None:
    return int(statistics.median(durations_ns)) if len(durations_ns) >= _FEWEST else None
