"""How much of a change may be chance?

Inside a run: its steps follow one another, so they say too little of how the next run will differ for their mean to be
trusted to the root of their number. All steps of a run count as one: a change is noise up to what two single steps of
these runs would lie apart 99 times of 100. Between runs: where the base is several, up to what one more of them would
lie apart from those, 99 times of 100. The larger of the two counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import cos, expm1, hypot, log, pi, sin, sqrt, tan
from statistics import median, stdev

_CHANCE = 0.01  # that a change of nothing is larger than its noise
_MOST = 50.0  # as a logarithm: beyond that everything is noise
_ROBUST_FROM = 20  # steps: fewer tell too little of which of them are odd
_OF_NORMAL = 1.4826  # standard deviations in a median absolute deviation, where values spread as chance does


def spread(samples: Sequence[int]) -> float | None:
    """Of single samples, as a standard deviation, None for fewer than two. From 20 on by the median absolute deviation,
    which a few slow steps do not move; of fewer the larger of both."""
    if len(samples) < 2:
        return None
    middle = median(samples)
    robust = _OF_NORMAL * median(abs(one - middle) for one in samples)
    return robust if len(samples) >= _ROBUST_FROM else max(robust, stdev(samples))


def noise(
    base: Sequence[Sequence[int]], values: Sequence[int], head: Sequence[int], questions: int = 1
) -> float | None:
    """None where neither steps nor runs tell. base: the samples of each base run; values: what each run is compared by;
    head: the samples of the other side. questions: how many are asked at once, each of which chance may answer."""
    chance = _CHANCE / questions
    known = [one for one in (_inside(base, head, chance), _between(values, chance)) if one is not None]
    return max(known, default=None)


def bounds(value: int, samples: Sequence[int]) -> tuple[int, int] | None:
    """Between which a single step lies 99 times of 100; None where fewer than two tell."""
    if (single := spread(samples)) is None:
        return None
    half = round(student_t(len(samples) - 1) * single)
    return max(0, value - half), value + half


def _inside(base: Sequence[Sequence[int]], head: Sequence[int], chance: float) -> float | None:
    known = [samples for samples in base if len(samples) > 1]
    ours, theirs = spread(head), [single for samples in known if (single := spread(samples)) is not None]
    if ours is None or not theirs:
        return None
    return student_t(min(map(len, known)) + len(head) - 2, chance) * hypot(median(theirs), ours)


def _between(values: Sequence[int], chance: float) -> float | None:
    """How far above the middle of those known one more run would lie: in ratios, as a busy machine slows all alike."""
    if len(values) < 2 or min(values) <= 0:
        return None if len(values) < 2 else 0.0
    apart = stdev(log(value) for value in values) * sqrt(1 + 1 / len(values))
    return median(values) * expm1(min(_MOST, student_t(len(values) - 1, chance) * apart))


@lru_cache
def student_t(freedom: int, chance: float = _CHANCE) -> float:
    """Beyond which Student's t lies with this chance, on both sides together."""
    low, high = 0.0, pi / 2  # of its angle
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _inside_angle(angle, freedom) < 1 - chance else (low, angle)
    return sqrt(freedom) * tan(low)


def _inside_angle(angle: float, freedom: int) -> float:
    """The chance that |t| < √freedom · tan(angle): a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term = total = (cos(angle) if odd else 1.0) if freedom > 1 else 0.0
    for number in range(1 + odd, freedom - 2, 2):
        term *= number / (number + 1) * cos(angle) ** 2
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
