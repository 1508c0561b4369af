"""Inputs from public reports that lack records: what is missing is named first, and nothing is claimed of it."""

import gzip
import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiles import profile_in, spans_in
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.overview import headline, overview
from tb_torchcompile_plugin.analysis.causes.registry import PRICED
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from traces import in_steps, launch, write_trace

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
    assert (
        headline(profile).startswith(lost.sentence)
        if lost and is_first
        else " per step, " in headline(profile)
    )


def test_an_event_with_an_implausible_time_can_be_opened() -> None:
    profile = case("pytorch192021_wrong_clock")
    opened = timeline_slice(Timeline(profile), -1, int(profile.trace.implausible()[0]))
    assert "Excluded" in [fact.label for fact in opened.facts] and opened.number is None


@pytest.mark.parametrize("name", ["hyperloom1121_replays_lost", "sglangomni1304_no_ops"])
def test_nothing_is_advised_where_too_much_is_missing(name: str) -> None:
    assert case(name).of(findings).findings == []


def test_no_fix_of_the_host_goes_below_what_a_graph_takes_on_the_device() -> None:
    rows = case("torchtitan4362_streams").of(findings).findings
    after = [row.predicted.after_us for row in rows if row.predicted]
    assert after and min(after) >= 16_500 * 0.999


def test_a_launch_without_an_operator_has_the_name_of_its_call() -> None:
    rows = case("torchtitan4362_streams").of(predicted_fixes)
    assert [row.name for row in rows if row.kind == "eager"] == ["cudaGraphLaunch"]


def test_what_has_no_name_is_said_to_have_none() -> None:
    (row, *_) = case("torchtitan4362_streams").of(predicted_fixes)
    assert PRICED["operator"].filled(replace(row, name="")).title.startswith("(no name) takes host time")


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_of_a_cut_trace_the_gpu_is_busy_at_least_as_long(share: float, tmp_path: Path) -> None:
    """Its steps are there, and part of what ran in them: nothing is blamed on what is missing."""
    text = write_trace(tmp_path, in_steps(*launch("gemm", 20, 50, 40), every=100)).read_text()
    (tmp_path / "w.1.pt.trace.json").write_text(text[: int(len(text) * share)])
    profile = profile_in(tmp_path)
    assert ", GPU busy at least " in headline(profile)
    assert profile.of(findings).findings == [] and profile.of(overview).payback == ""


@pytest.mark.parametrize(
    ("share", "note"), [(0.6, "which compiles"), (0.93, "excluding 2 steps that compile")]
)
def test_a_step_that_compiles_is_no_steady_one(share: float, note: str, tmp_path: Path) -> None:
    """Of a recording that was cut in its first step nothing else is left."""
    shutil.copytree(CASES / "recompile_count" / "run", tmp_path, dirs_exist_ok=True)
    (packed,) = tmp_path.glob("*.json.gz")
    text = gzip.decompress(packed.read_bytes())
    packed.with_suffix("").write_bytes(text[: int(len(text) * share)])
    packed.unlink()
    (profile,) = spans_in(tmp_path)
    assert note in overview(profile).headline


def test_unaccounted_time_is_one_part_of_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a step of 30.0 ms 6.4 ms are left without it, the work of the GPU."""
    assert main(["report", str(CASES / "kineto743_rocm_warmup")]) == 0
    out = capsys.readouterr().out
    times = re.findall(r"^(\w+  +[\w ]+?)  +([\d.]+) ms", out, re.MULTILINE)
    values = {" ".join(part.split()): ms for part, ms in times}
    assert values == {"idle unaccounted time": "23.4", "gpu gemm": "6.40"}


@pytest.mark.parametrize(("name", "share"), [("pytorch190757_cpu_kernel", 98.0), ("threads_recorded", 85.6)])
def test_compiled_code_on_the_cpu_is_no_python(name: str, share: float) -> None:
    profile = case(name)
    parts = {part.part: part.percent for part in profile.of(step_breakdown).mean_parts}
    assert parts["compiled_graph"] == pytest.approx(share, abs=0.5)
    first, *_ = profile.of(findings).findings
    assert (first.rule, first.code) == ("unnamed_cpu_kernels", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1")
