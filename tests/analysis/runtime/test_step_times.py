"""Test step_breakdown.py: the spread of step times, and what is noise."""

import random

import pytest

from tb_torchcompile_plugin.analysis.statistics import StepTimes, step_time_difference, step_times


def noise_us(a: StepTimes, b: StepTimes) -> float | None:
    compared = step_time_difference(a, b)
    return compared.noise_us if compared else None


def times(*walls_us: float) -> StepTimes:
    answer = step_times(walls_us)
    assert answer is not None
    return answer


def test_statistics_by_hand():
    answer = times(10, 12, 20)
    assert (answer.steps, answer.mean_us, answer.median_us) == (3, 14, 12)
    assert (answer.min_us, answer.max_us) == (10, 20)
    assert answer.deviation_us == pytest.approx(28**0.5)
    assert step_times([]) is None
    assert times(5.0).deviation_us is None


def test_noise_by_hand():
    """Two samples of four with a standard deviation of 2: t(6) = 2.447, times the root of 1 + 1."""
    a, b = times(8, 10, 12, 10), times(18, 20, 22, 20)
    assert noise_us(a, b) == pytest.approx(2.446912 * (8 / 3 / 4 * 2) ** 0.5)
    assert noise_us(a, times(1)) is None
    assert noise_us(times(1, 1), times(2, 2)) == 0


def test_one_pair_in_twenty_of_the_same_program_lies_outside():
    chance = random.Random(0)
    outside = 0
    for _ in range(2000):
        a, b = (times(*(chance.gauss(100, 5) for _ in range(4))) for _ in "ab")
        outside += abs(a.mean_us - b.mean_us) > (noise_us(a, b) or 0)
    assert 50 <= outside <= 130
