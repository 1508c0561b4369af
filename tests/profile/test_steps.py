"""profile/steps.py, profile/model/model.py: how long a step is by the host's clock, and by that of a GPU."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import data_of, profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.overview import headline
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import idle_culprits
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus, utilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import MeanPart, step_breakdown
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, StepTimes
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.model.model import recorded_clock
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import (
    SteadySteps,
    StepWindows,
    profiled_steps,
    steady_steps,
    step_bounds,
    step_ns,
    step_time,
)
from traces import AUTOGRAD, Event, launch, region, slice_, step, write_trace


def steps(*begins: float, length: float = 10) -> list[Event]:
    return [step(at, ts, length) for at, ts in enumerate(begins)]


def ahead(number: int = 3) -> list[Event]:
    """Steps of 10 µs, each of which launches two kernels of 40 and 50 µs; the second one on autograd's thread."""
    events = steps(*(10 * at for at in range(number)))
    for at in range(number):
        events += launch("forward", 10 * at + 1, 5 + 100 * at, 40)
        events += launch("backward", 10 * at + 4, 50 + 100 * at, 50, AUTOGRAD)
    return events


def steady(profile: Profile) -> SteadySteps:
    """Return the steady steps, where there are any."""
    found = steady_steps(profile)
    assert found is not None
    return found


def measured(profile: Profile) -> tuple[float, int | None, int, str, float]:
    """Return the step time (µs), whose GPU's clock it is, of how many steps, their source, and the host's mean (µs)."""
    time, found = step_time(profile), steady(profile)
    assert time.clock == ("host" if time.device is None else "gpu") and time.profiled_us == time.step_us
    host_us = (profile.of(StepWindows).ends - profile.of(StepWindows).starts)[found.on_host].mean() / 1000
    return time.step_us, time.device, time.steps, time.source, host_us


def test_a_host_that_runs_ahead(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, ahead())
    rows = profiled_steps(profile)
    times = [(row.start_us, row.wall_us, row.gpu_us) for row in rows]
    assert times == [(0, 10, 100), (10, 10, 100), (20, 10, 95)]
    assert [row.gpu_busy_us for row in rows] == [5, 10, 10], "inside its window, whoever launched it"
    assert measured(profile) == (100, 0, 2, "profiler", 10)
    assert step_ns(profile).tolist() == [100_000, 100_000, 95_000]


def test_a_gpu_that_waits_for_the_host(tmp_path: Path) -> None:
    events = steps(0, 100, 200, length=100)
    for at in range(3):
        events += launch("k", 100 * at + 50, 100 * at + 60, 20)
    profile = profile_with(tmp_path, events)
    assert [row.gpu_us for row in profiled_steps(profile)] == [100, 100, 20]
    assert measured(profile) == (100, None, 3, "profiler", 100)
    assert step_ns(profile).tolist() == [100_000] * 3


def test_what_is_copied_ahead_on_a_stream_of_its_own_is_no_clock(tmp_path: Path) -> None:
    """The next batch: its copy begins when the host says so, and the graph waits for all before it."""
    events = steps(0, 10, 20)
    for at in range(3):
        events += launch("Memcpy HtoD", 10 * at + 1, 10 * at + 2, 5, stream=13)
        events += launch("graph", 10 * at + 2, 5 + 50 * at, 50, stream=7)
    profile = profile_with(tmp_path, events)
    assert measured(profile) == (50, 0, 2, "profiler", 10)
    assert [row.gpu_us for row in profiled_steps(profile)] == [50, 50, 50]
    assert recorded_clock(profile).step == 50_000


def test_a_stream_that_steps_do_without_is_no_clock(tmp_path: Path) -> None:
    """A checkpoint of the last step is copied away on a stream of its own."""
    events = steps(0, 50, 100, length=50)
    for at in range(3):
        events += launch("k", 50 * at + 1, 50 * at + 5, 40)
    events += launch("offload", 140, 145, 500, stream=9)
    profile = profile_with(tmp_path, events)
    assert measured(profile) == (50, None, 3, "profiler", 50)


