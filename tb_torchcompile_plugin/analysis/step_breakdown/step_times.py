"""How long does a step take, how much does that vary, and is a difference more than that?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

# Two-sided 95 % quantiles of Student's t by degrees of freedom, 1 to 30; the last one holds beyond.
_T95_TEXT = """12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131
    2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042 1.960"""
_T95 = [float(number) for number in _T95_TEXT.split()]


class StepTimes(msgspec.Struct, frozen=True):
    """Of the profiled steps. `deviation_us` is the sample standard deviation, None for fewer than two."""

    steps: int
    mean_us: float
    median_us: float
    min_us: float
    max_us: float
    deviation_us: float | None


def step_times(walls_us: Sequence[float]) -> StepTimes | None:
    """None without steps."""
    if not walls_us:
        return None
    return StepTimes(
        steps=len(walls_us),
        mean_us=statistics.fmean(walls_us),
        median_us=statistics.median(walls_us),
        min_us=min(walls_us),
        max_us=max(walls_us),
        deviation_us=statistics.stdev(walls_us) if len(walls_us) > 1 else None,
    )


def noise_us(a: StepTimes, b: StepTimes) -> float | None:
    """How far the means of two such samples would lie apart by chance in 95 of 100 cases (Welch).

    None where one side has a single step: nothing tells how much it varies.
    """
    if a.deviation_us is None or b.deviation_us is None:
        return None
    ours, theirs = a.deviation_us**2 / a.steps, b.deviation_us**2 / b.steps
    if not ours + theirs:
        return 0.0
    freedom = (ours + theirs) ** 2 / (ours**2 / (a.steps - 1) + theirs**2 / (b.steps - 1))
    return _T95[min(int(freedom), len(_T95)) - 1] * math.sqrt(ours + theirs)
