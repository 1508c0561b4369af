"""Inputs from public reports that lack records: what is missing is named first, and nothing is claimed of it."""

from pathlib import Path

import pytest

from profiles import spans_in
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.overview import headline
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time

CASES = Path(__file__).parents[1] / "data" / "cases"


def case(name: str) -> Profile:
    (profile,) = spans_in(CASES / name)
    return profile


@pytest.mark.parametrize(
    ("name", "level", "kind", "count", "of", "steps"),
    [
        ("hyperloom1121_replays_lost", "insufficient", "gpu_records", 36, 40, 36),
        ("pytorch192021_lost_start", "partial", "gpu_records", 80, 160, 2),
        ("pytorch192021_wrong_clock", "partial", "times", 3, 488, 1),
        ("sglangomni1304_no_ops", "insufficient", "thread_operators", 1, 1, 0),
    ],
)
def test_what_is_missing_is_counted(
    name: str, level: str, kind: str, count: int, of: int, steps: int
) -> None:
    covered = case(name).of(coverage)
    (row,) = covered.rows
    assert (covered.level, row.kind, row.count, row.of, len(row.steps)) == (level, kind, count, of, steps)


@pytest.mark.parametrize(
    ("name", "step_us", "busy_percent", "steps"),
    [
        ("hyperloom1121_replays_lost", 9990, 92.5, 4),
        ("pytorch192021_lost_start", 9990, 96.1, 2),
        ("pytorch192021_wrong_clock", 9990, 96.1, 3),
        ("kineto743_rocm_warmup", 30_000, 21.3, 3),
        ("torchtitan4362_streams", 20_000, 82.5, 3),
    ],
)
def test_steps_are_those_that_are_complete(
    name: str, step_us: float, busy_percent: float, steps: int
) -> None:
    profile = case(name)
    step, use = profile.of(step_time), profile.of(utilization)
    assert step.step_us == pytest.approx(step_us, rel=2e-3) and step.steps == steps
    assert use is not None and use.mean.busy_percent == pytest.approx(busy_percent, abs=0.1)
    lost = profile.of(coverage).worst()
    is_first = lost is not None and lost.level == "insufficient"
    assert headline(profile).startswith(lost.sentence if lost and is_first else "Step ")


@pytest.mark.parametrize("name", ["hyperloom1121_replays_lost", "sglangomni1304_no_ops"])
def test_nothing_is_advised_where_too_much_is_missing(name: str) -> None:
    assert case(name).of(findings).findings == []


def test_no_fix_of_the_host_goes_below_what_a_graph_takes_on_the_device() -> None:
    rows = case("torchtitan4362_streams").of(findings).findings
    after = [row.predicted.after_us for row in rows if row.predicted]
    assert after and min(after) >= 16_500 * 0.999


@pytest.mark.parametrize(("name", "share"), [("pytorch190757_cpu_kernel", 98.0), ("threads_recorded", 85.6)])
def test_compiled_code_on_the_cpu_is_no_python(name: str, share: float) -> None:
    profile = case(name)
    parts = {part.part: part.percent for part in profile.of(step_breakdown).mean_parts}
    assert parts["compiled_graph"] == pytest.approx(share, abs=0.5)
    first, *_ = profile.of(findings).findings
    assert (first.rule, first.code) == ("unnamed_cpu_kernels", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1")