def test_steps_on_alternating_streams_are_those_of_all(tmp_path: Path) -> None:
    events = steps(*range(0, 60, 10))
    for at in range(6):
        events += launch("k", 10 * at + 1, 5 + 50 * at, 50, stream=7 + at % 2)
    profile = profile_with(tmp_path, events)
    assert measured(profile) == (50, 0, 5, "profiler", 10)
    assert recorded_clock(profile).step == 50_000


def test_one_launch_without_steps_has_a_clock(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, launch("k", 5, 10, 5))
    assert recorded_clock(profile).step == 5_000
    assert not [row for row in span_findings(profile) if row.predicted]
    assert "5.00 µs in this span" in headline(profile)


def test_nor_is_it_of_a_program_that_prefetches(recording: Recording) -> None:
    """ResNet-50 with CUDA graphs: 10.6 ms a step without a profiler. By the first copies it took 918 µs, and what is
    launched beside its graph was told as the cause."""
    profile = profile_of(next(recording("prefetch").glob("*.pt.trace.json")))
    time = step_time(profile)
    assert time.clock == "gpu" and time.step_us == pytest.approx(10.6e3, rel=0.01)
    assert not any(row.asks_for_change for row in span_findings(profile))


@pytest.mark.parametrize(("busy", "ahead"), [(10, False), (95, True)])
def test_a_shorter_last_step_is_no_host_that_runs_ahead(tmp_path: Path, busy: int, ahead: bool) -> None:
    """Of the last step nobody knows how long it is on the GPU: the others' mean is longer, and so is the host's of the
    same steps. Only a GPU with work most of the time may set the pace all the same."""
    events, begins, lengths_ = [], (0, 100, 200), (100, 100, 70)
    for at, (begin, length) in enumerate(zip(begins, lengths_, strict=True)):
        events.append(step(at, begin, length))
        events += launch("k", begin + 5, begin + 10, busy)
    profile = profile_with(tmp_path, events)
    assert measured(profile)[:3] == ((100, 0, 2) if ahead else (90, None, 3))
    assert measured(profile)[3:] == ("profiler", 90)
    assert recorded_clock(profile).step == (100_000 if ahead else 90_000)


def test_of_two_devices_the_slower_one_counts(tmp_path: Path) -> None:
    events = steps(0, 10)
    for at in (0, 1):
        events += launch("short", 10 * at + 1, 3 + 20 * at, 20, device=0)
        events += launch("long", 10 * at + 2, 4 + 50 * at, 50, device=3)
    profile = profile_with(tmp_path, events)
    assert [row.gpu_us for row in profiled_steps(profile)] == [50, 50]
    assert measured(profile) == (50, 3, 1, "profiler", 10)


def test_work_launched_outside_of_the_steps_is_of_none(tmp_path: Path) -> None:
    """And a step that launches nothing on the GPU has no length there."""
    events = [*steps(10, 20, 30), *launch("before", 2, 12, 3), *launch("behind", 45, 46, 100)]
    events += [*launch("a", 11, 15, 2), *launch("c", 31, 35, 4)]
    assert [row.gpu_us for row in profiled_steps(profile_with(tmp_path, events))] == [20, None, 4]


def test_without_a_gpu_there_is_one_clock(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, [*steps(0, 10), slice_("aten::mm", 1, 5)])
    assert [row.gpu_us for row in profiled_steps(profile)] == [None, None]
    assert measured(profile) == (10, None, 2, "profiler", 10)


def test_of_a_cut_trace_the_last_step_is_not_known(tmp_path: Path) -> None:
    path = write_trace(tmp_path, ahead())
    text = path.read_text()
    path.write_text(text.removesuffix("]}"))
    profile = profile_of(path)
    assert profile.trace.notices
    assert [row.gpu_us for row in profiled_steps(profile)] == [100, 100, None]
    assert measured(profile) == (100, 0, 1, "profiler", 10)


