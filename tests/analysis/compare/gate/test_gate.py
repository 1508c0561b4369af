"""gate.py, judge.py, causes.py: the verdict, and why."""

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


def test_a_time_without_noise_is_not_known_but_a_small_rise_is_fine():
    base = a_run(compile=Measure(1000))
    assert one(judged(base, a_run(compile=Measure(1300)), "compile>20%")).outcome == "unknown"
    assert one(judged(base, a_run(compile=Measure(1100)), "compile>20%")).outcome == "passed"
    runs = [a_run(compile=Measure(number)) for number in (1000, 1001, 999, 1000)]
    assert one(judged(runs, a_run(compile=Measure(1300)), "compile>20%")).outcome == "failed"


def test_memory_needs_no_noise_but_minds_that_of_several_runs():
    base, head = a_run(memory=Measure(1000)), a_run(memory=Measure(1100))
    assert one(judged(base, head, "memory>5%")).outcome == "failed"
    runs = [a_run(memory=Measure(number)) for number in (900, 1000, 1100)]
    assert one(judged(runs, head, "memory>5%")).outcome == "noise"


def test_one_slower_kernel_among_many_fails():
    steady = {f"triton_{number}": [100, 101, 99] for number in range(20)}
    slower = steady | {"triton_7": [150, 151, 149]}
    report = judged(a_run(kernel=kernels(**steady)), a_run(kernel=kernels(**slower)), "kernel:triton_*>10%")
    assert one(report).outcome == "failed" and "triton_7: " in one(report).sentence
    assert [cause.change for cause in one(report).causes] == [50]


def test_work_in_new_kernels_counts_together():
    """Fused otherwise, the kernels have other names: their sum tells."""
    base = a_run(kernel=kernels(triton_a=[100, 101, 99], triton_b=[100, 101, 99]))
    same = a_run(kernel=kernels(triton_ab=[200, 202, 198]))
    more = a_run(kernel=kernels(triton_ab=[260, 262, 258]))
    assert one(judged(base, same, "kernel:triton_*>10%")).outcome == "passed"
    assert one(judged(base, more, "kernel:triton_*>10%")).outcome == "failed"


def test_a_kernel_that_does_the_work_of_others_is_not_slower():
    """A library picks one kernel three times instead of three kernels once."""
    base = kernels(gemm_a=[100, 101, 99], gemm_b=[100, 101, 99], gemm_c=[100, 101, 99])
    head = kernels(gemm_a=[280, 281, 279])
    more = Measure(head.value, head.samples, [msgspec.structs.replace(head.items[0], launches=3)])
    assert one(judged(a_run(kernel=base), a_run(kernel=more), "kernel:gemm_*>10%")).outcome == "passed"


def test_without_a_pattern_the_sum_alone_counts():
    base = a_run(kernel=kernels(a=[100, 101, 99], b=[1000, 1001, 999]))
    head = a_run(kernel=kernels(a=[150, 151, 149], b=[1000, 1001, 999]))
    assert one(judged(base, head, "kernel>10%")).outcome == "passed"
    assert one(judged(base, head, "kernel:*>10%")).outcome == "failed"


def test_a_pattern_without_a_match_is_not_known():
    run = a_run(kernel=kernels(nvjet=[100, 101, 99]))
    assert one(judged(run, run, "kernel:triton_*>10%")).outcome == "unknown"
    assert one(judged(run, run, "kernel>10%")).outcome == "passed"


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


def test_of_several_runs_the_largest_count_is_the_base():
    runs = [a_run(recompiles=count(number)) for number in (1, 2, 1)]
    assert one(judged(runs, a_run(recompiles=count(2)), "recompiles>0")).outcome == "passed"
    assert one(judged(runs, a_run(recompiles=count(3)), "recompiles>0")).outcome == "failed"


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
