"""How far do numbers differ by chance? One place for the questions of comparisons, gates and break-even.

Two means differ by Welch's t. The runs of a gate are judged by single steps and by several runs (see `noise`). Sources:
Welch 1947; Student's t as a finite sum, Abramowitz and Stegun 26.7.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import cos, expm1, hypot, log, pi, sin, sqrt, tan
from statistics import fmean, median, stdev

import msgspec

from tb_torchcompile_plugin.profile.intervals import NORMAL_DEVIATIONS

_CHANCE = 0.05  # that two means of the same program are further apart; the usual level
_MAX_LOG_SPREAD = 50.0  # of ratios between runs; beyond that everything is noise, and exp would overflow
_ROBUST_FROM = 20  # steps; of fewer, the outliers cannot be recognised (chosen by eye)


class StepTimes(msgspec.Struct, frozen=True):
    """How long the profiled steps take."""

    steps: int
    mean_us: float
    median_us: float
    min_us: float
    max_us: float
    deviation_us: float | None  # the sample standard deviation; None for fewer than two steps


def step_times(walls_us: Sequence[float]) -> StepTimes | None:
    """Return how long steps take and how much they vary; None without steps."""
    if not walls_us:
        return None
    return StepTimes(
        steps=len(walls_us),
        mean_us=fmean(walls_us),
        median_us=median(walls_us),
        min_us=min(walls_us),
        max_us=max(walls_us),
        deviation_us=stdev(walls_us) if len(walls_us) > 1 else None,
    )


def noise_us(a: StepTimes, b: StepTimes) -> float | None:
    """Return how far the means lie apart by chance in 95 of 100 cases (Welch); None for a single step."""
    if a.deviation_us is None or b.deviation_us is None:
        return None
    variance_a, variance_b = a.deviation_us**2 / a.steps, b.deviation_us**2 / b.steps
    variance = variance_a + variance_b
    if not variance:
        return 0.0
    freedom = variance**2 / (variance_a**2 / (a.steps - 1) + variance_b**2 / (b.steps - 1))
    return student_t(int(freedom), _CHANCE) * sqrt(variance)


def noise(
    base: Sequence[Sequence[int]], values: Sequence[int], head: Sequence[int], chance: float
) -> float | None:
    """Return how large a change may be by chance; None where neither steps nor runs show it.

    base, head: samples of each base run and of the other side; values: of the base runs; chance: that a change of
    nothing is larger.
    """
    candidates = (_noise_inside(base, head, chance), _noise_between(values, chance))
    return max((value for value in candidates if value is not None), default=None)


def _noise_inside(base: Sequence[Sequence[int]], head: Sequence[int], chance: float) -> float | None:
    runs = [samples for samples in base if len(samples) > 1]
    spread_head, spreads = spread(head), [value for run in runs if (value := spread(run)) is not None]
    if spread_head is None or not spreads:
        return None
    return student_t(min(map(len, runs)) + len(head) - 2, chance) * hypot(median(spreads), spread_head)


def _noise_between(values: Sequence[int], chance: float) -> float | None:
    """Return how far above the middle one more run would be: in ratios, as a busy machine slows all alike."""
    if len(values) < 2:
        return None
    if min(values) <= 0:
        return 0.0
    distance = stdev(log(value) for value in values) * sqrt(1 + 1 / len(values))
    return median(values) * expm1(min(_MAX_LOG_SPREAD, student_t(len(values) - 1, chance) * distance))


def spread(samples: Sequence[int]) -> float | None:
    """Return the standard deviation of single samples, None for fewer than two.

    From 20 on by the median absolute deviation, which a few slow steps do not move; of fewer the larger of both.
    """
    if len(samples) < 2:
        return None
    center = median(samples)
    robust = NORMAL_DEVIATIONS * median(abs(sample - center) for sample in samples)
    return robust if len(samples) >= _ROBUST_FROM else max(robust, stdev(samples))


@lru_cache
def student_t(freedom: int, chance: float) -> float:
    """Return beyond which Student's t is with this chance, on both sides together."""
    low, high = 0.0, pi / 2  # of its angle
    for _ in range(60):  # halvings: more than a double can tell apart
        angle = (low + high) / 2
        low, high = (angle, high) if _inside_angle(angle, freedom) < 1 - chance else (low, angle)
    return sqrt(freedom) * tan(low)


def _inside_angle(angle: float, freedom: int) -> float:
    """Return the chance that |t| < √freedom · tan(angle): a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term = total = (cos(angle) if odd else 1.0) if freedom > 1 else 0.0
    for number in range(1 + odd, freedom - 2, 2):
        term *= number / (number + 1) * cos(angle) ** 2
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
