"""profile/model: walked with the recorded durations the model gives the recorded times back, whatever was recorded."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import data_of, profile_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.fix import with_call_time, without_host_time, without_waiting
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, step_cost
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.model.attribution import culprits
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.model.model import (
    USUAL_NS,
    clock,
    model,
    profiler_overhead,
    recorded_clock,
    replay,
    without_overhead,
)
from tb_torchcompile_plugin.profile.profile import Profile
from traces import AUTOGRAD, MAIN, Event, frame, in_steps, launch, slice_, step

RECORDINGS = (
    "breaks",
    "resnet18",
    "resnet18_eager",
    "handler_breaks",
    "handler_late",
    "kernels",
    "small_batch",
    "ddp",
    "recompiles",
    "resnet18_compile",
)


def profiles(folder: Path) -> list[Profile]:
    return [profile_of(path) for path in sorted(folder.rglob("*.trace.json"))]


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_recorded_steps_come_back_to_the_nanosecond(recording: Recording, name: str) -> None:
    for profile in profiles(recording(name)):
        lane, queue, times = profile.of(launch_sequence), profile.of(gpu_queue), replay(profile.of(model))
        assert np.array_equal(times.begin, lane.begin) and np.array_equal(times.end, lane.end)
        assert np.array_equal(times.work_begin, queue.start) and np.array_equal(times.work_end, queue.end)
        if len(lane):
            assert clock(lane, queue, times) == profile.of(recorded_clock)


@pytest.mark.parametrize("name", ["breaks", "resnet18", "handler_late", "ddp"])
def test_pieces_of_host_time_sum_to_what_the_model_has(recording: Recording, name: str) -> None:
    for profile in profiles(recording(name)):
        pieces, made = profile.of(host_segments), profile.of(model)
        assert np.array_equal(made.host, pieces.ns) and made.host.min() > 0
        assert (made.before[1:] <= 0).all(), "all time between two calls is in pieces"
        assert len(profile.of(culprits).code) == len(pieces.point)


moments = st.integers(0, 400)
operators = st.builds(
    lambda name, at, dur, tid: [slice_(name, at, dur, tid=tid)],
    st.sampled_from(["aten::mm", "aten::item", "enumerate(DataLoader)#x", "TorchDynamo Cache Lookup"]),
    moments,
    st.integers(0, 80),
    st.sampled_from([MAIN, AUTOGRAD]),
)
launches = st.builds(
    lambda at, wait, dur, tid: launch("k", at, at + wait, dur, tid),
    moments,
    st.integers(1, 300),
    st.integers(0, 60),
    st.sampled_from([MAIN, AUTOGRAD]),
)
waits = st.builds(
    lambda at, dur: [slice_("cudaStreamSynchronize", at, dur, "cuda_runtime")], moments, st.integers(0, 90)
)
many = st.lists(operators | launches | waits, max_size=25)


@given(many)
def test_whatever_is_recorded_comes_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[Event]]
) -> None:
    events = [event for some in drawn for event in some]
    profile = profile_with(tmp_path_factory.mktemp("replay"), [slice_("aten::add", 0, 1), *events])
    lane, queue, times = profile.of(launch_sequence), profile.of(gpu_queue), replay(profile.of(model))
    assert np.array_equal(times.begin, lane.begin) and np.array_equal(times.end, lane.end)
    assert np.array_equal(times.work_begin, queue.start)
    for row in profile.of(predicted_fixes):
        assert 0 <= row.predicted.low_us <= row.predicted.after_us <= row.predicted.high_us
        assert row.predicted.after_us < row.predicted.step_us


def waiting(folder: Path, noted_us: int = 0) -> Profile:
    """Three steps: a kernel of 50 µs, for which the host waits, then 40 µs of Python; 100 µs in all."""
    summary = CompileSummary()
    summary.steps.unrecorded_ns.extend([1000 * noted_us] * 3 if noted_us else [])
    make = [
        *launch("k", 2, 5, 50),
        slice_("cudaDeviceSynchronize", 10, 46, "cuda_runtime"),
        frame("train.py(3): log", 57, 40),
    ]
    return profile_with(folder, in_steps(*make, every=100), data_of(summary))


def test_a_fix_is_the_model_changed_and_walked_again(tmp_path: Path) -> None:
    profile = waiting(tmp_path)
    assert profile.of(step_cost).step == 100_000
    lane, pieces = profile.of(launch_sequence), profile.of(host_segments)
    python = np.array([pieces.row >= 0]).all(axis=0) & (pieces.ns == 40_000)
    assert after_ns(profile, without_host_time(np.where(python, pieces.ns, 0))) == 60_000
    # Without the wait the host needs 55 µs of its own, the GPU 50.
    assert after_ns(profile, without_waiting(lane.synchronises)) == 55_000
    assert after_ns(profile, with_call_time(np.zeros(len(lane), bool), 0)) == 100_000


def test_what_writing_slices_cost_is_taken_off_where_an_unrecorded_step_is_known(tmp_path: Path) -> None:
    profile = waiting(tmp_path, 95)
    cost = profile.of(step_cost).slice_ns
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    assert cost > 0
    assert clock(
        lane, queue, replay(without_overhead(profile, profile.of(model), cost))
    ).step == pytest.approx(95_000, rel=0.01)
    assert after_ns(profile, lambda model: model) == profile.of(step_cost).step == 95_000


def test_steps_that_are_noted_as_longer_cost_nothing(tmp_path: Path) -> None:
    noted = waiting(tmp_path, 200)
    assert noted.of(step_cost).slice_ns <= 1
    assert after_ns(noted, lambda model: model) == pytest.approx(noted.of(step_cost).step) == 100_000


def busy_steps(start_us: int, kernel_us: int, operators: int) -> list[Event]:
    """Six steps of 100 µs: so many operators, and a kernel that begins so late in its step."""
    views = [slice_("aten::view", 3 + 3 * place, 2) for place in range(operators)]
    return in_steps(*launch("k", 1, start_us, kernel_us), *views, every=100, number=6)


def test_a_noted_host_that_runs_ahead_tells_what_recording_cost_it(tmp_path: Path) -> None:
    """The GPU works 90 of 100 µs; the host, which needs 99 while recorded, needs 50 otherwise."""
    summary = CompileSummary()
    summary.steps.unrecorded_ns.extend([50_000] * 5)
    profile = profile_with(tmp_path, busy_steps(5, 90, 32), data_of(summary))
    times = replay(without_overhead(profile, profile.of(model), profiler_overhead(profile, 50_000)))
    walked = clock(profile.of(launch_sequence), profile.of(gpu_queue), times)
    assert walked.host <= 51_000 and walked.step == pytest.approx(90_000, rel=0.03)


def test_a_few_noted_steps_in_which_the_host_ran_ahead_tell_so_too(tmp_path: Path) -> None:
    """The GPU works 99 of 100 µs, recorded or not; the host needs 50 of them until the queue is full."""
    events, summary = busy_steps(2, 99, 10), CompileSummary()
    usual = profiler_overhead(profile_with(tmp_path, events, data_of(summary)), 99_000)
    assert usual == USUAL_NS
    for noted, is_usual in (
        ([50, 99, 99, 99], True),
        ([20, 50, 99, 99, 99], False),
        ([90, 95, 99, 99, 99], True),
    ):
        summary.steps.unrecorded_ns[:] = [1000 * one for one in noted]
        cost = profiler_overhead(profile_with(tmp_path, events, data_of(summary)), 99_000)
        assert (cost == usual) == is_usual


def test_work_that_was_queued_before_the_steps_is_as_much_shorter_as_they_are(tmp_path: Path) -> None:
    events = launch("k", 0, 2, 300)
    for number in range(3):
        events.append(step(number, 100 + 100 * number, 100))
        events += launch("k", 101 + 100 * number, 302 + 90 * number, 90)
    profile = profile_with(tmp_path, events)
    made = profile.of(model)
    for dur, left_ns in ((made.dur, 202_000), (made.dur // 2, 101_000), (made.dur * 2, 202_000)):
        changed = without_overhead(profile, made._replace(dur=dur), 0)
        assert int(changed.free[0]) - changed.begin == left_ns


def test_without_a_gpu_there_is_nothing_to_walk(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, [slice_("aten::mm", 0, 5)])
    assert profile.of(predicted_fixes) == []
