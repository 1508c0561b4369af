"""profile/steps.py, profile/model/step_clock.py: how long a step is by the host's clock, and by that of a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_of, profile_with
from tb_torchcompile_plugin.profile.intervals import Intervals
from tb_torchcompile_plugin.profile.model.step_clock import StepPace, step_clock
from tb_torchcompile_plugin.profile.steps import gpu_steps_of, lengths, profiled_steps, step_ns
from traces import AUTOGRAD, Event, launch, slice_, write_trace


def steps(*begins: float, length: float = 10) -> list[Event]:
    return [slice_(f"ProfilerStep#{at}", ts, length, "user_annotation") for at, ts in enumerate(begins)]


def ahead(number: int = 3) -> list[Event]:
    """Steps of 10 µs, each of which launches two kernels of 40 and 50 µs; the second one on autograd's thread."""
    events = steps(*(10 * at for at in range(number)))
    for at in range(number):
        events += launch("forward", 10 * at + 1, 5 + 100 * at, 40)
        events += launch("backward", 10 * at + 4, 50 + 100 * at, 50, AUTOGRAD)
    return events


def test_a_host_that_runs_ahead(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, ahead())
    rows = profiled_steps(profile)
    assert [(row.start_us, row.wall_us, row.gpu_us) for row in rows] == [
        (0, 10, 100),
        (10, 10, 100),
        (20, 10, 95),
    ]
    assert [row.gpu_busy_us for row in rows] == [5, 10, 10], "inside its window, whoever launched it"
    clock = step_clock(profile)
    assert clock == StepPace(10_000, 100_000, 0, 3, 2, "profiler")
    assert clock.host_is_ahead and clock.step == 100_000
    assert step_ns(profile).tolist() == [100_000, 100_000, 95_000]


def test_a_gpu_that_waits_for_the_host(tmp_path: Path) -> None:
    events = steps(0, 100, 200, length=100)
    for at in range(3):
        events += launch("k", 100 * at + 50, 100 * at + 60, 20)
    profile = profile_with(tmp_path, events)
    assert [row.gpu_us for row in profiled_steps(profile)] == [100, 100, 20]
    clock = step_clock(profile)
    assert clock == StepPace(100_000, 100_000, 0, 3, 2, "profiler")
    assert not clock.host_is_ahead and clock.step == 100_000
    assert step_ns(profile).tolist() == [100_000] * 3


def test_of_two_devices_the_slower_one_counts(tmp_path: Path) -> None:
    events = steps(0, 10)
    for at in (0, 1):
        events += launch("short", 10 * at + 1, 3 + 20 * at, 20, device=0)
        events += launch("long", 10 * at + 2, 4 + 50 * at, 50, device=3)
    profile = profile_with(tmp_path, events)
    assert [row.gpu_us for row in profiled_steps(profile)] == [50, 50]
    assert step_clock(profile) == StepPace(10_000, 50_000, 3, 2, 1, "profiler")


def test_work_launched_outside_of_the_steps_is_of_none(tmp_path: Path) -> None:
    """And a step that launches nothing on the GPU has no length there."""
    events = [*steps(10, 20, 30), *launch("before", 2, 12, 3), *launch("behind", 45, 46, 100)]
    events += [*launch("a", 11, 15, 2), *launch("c", 31, 35, 4)]
    assert [row.gpu_us for row in profiled_steps(profile_with(tmp_path, events))] == [20, None, 4]


def test_without_a_gpu_there_is_one_clock(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, [*steps(0, 10), slice_("aten::mm", 1, 5)])
    assert [row.gpu_us for row in profiled_steps(profile)] == [None, None]
    clock = step_clock(profile)
    assert clock == StepPace(10_000, None, -1, 2, 0, "profiler") and clock.step == 10_000


def test_of_a_cut_trace_the_last_step_is_not_known(tmp_path: Path) -> None:
    path = write_trace(tmp_path, ahead())
    text = path.read_text()
    path.write_text(text.removesuffix("]}"))
    profile = profile_of(path)
    assert profile.trace.notices
    assert [row.gpu_us for row in profiled_steps(profile)] == [100, 100, None]
    assert step_clock(profile) == StepPace(10_000, 100_000, 0, 2, 1, "profiler")


def optimizer(end: float) -> Event:
    return slice_("Optimizer.step#AdamW.step", end - 2, 2, "user_annotation")


def test_steps_of_a_loop_without_marks_are_told_by_the_optimizer(tmp_path: Path) -> None:
    """Three calls are the ends of two whole steps; what is before the first and behind the last is cut."""
    events = [optimizer(10), optimizer(30), optimizer(50)]
    for at in range(4):
        events += launch("k", 20 * at - 5, 60 * at, 50)
    profile = profile_with(tmp_path, events)
    assert profiled_steps(profile) == []
    assert step_clock(profile) == StepPace(20_000, 60_000, 0, 2, 1, "optimizer")


def test_or_by_the_compiled_region_that_is_called_most(tmp_path: Path) -> None:
    events = [slice_("Torch-Compiled Region: 0/0", 10 * at, 4) for at in range(4)]
    profile = profile_with(tmp_path, [*events, slice_("Torch-Compiled Region: 1/0", 35, 2)])
    assert step_clock(profile) == StepPace(10_000, None, -1, 3, 0, "compiled_region")


def test_nothing_tells_steps_of_a_single_call(tmp_path: Path) -> None:
    assert step_clock(profile_with(tmp_path, [slice_("aten::mm", 1, 5)])) is None


@pytest.mark.parametrize("streams", [1, 2])
@given(data=st.data())
def test_lengths_on_a_gpu_sum_to_its_time_from_first_to_last(streams: int, data: st.DataObject) -> None:
    """Whatever order the work of several streams has."""
    work = st.tuples(st.integers(0, 5), st.integers(0, 1000), st.integers(1, 100))
    rows = np.array(data.draw(st.lists(work, min_size=1, max_size=20 * streams)), np.int64)
    step, begin, dur = rows.T
    known, first, end = lengths(step, begin, begin + dur)
    assert known.tolist() == sorted(set(step.tolist()))
    assert (end >= first).all() and (end[:-1] == first[1:]).all()
    last = step == step.max()
    assert (end - first).sum() == end[-1] - begin[step == step.min()].min()
    assert end[-1] == max((begin + dur)[last].max(), first[-1])


def test_any_windows_have_lengths(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, ahead(2))
    (gpu,) = gpu_steps_of(profile, Intervals(np.array([0]), np.array([20_000])))
    assert (gpu.device, gpu.step.tolist(), gpu.length.tolist()) == (0, [0], [195_000])
