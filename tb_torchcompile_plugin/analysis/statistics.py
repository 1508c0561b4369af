"""How far do numbers differ by chance? One model of noise, whose arguments say what a comparison asks of it.

Means differ by Welch's t, single steps by Student's. Sources: Welch 1947; Student's t as a finite sum, Abramowitz and
Stegun 26.7.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import cos, expm1, hypot, log, pi, sin, sqrt, tan
from statistics import fmean, median, stdev
from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.profile.columns import NORMAL_DEVIATIONS

_MAX_LOG_SPREAD = 50.0  # of ratios between runs; beyond that everything is noise, and exp would overflow
_ROBUST_FROM = 20  # steps; of fewer, the outliers cannot be recognised (chosen by eye)


class NoiseModel(NamedTuple):
    """What counts as noise."""

    chance: float  # that a change of nothing is larger
    of_means: bool  # whether means are compared; otherwise all steps of a run count as one, as they follow one another
    processes: float = 0.0  # of a step, by which the means of two processes differ though nothing else does


COMPARE = NoiseModel(0.05, of_means=True)  # the usual level
PAYBACK = NoiseModel(0.05, of_means=True, processes=0.01)  # the latter chosen by eye
GATE = NoiseModel(0.01, of_means=False)  # docs/guides/ci-gate.md


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


class StepTimeDifference(msgspec.Struct, frozen=True):
    """The step times of both sides."""

    baseline: StepTimes
    candidate: StepTimes
    # How far apart the means of the same program's steps are by chance, 19 times of 20; None with fewer than two steps.
    noise_us: float | None
    within_noise: bool | None  # whether the difference is no larger than that


def step_time_difference(
    baseline: StepTimes | None, candidate: StepTimes | None, model: NoiseModel = COMPARE
) -> StepTimeDifference | None:
    """Compare step times, and say whether the difference is noise; None where a side has none."""
    if baseline is None or candidate is None:
        return None
    before, after = (Spread(side.steps, side.deviation_us, side.mean_us) for side in (baseline, candidate))
    chance = noise(before, after, model)
    within = None if chance is None else abs(candidate.mean_us - baseline.mean_us) <= chance
    return StepTimeDifference(baseline, candidate, chance, within)


class Spread(NamedTuple):
    """How much the steps of a run vary."""

    steps: int
    deviation: float | None  # the standard deviation; None for fewer than two steps
    mean: float = 0.0


def noise(a: Spread, b: Spread, model: NoiseModel) -> float | None:
    """Return how far two runs lie apart by chance; None for a single step, where processes do not differ either."""
    if (a.deviation is None or b.deviation is None) and not model.processes:
        return None
    # A single time shows no variation: then only the other side's counts.
    a, b = (Spread(2, 0.0, side.mean) if side.deviation is None else side for side in (a, b))
    variances = [(side.deviation or 0.0) ** 2 / (side.steps if model.of_means else 1) for side in (a, b)]
    freedom, variance = a.steps + b.steps - 2, sum(variances)
    if model.of_means and variance:
        freedom = int(variance**2 / sum(v**2 / (side.steps - 1) for v, side in zip(variances, (a, b))))
    inside = student_t(freedom, model.chance) * sqrt(variance) if variance else 0.0
    return hypot(inside, model.processes * max(a.mean, b.mean)) if model.processes else inside


def noise_of_runs(
    base: Sequence[Sequence[int]], values: Sequence[int], head: Sequence[int], model: NoiseModel
) -> float | None:
    """Return how large a change may be by chance; None where neither steps nor runs show it.

    base, head: samples of each base run and of the other side; values: of the base runs.
    """
    runs = [Spread(len(samples), spread(samples)) for samples in base if len(samples) > 1]
    candidates = [_noise_between(values, model.chance)]
    if runs:
        usual = Spread(min(run.steps for run in runs), median(run.deviation or 0.0 for run in runs))
        candidates.append(noise(usual, Spread(len(head), spread(head)), model))
    return max((value for value in candidates if value is not None), default=None)


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
