"""The verdict, and why."""

from typing import Any

import msgspec
import pytest

from gates import a_run, count, judged, kernels, timed
from tb_torchcompile_plugin.analysis.compare.baseline import load, save
from tb_torchcompile_plugin.analysis.compare.measures import Measure, MeasuredItem

STEADY = (1000, 1001, 999, 1000)
SLOWER = (1100, 1101, 1099, 1100)
CAUGHT = MeasuredItem("graph break", "Call to print", "train/model.py", 12, 1)


def one(report):
    (condition,) = report.conditions
    return condition


def test_a_time_fails_beyond_its_threshold_and_its_noise():
    report = judged(a_run(step=timed(*STEADY)), a_run(step=timed(*SLOWER)), "step>3%")
    assert (report.outcome, one(report).outcome) == ("failed", "failed")
    assert one(report).candidate - one(report).baseline == 100 > one(report).noise > 0
    assert "more than 3 %" in one(report).sentence and "noise" in one(report).sentence


@pytest.mark.parametrize(
    ("base", "head", "outcome"),
    [
        (STEADY, (1020, 1021, 1019, 1020), "passed"),  # within the threshold
        ((900, 1100, 1000, 1000), SLOWER, "noise"),
        (STEADY, (900, 1300, 1100, 1100), "noise"),
        (STEADY, (900, 901, 899, 900), "passed"),
        ((1000,), (1100,), "unknown"),  # one step each
    ],
)
def test_what_does_not_fail(base, head, outcome):
    report = judged(a_run(step=timed(*base)), a_run(step=timed(*head)), "step>3%")
    assert one(report).outcome == outcome
    assert report.outcome == ("unknown" if outcome == "unknown" else "passed")


def test_a_count_is_exact():
    for number, outcome in ((2, "failed"), (1, "passed"), (0, "passed")):
        report = judged(a_run(breaks=count(1)), a_run(breaks=count(number)), "breaks>0")
        assert (one(report).outcome, one(report).noise) == (outcome, None)


def test_what_is_not_known_is_neither_passed_nor_failed():
    known, unknown = a_run(breaks=count(0)), a_run()
    for base, head, side in (
        (known, unknown, "candidate"),
        (unknown, known, "baseline"),
        (unknown, unknown, "baseline"),
    ):
        report = judged(base, head, "breaks>0")
        assert (report.outcome, one(report).outcome) == ("unknown", "unknown")
        assert side in one(report).sentence and "nobody measured it" in one(report).sentence
        assert judged(base, head, "breaks>0", allow=["unknown"]).outcome == "passed"


def test_what_fails_fails_beside_what_is_not_known():
    base, head = a_run(breaks=count(0)), a_run(breaks=count(1))
    assert judged(base, head, "step>3%", "breaks>0").outcome == "failed"


def test_one_slower_kernel_among_many_fails():
    steady = {f"triton_{number}": [100, 101, 99] for number in range(20)}
    slower = steady | {"triton_7": [150, 151, 149]}
    report = judged(a_run(kernel=kernels(**steady)), a_run(kernel=kernels(**slower)), "kernel:triton_*>10%")
    assert one(report).outcome == "failed" and "triton_7: " in one(report).sentence
    assert [cause.change for cause in one(report).causes] == [50]


A, B = [100, 101, 99], [1000, 1001, 999]
AB = a_run(kernel=kernels(a=A, b=B))
COMPILES, REMEMBERS = a_run(compile=Measure(1000)), a_run(memory=Measure(1100))
THRICE = kernels(gemm_a=[280, 281, 279])
THRICE = Measure(THRICE.value, THRICE.samples, [msgspec.structs.replace(THRICE.items[0], launches=3)])


@pytest.mark.parametrize(
    ("base", "head", "condition", "outcome"),
    [
        # A time without noise is not known, but a small rise is fine.
        (COMPILES, a_run(compile=Measure(1300)), "compile>20%", "unknown"),
        (COMPILES, a_run(compile=Measure(1100)), "compile>20%", "passed"),
        ([a_run(compile=Measure(n)) for n in B], a_run(compile=Measure(1300)), "compile>20%", "failed"),
        # Memory needs no noise, but minds that of several runs.
        (a_run(memory=Measure(1000)), REMEMBERS, "memory>5%", "failed"),
        ([a_run(memory=Measure(n)) for n in (900, 1000, 1100)], REMEMBERS, "memory>5%", "noise"),
        # Fused otherwise, kernels have other names: their sum tells.
        (
            a_run(kernel=kernels(t_a=A, t_b=A)),
            a_run(kernel=kernels(t_ab=[200, 202, 198])),
            "kernel:t_*>10%",
            "passed",
        ),
        (
            a_run(kernel=kernels(t_a=A, t_b=A)),
            a_run(kernel=kernels(t_ab=[260, 262, 258])),
            "kernel:t_*>10%",
            "failed",
        ),
        # A library picks one kernel three times instead of three kernels once.
        (
            a_run(kernel=kernels(gemm_a=A, gemm_b=A, gemm_c=A)),
            a_run(kernel=THRICE),
            "kernel:gemm_*>10%",
            "passed",
        ),
        # Without a pattern the sum alone counts.
        (AB, a_run(kernel=kernels(a=[150, 151, 149], b=B)), "kernel>10%", "passed"),
        (AB, a_run(kernel=kernels(a=[150, 151, 149], b=B)), "kernel:*>10%", "failed"),
        # A pattern without a match is not known.
        (AB, AB, "kernel:triton_*>10%", "unknown"),
        (AB, AB, "kernel>10%", "passed"),
        # Of several runs the largest count is the base.
        (
            [a_run(recompiles=count(n)) for n in (1, 2, 1)],
            a_run(recompiles=count(2)),
            "recompiles>0",
            "passed",
        ),
        (
            [a_run(recompiles=count(n)) for n in (1, 2, 1)],
            a_run(recompiles=count(3)),
            "recompiles>0",
            "failed",
        ),
    ],
)
def test_what_a_condition_makes_of_two_sides(base, head, condition, outcome):
    assert one(judged(base, head, condition)).outcome == outcome


