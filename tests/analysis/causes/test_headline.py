"""headline.py: how long a step is, by which clock, and what the first finding says."""

from pathlib import Path

import pytest

from profiles import answered, data_of, profile_of, profile_with
from tb_torchcompile_plugin.analysis.causes.findings import Findings, findings
from tb_torchcompile_plugin.analysis.causes.overview import NOTHING_FASTER, headline, overview
from tb_torchcompile_plugin.analysis.finding import Finding, Predicted
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, StepTimes
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from traces import Event, in_steps, launch, slice_, write_trace

PREDICTED = Predicted(100, 50, 50, 50, 50)


def finding(title: str, severity: str = "warning", predicted: Predicted | None = None) -> Finding:
    return Finding("rule", severity, title, {}, None, "overview", None, "", predicted)  # type: ignore[arg-type]


def with_findings(profile: Profile, *rows: Finding) -> Profile:
    return answered(profile, findings, Findings(list(rows), 1))


def ahead(device: int = 0) -> list[Event]:
    """Three steps of 10 µs, each of which launches 100 µs."""
    events = in_steps(every=10)
    for at in range(3):
        events += launch("k", 10 * at + 1, 5 + 100 * at, 100, device=device)
    return events


def behind() -> list[Event]:
    return in_steps(*launch("k", 50, 60, 20), every=100)


def test_the_step_is_named_with_what_limits_it(tmp_path: Path) -> None:
    """A host that runs ahead does not, nor does a GPU that waits; of several GPUs the slowest is named."""
    for number, (events, said) in enumerate(
        (
            (ahead(), "GPU-bound: 100 µs per step, GPU busy 100 %."),
            (ahead(device=3), "Bound by GPU 3: 100 µs per step, GPU busy 100 %."),
            (behind(), "Host-bound: 100 µs per step, GPU busy 20.0 %."),
        )
    ):
        profile = with_findings(profile_with(tmp_path / str(number), events))
        assert headline(profile) == f"{said} {NOTHING_FASTER}."
        assert step_time(profile).step_us == 100


def test_a_gpu_that_idles_is_longer_for_what_it_waits_for(tmp_path: Path) -> None:
    """Its steps are longer than the host's, but not because of its work."""
    events = in_steps(every=100)
    for at, begin in enumerate((20, 150, 400)):
        events += launch("k", 100 * at + 10, begin, 5)
    profile = with_findings(profile_with(tmp_path, events))
    use = profile.of(utilization)
    assert use and (use.verdict.bound, use.mean.busy_us, use.mean.idle_us) == ("launch", 5, 185)
    assert headline(profile).startswith("Host-bound: 190 µs per step, GPU busy 2.63 %")


def test_the_verdict_is_what_the_first_finding_says(tmp_path: Path) -> None:
    profile = with_findings(
        profile_with(tmp_path, behind()), finding("Python collects garbage"), finding("Something else")
    )
    assert headline(profile).endswith("GPU busy 20.0 %. Python collects garbage.")
    assert overview(profile).step == headline(profile)
    assert overview(profile).headline == f"{headline(profile)} Mean of 3 steps. No compile data."


@pytest.mark.parametrize(
    ("severity", "predicted", "said"),
    [("info", None, NOTHING_FASTER), ("info", PREDICTED, "Shapes vary"), ("critical", None, "Shapes vary")],
)
def test_a_hint_without_a_prediction_is_no_verdict(
    tmp_path: Path, severity: str, predicted: Predicted | None, said: str
) -> None:
    row = finding("Shapes vary", severity, predicted)
    assert headline(with_findings(profile_with(tmp_path, behind()), row)).endswith(f"{said}.")


def test_a_cut_trace_gets_no_verdict(tmp_path: Path) -> None:
    path = write_trace(tmp_path, behind())
    path.write_text(path.read_text().removesuffix("]}"))
    assert headline(profile_of(path)) == "100 µs per step, GPU busy at least 20.0 %."


def test_a_loop_without_marks_says_what_shows_its_steps(tmp_path: Path) -> None:
    optimizer = [slice_("Optimizer.step#AdamW.step", 8 + 20 * at, 2, "user_annotation") for at in range(3)]
    regions = [slice_("Torch-Compiled Region: 1/0", 10 * at, 4) for at in range(4)]
    for number, (events, (said, basis)) in enumerate(
        (
            (optimizer, ("20.0 µs per step", "Mean of 2 steps, inferred from the optimizer's calls. ")),
            (regions, ("10.0 µs per step", "Mean of 3 steps, inferred from calls of compiled region 1/0. ")),
            ([slice_("aten::mm", 0, 7)], ("7.00 µs in this span", "")),
        )
    ):
        profile = with_findings(profile_with(tmp_path / str(number), events))
        assert headline(profile) == f"{said}, all on the CPU."
        assert overview(profile).headline == f"{said}, all on the CPU. {basis}No compile data."


def unprofiled(folder: Path, events: list[Event], *step_us: int) -> Profile:
    """Steps of 100 µs as they were profiled; unprofiled they take so long."""
    times = StepTimes(unrecorded_ns=[1000 * us for us in step_us])
    return with_findings(profile_with(folder, events, data_of(CompileSummary(steps=times))))


def test_a_step_is_as_long_as_it_is_unprofiled_where_that_is_known(tmp_path: Path) -> None:
    """The GPU works for as long in a shorter step; without one the same is said."""
    profile = unprofiled(tmp_path / "gpu", behind(), 70, 70, 70)
    use = profile.of(utilization)
    assert use and (use.mean.busy_us, use.mean.idle_us) == (20, 50)
    assert headline(profile) == f"Host-bound: 70.0 µs per step, GPU busy 28.6 %. {NOTHING_FASTER}."
    assert overview(profile).counts[0].text == "Mean of 3 unprofiled steps, 100 µs while profiling"
    operators = in_steps(slice_("aten::mm", 0, 9), every=100)
    profile = unprofiled(tmp_path / "cpu", operators, 60, 60, 60)
    assert headline(profile).startswith("60.0 µs per step, ")
    assert step_time(profile).overhead_us == 40


def test_no_step_is_shorter_than_the_work_of_the_gpu(tmp_path: Path) -> None:
    """The host waits for kernels of 85 µs while it is profiled. Before it ran ahead, and 50 µs were noted."""
    wait = slice_("cudaDeviceSynchronize", 10, 82, "cuda_runtime")
    events = in_steps(*launch("k", 2, 5, 85), wait, every=100)
    waits = step_time(unprofiled(tmp_path / "a", events, 50, 50, 50))
    gpu_bound = step_time(unprofiled(tmp_path / "b", ahead(), 5, 5))
    assert (waits.step_us, waits.clock, waits.unprofiled_steps) == (85, "gpu", 3)
    assert (gpu_bound.step_us, gpu_bound.clock, gpu_bound.unprofiled_steps) == (100, "gpu", 0)
