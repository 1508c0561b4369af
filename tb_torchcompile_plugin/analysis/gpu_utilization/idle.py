"""Why did a GPU idle, and how long at a time?"""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.gpu.idle import Gaps
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.units import us

_DECADES_US = (1, 10, 100, 1_000, 10_000, 100_000)


_EDGES_US = (0, *(step * decade for decade in _DECADES_US for step in (1, 2, 5)), 1_000_000)


class IdleCauses(msgspec.Struct, frozen=True):
    """Idle time by what the launching thread did, the first that holds; `thread_activity.CAUSES` in their order."""

    compile_us: float
    communication_wait_us: float
    synchronise_us: float
    data_loading_us: float
    guards_wrapper_us: float
    break_eager_us: float
    launch_call_us: float
    python_us: float
    nothing_launched_us: float


class GapBin(msgspec.Struct, frozen=True):
    """Gaps of at least `from_us` and less than `to_us` (None: no limit)."""

    from_us: float
    to_us: float | None
    gaps: int
    idle_us: float


def idle_causes(ns: Int64s, windows: int = 1) -> IdleCauses:
    """Numbers with their names, in the mean of the windows that they are summed over."""
    return IdleCauses(*(us(value) / windows for value in ns))


def gap_histogram(gaps: Gaps) -> list[GapBin]:
    """Bins of 1, 2, 5 µs and so on, from the shortest that occurs to the longest; [] without gaps."""
    lengths = gaps.ends - gaps.starts
    edges = np.array(_EDGES_US, np.int64) * 1000
    place = np.searchsorted(edges, lengths, side="right") - 1
    if not len(place):
        return []
    counts = np.bincount(place, minlength=len(edges))
    sums = np.zeros(len(edges), np.int64)
    np.add.at(sums, place, lengths)
    return [
        GapBin(
            from_us=float(_EDGES_US[bin_]),
            to_us=float(_EDGES_US[bin_ + 1]) if bin_ + 1 < len(edges) else None,
            gaps=int(counts[bin_]),
            idle_us=us(sums[bin_]),
        )
        for bin_ in range(int(place.min()), int(place.max()) + 1)
    ]
