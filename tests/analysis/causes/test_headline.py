"""headline.py: how long a step is, by which clock, and what the first finding says."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from profiles import answered, data_of, profile_of, profile_with
from tb_torchcompile_plugin.analysis.causes.findings import Findings, findings
from tb_torchcompile_plugin.analysis.causes.overview import distortion, headline, overview
from tb_torchcompile_plugin.analysis.causes.scenario import step_length
from tb_torchcompile_plugin.analysis.finding import Finding, Predicted
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, StepTimes
from tb_torchcompile_plugin.profile.profile import Profile
from traces import Event, launch, slice_, write_trace

PREDICTED = Predicted(100, 50, 50, 50, 50)


def finding(title: str, severity: str = "warning", predicted: Predicted | None = None) -> Finding:
    return Finding("rule", severity, title, {}, None, "overview", None, "", predicted)  # type: ignore[arg-type]


def with_findings(profile: Profile, *rows: Finding) -> Profile:
    return answered(profile, findings, Findings(list(rows), 1))


def steps(length: float, number: int = 3) -> list[Event]:
    return [slice_(f"ProfilerStep#{at}", length * at, length, "user_annotation") for at in range(number)]


def ahead(device: int = 0) -> list[Event]:
    """Three steps of 10 µs, each of which launches 100 µs."""
    events = steps(10)
    for at in range(3):
        events += launch("k", 10 * at + 1, 5 + 100 * at, 100, device=device)
    return events


def behind() -> list[Event]:
    events = steps(100)
    for at in range(3):
        events += launch("k", 100 * at + 50, 100 * at + 60, 20)
    return events


def test_a_host_that_runs_ahead_does_not_set_the_pace(tmp_path: Path) -> None:
    profile = with_findings(profile_with(tmp_path, ahead()))
    assert headline(profile) == (
        "Step 100 µs on the GPU (mean of 2); the host needs 10.0 µs and runs ahead · GPU busy 100 % → compute bound."
    )


def test_a_host_does_not_run_ahead_of_a_gpu_that_idles(tmp_path: Path) -> None:
    """The GPU's steps are longer, but not because of its work."""
    events = steps(100)
    for at, begin in enumerate((20, 150, 400)):
        events += launch("k", 100 * at + 10, begin, 5)
    said = headline(with_findings(profile_with(tmp_path, events)))
    assert said.startswith("Step 190 µs on the GPU (mean of 2); 100 µs on the host · GPU busy 3.9"), said


def test_the_slowest_gpu_is_named(tmp_path: Path) -> None:
    profile = with_findings(profile_with(tmp_path, ahead(device=3)))
    assert headline(profile).startswith("Step 100 µs on GPU 3 (mean of 2); the host needs 10.0 µs")


def test_a_gpu_that_waits_does_not_either(tmp_path: Path) -> None:
    profile = with_findings(profile_with(tmp_path, behind()))
    assert headline(profile) == "Step 100 µs on the host (mean of 3) · GPU busy 27.3 % → launch bound."


def test_the_verdict_is_what_the_first_finding_says(tmp_path: Path) -> None:
    profile = with_findings(
        profile_with(tmp_path, behind()), finding("Garbage is collected"), finding("Something else")
    )
    assert headline(profile).endswith("GPU busy 27.3 % → Garbage is collected.")
    assert overview(profile).step == headline(profile)
    assert overview(profile).headline == f"{headline(profile)} No compile data."


@pytest.mark.parametrize(
    ("severity", "predicted", "said"),
    [("info", None, "launch bound"), ("info", PREDICTED, "Shapes vary"), ("critical", None, "Shapes vary")],
)
def test_a_hint_without_a_prediction_is_no_verdict(
    tmp_path: Path, severity: str, predicted: Predicted | None, said: str
) -> None:
    row = finding("Shapes vary", severity, predicted)
    assert headline(with_findings(profile_with(tmp_path, behind()), row)).endswith(f"→ {said}.")


def test_a_cut_trace_gets_no_verdict(tmp_path: Path) -> None:
    path = write_trace(tmp_path, behind())
    path.write_text(path.read_text().removesuffix("]}"))
    assert headline(profile_of(path)) == "Step 100 µs on the host (mean of 2) · GPU busy 27.3 %."


def test_a_loop_without_marks_says_what_tells_its_steps(tmp_path: Path) -> None:
    optimizer = [slice_("Optimizer.step#AdamW.step", 8 + 20 * at, 2, "user_annotation") for at in range(3)]
    assert headline(with_findings(profile_with(tmp_path, optimizer))) == (
        "Step 20.0 µs (mean of 2, told by the optimizer's calls) · all of it on the CPU."
    )
    regions = [slice_("Torch-Compiled Region: 1/0", 10 * at, 4) for at in range(4)]
    assert headline(with_findings(profile_with(tmp_path, regions))) == (
        "Step 10.0 µs (mean of 3, told by calls of compiled region 1/0) · all of it on the CPU."
    )


def test_where_nothing_tells_steps_it_is_about_the_span(tmp_path: Path) -> None:
    profile = with_findings(profile_with(tmp_path, [slice_("aten::mm", 0, 7)]))
    assert headline(profile) == "Span 7.00 µs · all of it on the CPU."


