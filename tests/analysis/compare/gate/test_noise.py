"""statistics.py: what may be chance, from the steps of one run, and from several runs."""

import random
from statistics import median

import pytest

from tb_torchcompile_plugin.analysis.statistics import GATE, noise_of_runs, spread, student_t


@pytest.mark.parametrize(
    ("freedom", "chance", "expected"),
    [
        (1, 0.05, 12.706),
        (2, 0.05, 4.303),
        (7, 0.05, 2.365),
        (30, 0.05, 2.042),
        (1, 0.01, 63.657),
        (10, 0.01, 3.169),
    ],
)
def test_students_t_is_that_of_the_tables(freedom, chance, expected):
    assert student_t(freedom, chance) == pytest.approx(expected, abs=5e-4)


def test_one_sample_tells_no_spread():
    assert spread([5]) is None and spread([]) is None
    assert noise_of_runs([[5]], [5], [6], GATE) is None


def known(value):
    assert value is not None
    return value


def test_few_slow_steps_of_many_are_no_spread():
    steady = [1000 + number % 10 for number in range(30)]
    assert known(spread([*steady, 5000, 6000, 7000])) < 10
    assert known(spread([*steady[:10], 5000])) > 1000


def test_steps_do_not_add_up_to_certainty():
    """A thousand steps of one run say no more of the next run than thirty."""
    random.seed(0)
    few, many = ([round(random.gauss(1000, 10)) for _ in range(number)] for number in (30, 1000))
    of_many, of_few = (known(noise_of_runs([steps], [1000], steps, GATE)) for steps in (many, few))
    assert of_many > 0.5 * of_few > 20


def test_the_larger_of_both_counts():
    apart = noise_of_runs([[100, 100], [200, 200], [300, 300]], [100, 200, 300], [200, 200], GATE)
    assert apart is not None and apart > 300  # the steps alone would say 0
    steps = noise_of_runs([[100, 300], [100, 300], [100, 300]], [200, 200, 200], [100, 300], GATE)
    assert steps is not None and steps > 300  # the runs alone would say 0


def test_more_questions_need_more():
    runs = [[100, 101, 102], [100], [101, 100, 102]]
    assert known(
        noise_of_runs(runs[:1], runs[1], runs[2], GATE._replace(chance=GATE.chance / 50))
    ) > 1.3 * known(noise_of_runs(runs[:1], runs[1], runs[2], GATE))


def test_runs_that_differ_by_chance_are_rarely_beyond_it():
    random.seed(1)
    beyond = 0
    for _ in range(2000):
        *base, head = ([round(random.gauss(10_000, 200)) for _ in range(6)] for _ in range(4))
        values = [round(median(one)) for one in base]
        apart = noise_of_runs(base, values, head, GATE)
        assert apart is not None
        beyond += median(head) - median(values) > apart
    assert beyond <= 4


@pytest.mark.parametrize(("slower", "seen"), [(1.06, True), (1.02, False)])
def test_ten_steady_steps_tell_six_percent(slower, seen):
    """Steps that vary by one percent: what is said in docs/guides/ci-gate.md."""
    random.seed(2)
    beyond = 0
    for _ in range(200):
        base = [round(random.gauss(1e6, 1e4)) for _ in range(10)]
        head = [round(random.gauss(slower * 1e6, 1e4)) for _ in range(10)]
        apart = noise_of_runs([base], [round(median(base))], head, GATE)
        assert apart is not None and 0.02e6 < apart < 0.09e6
        beyond += median(head) - median(base) > apart
    assert beyond > 180 if seen else beyond < 4