def optimizer(end: float) -> Event:
    return slice_("Optimizer.step#AdamW.step", end - 2, 2, "user_annotation")


def test_steps_of_a_loop_without_marks_are_told_by_the_optimizer(tmp_path: Path) -> None:
    """Three calls are the ends of two whole steps; what is before the first and behind the last is cut."""
    events = [optimizer(10), optimizer(30), optimizer(50)]
    for at in range(4):
        events += launch("k", 20 * at - 5, 60 * at, 50)
    profile = profile_with(tmp_path, events)
    rows = [(row.name, row.start_us, row.wall_us) for row in profiled_steps(profile)]
    assert rows == [("step 1", 15, 20), ("step 2", 35, 20)]
    assert measured(profile) == (60, 0, 1, "optimizer", 20)


def test_or_by_the_compiled_region_that_is_called_most(tmp_path: Path) -> None:
    events = [region("0/0", 10 * at, 4) for at in range(4)]
    profile = profile_with(tmp_path, [*events, region("1/0", 35, 2)])
    assert measured(profile) == (10, None, 3, "compiled_region", 10)


def test_nothing_tells_steps_of_a_single_call(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, [slice_("aten::mm", 1, 5)])
    assert steady_steps(profile) is None and step_time(profile).source == "span"
    assert (step_time(profile).step_us, step_time(profile).steps) == (5, 0)


def test_steps_that_compile_or_lack_records_are_left_out(tmp_path: Path) -> None:
    """Of the others the mean counts. One before a step without records ends on the GPU nobody knows when."""
    events = steps(0, 100, 200, 300, 400, length=100)
    events.append(slice_("entire_frame_compile (dynamo_timed)", 5, 90))
    for at in range(5):
        events += launch("k", 100 * at + 97, 100 * at + 98, 90)[: 1 if at == 3 else 2]
    profile = profile_with(tmp_path, events)
    found = steady(profile)
    assert found.compiles.tolist() == [True, False, False, False, False]
    assert found.on_host.tolist() == [1, 2, 4] and measured(profile)[:3] == (100, None, 3)
    assert [row.gpu_busy_us is None for row in profiled_steps(profile)] == [False, False, False, True, False]


def test_a_step_before_one_that_compiles_ends_on_the_gpu_nobody_knows_when(tmp_path: Path) -> None:
    """The GPU waits for the compiler: that is no work of the step before."""
    events = [*steps(0, 100, 200, length=100)]
    events.append(step(3, 300, 1000))
    events.append(slice_("entire_frame_compile (dynamo_timed)", 305, 900))
    for at, ts in enumerate((2, 102, 202, 1210)):
        events += launch("k", ts, 100 * at + 3 if at < 3 else 1220, 90)
    profile = profile_with(tmp_path, events)
    assert steady(profile).on_host.tolist() == [0, 1, 2] and measured(profile)[0] == 100
    assert recorded_clock(profile).step == 100_000


def test_a_step_before_a_lost_mark_is_not_twice_as_long(tmp_path: Path) -> None:
    events = [event for event in ahead(6) if event["name"] != "ProfilerStep#2"]
    profile = profile_with(tmp_path, events)
    healthy = profile_with(tmp_path, ahead(6))
    assert measured(profile)[0] == measured(healthy)[0] == 100
    assert recorded_clock(profile).step == recorded_clock(healthy).step


def test_without_steady_steps_those_that_do_not_compile_count(tmp_path: Path) -> None:
    """Whose records are missing is as long on the host as it was; one that compiles is not."""
    events = steps(0, 100, 200, length=100)
    events.append(slice_("entire_frame_compile (dynamo_timed)", 5, 90))
    for at in range(3):
        events += launch("k", 100 * at + 10, 300 * at + 20, 290)[: 2 if at == 0 else 1]
    assert measured(profile_with(tmp_path, events))[:3] == (100, None, 2)