def noted(folder: Path, unrecorded: int, recorded: int, *events: Event) -> str:
    times = StepTimes(unrecorded_ns=[unrecorded] * 3, recorded_ns=[recorded] * 3 if recorded else [])
    return distortion(profile_with(folder, [*behind(), *events], data_of(CompileSummary(steps=times))))


def test_how_much_recording_slowed_a_step(tmp_path: Path) -> None:
    stack = slice_("train.py(3): step", 0, 5, "python_function")
    said = "Recording slowed a step from 9.80 ms to 42.5 ms: host times are overstated"
    assert noted(tmp_path, 9_800_000, 42_500_000) == f"{said}."
    assert noted(tmp_path, 9_800_000, 42_500_000, stack) == f"{said}; record without with_stack."
    assert noted(tmp_path, 9_800_000, 12_200_000, stack) == "", "by less than a quarter"
    assert noted(tmp_path, 50_000, 0).startswith("Recording slowed a step from 50.0 µs to 100 µs"), (
        "by the trace, where no recorded step was noted"
    )
    assert distortion(profile_with(tmp_path, behind())) == "", "nobody noted"


def test_recording_did_not_slow_what_a_gpu_takes_as_long_for(tmp_path: Path) -> None:
    """The host waits for kernels of 85 µs while it is recorded. Before it ran ahead, and 50 µs were noted."""
    events = steps(100)
    for at in range(3):
        events += launch("k", 100 * at + 2, 100 * at + 5, 85)
        events.append(slice_("cudaDeviceSynchronize", 100 * at + 10, 82, "cuda_runtime"))
    times = StepTimes(unrecorded_ns=[50_000] * 3, recorded_ns=[100_000] * 3)
    profile = profile_with(tmp_path, events, data_of(CompileSummary(steps=times)))
    assert profile.of(step_length).step_us > 85 and distortion(profile) == ""


def unrecorded(folder: Path, kernel_us: float, step_us: int) -> str:
    """Recorded steps of 100 µs that launch a kernel; unrecorded they take so long."""
    events = steps(100)
    for at in range(3):
        events += launch("k", 100 * at + 50, 100 * at + 55, kernel_us)
    times = StepTimes(unrecorded_ns=[1000 * step_us] * 3)
    return headline(with_findings(profile_with(folder, events, data_of(CompileSummary(steps=times)))))


def test_a_step_is_as_long_as_it_is_unrecorded_where_that_is_known(tmp_path: Path) -> None:
    assert unrecorded(tmp_path, 20, 70) == (
        "Step 70.0 µs unrecorded, on the host (100 µs while recording, mean of 3) · "
        "GPU busy 27.3 % while recording → launch bound."
    )
    assert unrecorded(tmp_path, 20, 90).startswith("Step 100 µs on the host (mean of 3)"), (
        "by less than a quarter"
    )


def test_without_recording_the_gpu_may_set_the_pace(tmp_path: Path) -> None:
    said = unrecorded(tmp_path, 44, 32)
    assert said == (
        "Step 45.0 µs unrecorded, on the GPU (100 µs while recording, mean of 3) · "
        "GPU busy 54.1 % while recording → compute bound."
    )


@pytest.mark.parametrize(("step_us", "whose"), [(60, ""), (50, ", on the GPU")])
def test_a_gpu_that_idles_unrecorded_too_sets_no_pace(tmp_path: Path, step_us: float, whose: str) -> None:
    """Its steps may be longer, but not because of its work: 27.3 % of 100 µs is less than half of 60, not of 50."""
    data = data_of(CompileSummary(steps=StepTimes(unrecorded_ns=[60_000] * 3)))
    length = replace(profile_with(tmp_path, behind(), data).of(step_length), device=0, step_us=step_us)
    said = headline(answered(with_findings(profile_with(tmp_path, behind(), data)), step_length, length))
    assert said.startswith(f"Step {step_us}.0 µs unrecorded{whose} (100 µs while recording")


def test_where_nothing_is_predicted_the_noted_step_is_told(tmp_path: Path) -> None:
    times = StepTimes(unrecorded_ns=[60_000] * 3)
    profile = profile_with(tmp_path, steps(100), data_of(CompileSummary(steps=times)))
    assert headline(with_findings(profile)) == (
        "Step 60.0 µs unrecorded (100 µs while recording, mean of 3) · all of it on the CPU."
    )


def test_recording_slows_no_step_that_the_gpu_sets_the_pace_of(tmp_path: Path) -> None:
    """The notes are the host's: short where it runs ahead, recorded or not."""
    times = StepTimes(unrecorded_ns=[5_000] * 3, recorded_ns=[10_000] * 3)
    profile = profile_with(tmp_path, ahead(), data_of(CompileSummary(steps=times)))
    assert distortion(profile) == ""
    assert headline(with_findings(profile)).startswith("Step 100 µs on the GPU (mean of 2); the host needs")


def test_a_report_says_it_first(tmp_path: Path) -> None:
    write_trace(tmp_path, behind())
    report = read_report(str(tmp_path))
    ((span,),) = [worker.spans for run in report.runs for worker in run.workers]
    (first, *_) = report.findings
    assert span.overview.step == (  # type: ignore[union-attr]
        f"Step 100 µs on the host (mean of 3) · GPU busy 27.3 % → {first.title}."
    )