def test_of_kernels_on_the_cpu_one_run_tells_no_noise():
    base, head = (kernels(cpp=[100 * times, 101 * times, 99 * times]) for times in (1, 2))
    host = [Measure(one.value, one.samples, one.items, needs_runs=True) for one in (base, head)]
    assert one(judged(a_run(kernel=host[0]), a_run(kernel=host[1]), "kernel>10%")).outcome == "unknown"
    runs = [a_run(kernel=host[0])] * 3
    assert one(judged(runs, a_run(kernel=host[1]), "kernel>10%")).outcome == "failed"


@pytest.mark.parametrize(
    ("differs", "allow"),
    [({"devices": ["NVIDIA H100"]}, "gpu"), ({"torch": "2.13.0"}, "torch"), ({"ranks": 2}, "world-size")],
)
def test_other_things_are_not_compared(differs, allow):
    same: dict[str, Any] = {"devices": ["NVIDIA H200"], "torch": "2.14.1"}
    base, head = a_run(**same, breaks=count(0)), a_run(**{**same, **differs}, breaks=count(1))
    report = judged(base, head, "breaks>0")
    assert (report.outcome, report.conditions) == ("not_comparable", [])
    assert all(said in report.verdict for said in ("H100", "2.13.0", "2 of 2") if said in str(differs))
    assert judged(base, head, "breaks>0", allow=[allow]).outcome == "failed"
    assert judged([base, head], head, "breaks>0").outcome == "not_comparable"


def test_what_a_side_does_not_tell_is_no_difference():
    assert judged(a_run(torch="2.13.0"), a_run()).outcome == "passed"


def test_a_cause_is_what_there_is_more_of_and_at_the_new_line():
    again = MeasuredItem("graph break", "Call to print", "train/model.py", 30, 1)
    moved = MeasuredItem("graph break", "Call to print", "elsewhere/model.py", 13, 1)
    report = judged(a_run(breaks=count(1, CAUGHT)), a_run(breaks=count(2, CAUGHT, again)), "breaks>0")
    assert [(cause.where, cause.text) for cause in report.causes] == [
        ("train/model.py:30", "graph break: Call to print")
    ]
    report = judged(a_run(breaks=count(0)), a_run(breaks=count(1, moved)), "breaks>0")
    assert [(cause.where, cause.text) for cause in report.causes] == [
        ("elsewhere/model.py:13", "graph break: Call to print")
    ]


def test_a_slower_step_is_told_by_what_it_does_longer():
    waits = [MeasuredItem("the GPU idles: python", value=value) for value in (10, 90)]
    base = a_run(step=timed(*STEADY, items=waits[:1]), kernel=kernels(k=[100, 100, 100]))
    head = a_run(step=timed(*SLOWER, items=waits[1:]), kernel=kernels(k=[120, 120, 120]))
    report = judged(base, head, "step>3%")
    rows = [(cause.text.split(",")[0], cause.change) for cause in report.causes]
    assert rows == [("the GPU idles: python", 80), ("k", 20)]


def test_a_metric_that_an_older_baseline_lacks_is_not_known(tmp_path):
    old, file = a_run(breaks=count(0)), str(tmp_path / "old.tbtc")
    del old.measures["guards"]
    save([old], file, "1.0")
    report = judged(load(file), a_run(guards=count(5)), "guards>0")
    assert report.outcome == "unknown" and "save it again" in one(report).sentence


def test_a_baseline_that_was_saved_without_its_steps_is_compared_by_its_values():
    whole = kernels(triton_a=[10, 10, 10])
    items = [msgspec.structs.replace(item, samples=[]) for item in whole.items]
    base = a_run(kernel=msgspec.structs.replace(whole, samples=[], items=items))
    head = a_run(kernel=kernels(triton_a=[30, 30, 30]))
    (condition,) = judged(base, head, "kernel:triton_*>10%").conditions
    assert (condition.baseline, condition.candidate) == (10, 30)