def test_gpu_time_is_unknown_where_every_step_lacks_records(tmp_path: Path) -> None:
    events = steps(0, 100, 200, length=100)
    for at in range(3):
        events += launch("k", 100 * at + 10, 100 * at + 20, 50)
        events += launch("lost", 100 * at + 40, 0, 0)[:1]
    profile = profile_with(tmp_path, events)
    assert utilization(profile) is None and idle_culprits(profile) == []
    assert step_breakdown(profile).mean_parts == [MeanPart("unknown", "not_recorded", 100, 100)]
    assert [row.busy_percent for row in gpus(profile)] == [None]
    assert coverage(profile).level == "insufficient" and "GPU busy" not in headline(profile)


def test_work_of_a_gpu_without_its_host_shows_no_cause(tmp_path: Path) -> None:
    events = [event for at in range(4) for event in launch("k", 0, 100 * at, 50)[1:]]
    profile = profile_with(tmp_path, events)
    (row,) = coverage(profile).rows
    assert (row.kind, row.level, row.count, row.of) == ("launch_records", "insufficient", 4, 4)
    assert headline(profile).startswith(row.sentence) and span_findings(profile) == []


def test_few_lost_records_withhold_nothing(tmp_path: Path) -> None:
    events = steps(0, 1000, 2000, length=1000)
    for at in range(600):
        events += launch("k", 5 * at + 1, 5 * at + 2, 1)[: 1 if at in (1, 201) else 2]
    covered = coverage(profile_with(tmp_path, events))
    assert [(row.kind, row.level, row.count) for row in covered.rows] == [("gpu_records", "partial", 2)]


@pytest.mark.parametrize(
    ("gpu_us", "noted_us", "step_us", "unprofiled"),
    [
        (20, [70] * 3, 70, 3),
        (20, [110] * 3, 100, 0),  # profiling makes no step shorter
        (80, [70] * 3, 80, 3),  # nor is one shorter than the GPU's work: then that limits it
        (80, [90] * 3 + [40] * 2, 90, 3),  # whose queue was not full in two of them
        (99, [98] * 3, 98, 3),
    ],
)
def test_unprofiled_steps_count_where_they_are_plausible(
    tmp_path: Path, gpu_us: float, noted_us: list[int], step_us: float, unprofiled: int
) -> None:
    events = steps(0, 100, 200, length=100)
    for at in range(3):
        events += launch("k", 100 * at + 1, 100 * at + 1, gpu_us)
    notes = StepTimes(unrecorded_ns=[1000 * us for us in noted_us])
    time = step_time(profile_with(tmp_path, events, data_of(CompileSummary(steps=notes))))
    assert (time.step_us, time.unprofiled_steps, time.profiled_us) == (step_us, unprofiled, 100)
    assert time.overhead_us == 100 - step_us


@pytest.mark.parametrize("streams", [1, 2])
@given(data=st.data())
def test_lengths_on_a_gpu_sum_to_its_time_from_first_to_last(streams: int, data: st.DataObject) -> None:
    """Whatever order the work of several streams has."""
    work = st.tuples(st.integers(0, 5), st.integers(0, 1000), st.integers(1, 100))
    rows = np.array(data.draw(st.lists(work, min_size=1, max_size=20 * streams)), np.int64)
    step, begin, dur = rows.T
    known, first, end = step_bounds(step, begin, begin + dur)
    assert known.tolist() == sorted(set(step.tolist()))
    assert (end >= first).all() and (end[:-1] == first[1:]).all()
    last = step == step.max()
    assert (end - first).sum() == end[-1] - begin[step == step.min()].min()
    assert end[-1] == max((begin + dur)[last].max(), first[-1])
