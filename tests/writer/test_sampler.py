"""Sampling Python while a profiler records: which line, what is restored, and that training notices nothing."""

import gc
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from live import in_a_fork, needs_torch, summaries
from tb_torchcompile_plugin import tensorboard_trace_handler
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, PythonSamples
from tb_torchcompile_plugin.writer import sampler as sampler_module
from tb_torchcompile_plugin.writer.sampler import (
    INTERVAL_NS,
    SHARED_SWITCH_INTERVAL_S,
    SWITCH_INTERVAL_S,
    Sampler,
)

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
PATIENCE_S = 60.0
NAME = "tb_torchcompile sampler"


class Profiler:
    """What the sampler sees of torch's."""

    with_stack = False


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    made = Sampler()
    made.enabled = True
    yield made
    made.stop()


@pytest.fixture
def prof() -> Profiler:
    return Profiler()


@pytest.fixture(autouse=True)
def switch_interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before + 5e-7)


def stored(sampler: Sampler, *, source: bool = True) -> PythonSamples:
    summary = CompileSummary()
    sampler.put(summary, source=source)
    return summary.python_samples


def until(holds: Callable[[], bool]) -> None:
    """Runs this line until it holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end


def pure_python(holds: Callable[[], bool]) -> None:
    until(holds)


def in_a_library(holds: Callable[[], bool]) -> None:
    text = json.dumps(list(range(20_000)))
    while not holds():
        json.loads(text)


def is_running() -> bool:
    return any(thread.name == NAME for thread in threading.enumerate())


def sampled(sampler: Sampler, work: Callable[[Callable[[], bool]], None], rows: int = 1) -> PythonSamples:
    """What is sampled of some work in this thread."""
    prof = Profiler()
    sampler.follow(prof, records=True)
    first = sum(sampler._rows.samples)
    work(lambda: sum(sampler._rows.samples) >= first + rows)
    sampler.follow(prof, records=False)
    return stored(sampler)


def callers(lines: Sequence[Any], line: Any) -> list[str]:
    """The functions that led to a line, innermost first."""
    functions = list[str]()
    while line.caller:
        line = lines[line.caller - 1]
        functions.append(line.function)
    return functions


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Another thread, which the test lets end."""
    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join()


# -- what is sampled ----------------------------------------------------------------------------------------------


def test_the_innermost_line_of_the_program(sampler: Sampler) -> None:
    samples = sampled(sampler, pure_python, rows=5)
    lines = {(samples.lines[number].file, samples.lines[number].function) for number in samples.line}
    assert lines <= {
        (__file__, name) for name in ("until", "<lambda>", "sampled", "<genexpr>", "pure_python")
    }
    first = until.__code__.co_firstlineno
    inside = [line.line for line in samples.lines if line.function == "until"]
    assert all(first < line <= first + 4 for line in inside)
    assert list(samples.threads) == [threading.get_native_id()]


def test_the_function_that_the_line_calls(sampler: Sampler) -> None:
    samples = sampled(sampler, in_a_library, rows=30)
    called = {line.called for line in samples.lines if line.function == "in_a_library"}
    assert any(name.startswith("json/__init__.py(") and name.endswith("): loads") for name in called)


def test_the_lines_that_called_it(sampler: Sampler) -> None:
    lines = sampled(sampler, pure_python, rows=5).lines
    innermost = next(line for line in lines if line.function == "until")
    assert callers(lines, innermost)[:3] == ["pure_python", "sampled", "test_the_lines_that_called_it"]


def test_of_a_recursion_the_innermost_lines(sampler: Sampler) -> None:
    def nested(depth: int, holds: Callable[[], bool]) -> None:
        if depth:
            nested(depth - 1, holds)
        else:
            until(holds)

    lines = sampled(sampler, lambda holds: nested(100, holds), rows=3).lines
    assert "until" in {line.function for line in lines}
    assert len(lines) < 100


class Wrapped:
    """A module, by the name of its file a function of torch's that calls on."""

    def __init__(self, function: Callable[[str], object]) -> None:
        code = compile(
            "def _wrapped_call_impl(text): return function(text)", "/x/torch/nn/modules/module.py", "exec"
        )
        names: dict[str, Any] = {"function": function}
        exec(code, names)
        self.call: Callable[[str], object] = names["_wrapped_call_impl"]


def test_behind_a_wrapper_of_torch_the_function_that_it_calls(sampler: Sampler) -> None:
    text, module = json.dumps(list(range(20_000))), Wrapped(json.loads)

    def work(holds: Callable[[], bool]) -> None:
        while not holds():
            module.call(text)

    called = {line.called for line in sampled(sampler, work, rows=30).lines if line.function == "work"}
    assert any(name.endswith("): loads") for name in called)


def test_times_are_unix_time_and_follow_one_another(sampler: Sampler) -> None:
    begin = time.time_ns()
    samples = sampled(sampler, pure_python, rows=5)
    starts = [sum(samples.start_ns[: index + 1]) for index in range(len(samples.start_ns))]
    ends = [start + ns for start, ns in zip(starts, samples.duration_ns)]
    assert begin <= starts[0] and ends[-1] <= time.time_ns() and starts == sorted(starts)
    assert all(end <= start for end, start in zip(ends, starts[1:]))  # one thread runs one line at a time


def test_one_line_of_a_waiting_thread_is_one_row(sampler: Sampler) -> None:
    done = threading.Event()
    with beside(lambda: done.wait()) as thread:
        samples = sampled(sampler, pure_python, rows=20)
        done.set()
    index = list(samples.threads).index(thread.native_id)
    counts = [count for count, number in zip(samples.samples, samples.thread, strict=True) if number == index]
    assert len(counts) == 1 and counts[0] > 1


def test_a_thread_that_ends(sampler: Sampler) -> None:
    ids: list[int] = []

    def work(holds: Callable[[], bool]) -> None:
        for _ in range(3):  # a later thread may have the identity of one before
            seen = len(sampler._threads)
            thread = threading.Thread(target=until, args=(lambda seen=seen: len(sampler._threads) > seen,))
            thread.start()
            ids.append(thread.native_id or 0)
            while thread.is_alive():
                thread.join(0.001)

    main = threading.get_native_id()
    sampler._threads[main] = 0
    assert list(sampled(sampler, work).threads) == [main, *ids]


def test_threads_without_a_line_of_the_program_are_counted(sampler: Sampler) -> None:
    done = threading.Event()
    with beside(done.wait) as thread:
        samples = sampled(sampler, pure_python, rows=3)
        done.set()
    assert thread.native_id not in samples.threads and samples.left_out > 0


def test_summary_keeps_file_and_line_only(sampler: Sampler) -> None:
    sampled(sampler, in_a_library, rows=3)
    lines = stored(sampler, source=False).lines
    assert lines and all(line.file == __file__ and line.line for line in lines)
    assert not any(line.function or line.called for line in lines)


# -- bounds -------------------------------------------------------------------------------------------------------


def test_with_too_many_rows_half_of_the_samples_go_and_half_as_many_are_taken(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "MAX_ROWS", 8)
    prof = Profiler()
    sampler.follow(prof, records=True)
    until(lambda: sampler._interval_ns > 2 * INTERVAL_NS)
    assert len(sampler._rows) < 8
    sampler.follow(prof, records=False)
    sampler.follow(prof, records=True)
    assert sampler._interval_ns == INTERVAL_NS


def test_what_a_sample_costs_decides_how_often_one_is_taken(
    sampler: Sampler, prof: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def expensive(before: int, now: int) -> None:
        end = time.thread_time_ns() + 1_000_000
        while time.thread_time_ns() < end:
            pass
        taken.append(now)

    monkeypatch.setattr(sampler, "_sample", expensive)
    sampler.follow(prof, records=True)
    until(lambda: len(taken) == 20)
    sampler.follow(prof, records=False)
    assert (taken[-1] - taken[10]) / 9 > 40_000_000  # of about 80 to 100 times 1 ms, less what is random


def test_ending_does_not_wait_for_the_next_sample(
    sampler: Sampler, prof: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "INTERVAL_NS", 60_000_000_000)
    sampler.follow(prof, records=True)
    sampler.follow(prof, records=False)
    assert not is_running()


def test_thinned_rows_stand_for_the_same_time() -> None:
    rows = sampler_module._Rows()
    for index in range(20_000):
        rows.samples[rows.add(10 * index, 10 * index + 10, 0, index % 2)] = 1 + index % 3
    thinned = rows.thinned()
    for line in (0, 1):
        ns = sum(
            end - start
            for start, end, number in zip(thinned.start_ns, thinned.end_ns, thinned.line)
            if number == line
        )
        assert ns == pytest.approx(100_000, rel=0.05)
    assert sum(thinned.samples) == pytest.approx(sum(rows.samples) / 2, rel=0.05)
    assert len(thinned) < len(rows)


def test_memory_is_bounded() -> None:
    rows = sampler_module._Rows()
    assert sum(column.itemsize for column in rows.columns()) * sampler_module.MAX_ROWS < 2_000_000


def test_of_earlier_recordings_the_last_rows_are_kept(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "_KEPT_ROWS", 2)
    for _ in range(3):
        sampled(sampler, pure_python, rows=4)
    sampler.follow(Profiler(), records=True)
    sampler.stop()
    assert len(stored(sampler).start_ns) <= 3


def test_lines_that_no_kept_sample_needs_are_dropped(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "_KEPT_ROWS", 1)
    sampled(sampler, in_a_library, rows=20)
    sampled(sampler, pure_python, rows=5)
    sampler.follow(Profiler(), records=True)
    sampler.stop()
    samples = stored(sampler)
    assert "in_a_library" not in {line.function for line in samples.lines}
    innermost = samples.lines[samples.line[0]]
    assert innermost.file == __file__ and "sampled" in callers(samples.lines, innermost)


def test_a_clock_that_is_set_back_makes_no_sample(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    real, start = time.time_ns, time.time_ns()
    back = lambda: real() if real() < start + 200_000_000 else real() - 3_600_000_000_000  # noqa: E731
    monkeypatch.setattr(time, "time_ns", back)
    prof = Profiler()
    sampler.follow(prof, records=True)
    time.sleep(0.5)  # one instruction all the time: its row must not go on
    sampler.follow(prof, records=False)
    samples = stored(sampler)
    assert samples.start_ns and all(ns >= 0 for ns in samples.duration_ns)


# -- what is restored ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "sampling", "changed_to", "after"),
    [
        (None, SWITCH_INTERVAL_S, None, None),
        (0.0001, 0.0001, None, 0.0001),  # a shorter one stays
        (None, SWITCH_INTERVAL_S, 0.003, 0.003),  # as one that somebody sets meanwhile
    ],
)
def test_the_switch_interval_is_restored(
    sampler: Sampler,
    prof: Profiler,
    switch_interval: float,
    before: Any,
    sampling: float,
    changed_to: Any,
    after: Any,
) -> None:
    sys.setswitchinterval(before or switch_interval + 5e-7)
    sampler.follow(prof, records=True)
    assert sys.getswitchinterval() == pytest.approx(sampling, abs=2e-6) and is_running()
    sys.setswitchinterval(changed_to or sys.getswitchinterval() + 5e-7)
    sampler.follow(prof, records=False)
    assert not is_running()
    assert sys.getswitchinterval() == (pytest.approx(after, abs=2e-6) if after else switch_interval)


@pytest.mark.parametrize("is_busy", [True, False])
def test_several_busy_threads_take_turns_less_often(
    sampler: Sampler, prof: Profiler, is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting = sampler_module._is_waiting
    monkeypatch.setattr(  # pytest-xdist's thread waits, too
        sampler_module, "_is_waiting", lambda file: file.endswith("gateway_base.py") or is_waiting(file)
    )
    done = threading.Event()
    stopped: list[bool] = []  # asking an event runs a function of threading.py, where threads wait
    work = (lambda: until(lambda: bool(stopped))) if is_busy else (lambda: done.wait())
    with beside(work):
        sampler.follow(prof, records=True)
        until(lambda: sum(sampler._rows.samples) >= 10)
        together = sys.getswitchinterval()
        stopped.append(True)
        done.set()
    until(lambda: sys.getswitchinterval() < 0.0003)  # alone
    expected = SHARED_SWITCH_INTERVAL_S if is_busy else SWITCH_INTERVAL_S
    assert together == pytest.approx(expected, abs=2e-6)


def test_nothing_is_raised_or_printed_where_frames_cannot_be_read(
    sampler: Sampler,
    prof: Profiler,
    switch_interval: float,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail() -> Any:
        raise RuntimeError("no frames")

    monkeypatch.setattr(sys, "_current_frames", fail)
    sampler.follow(prof, records=True)
    until(lambda: not is_running())
    assert sys.getswitchinterval() == switch_interval
    sampler.follow(prof, records=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="others are safe, see _without_collection")
def test_no_garbage_is_collected_while_frames_are_read(sampler: Sampler, prof: Profiler) -> None:
    """Python 3.11 crashes where a finalizer lets another thread run meanwhile."""
    reading: list[bool] = []  # of each collection whether it began while frames were read

    def note(phase: str, info: dict[str, int]) -> None:
        functions = {frame.f_code for frame, _ in traceback.walk_stack(None)}
        reading.append(Sampler._sample.__code__ in functions)

    gc.callbacks.append(note)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        sampler.follow(prof, records=True)
        until(lambda: sum(sampler._rows.samples) >= 10)
        sampler.follow(prof, records=False)
        assert gc.get_threshold()[0] == 1
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert reading and not any(reading)


def test_a_threshold_that_the_program_sets_meanwhile_stays() -> None:
    before = gc.get_threshold()
    try:
        sampler_module._without_collection(lambda *_: gc.set_threshold(123), 0, 0)
        assert gc.get_threshold()[0] == 123
    finally:
        gc.set_threshold(*before)


def test_a_thread_that_cannot_start(
    sampler: Sampler, prof: Profiler, switch_interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    sampler.follow(prof, records=True)
    assert sys.getswitchinterval() == switch_interval
    sampler.follow(prof, records=False)


def test_without_the_interpreter_lock_nothing_is_sampled(
    sampler: Sampler, prof: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    sampler.follow(prof, records=True)
    assert not is_running()


def test_a_second_profiler_does_not_end_it(sampler: Sampler, prof: Profiler) -> None:
    sampler.follow(prof, records=True)
    sampler.follow(Profiler(), records=True)
    sampler.follow(Profiler(), records=False)
    assert len([thread for thread in threading.enumerate() if thread.name == NAME]) == 1
    sampler.follow(prof, records=False)
    assert not is_running()


def test_a_profiler_that_is_gone_without_an_end(sampler: Sampler, switch_interval: float) -> None:
    lost, other = Profiler(), Profiler()
    sampler.follow(lost, records=True)
    del lost
    until(lambda: not is_running())
    assert sys.getswitchinterval() == switch_interval
    sampler.follow(other, records=True)
    assert is_running()
    sampler.follow(other, records=False)


@pytest.mark.parametrize("us", [15, 199, 4999, 5000])
def test_to_the_microsecond(
    sampler: Sampler, prof: Profiler, us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "SWITCH_INTERVAL_S", 0.00001)
    sys.setswitchinterval((us + 0.5) / 1e6)
    before = sys.getswitchinterval()
    sampler.follow(prof, records=True)
    assert sys.getswitchinterval() < before
    sampler.follow(prof, records=False)
    assert sys.getswitchinterval() == before


# -- under torch --------------------------------------------------------------------------------------------------


def scheduled(torch: Any, handler: Any, **options: Any) -> Any:
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    return torch.profiler.profile(activities=cpu, schedule=schedule, on_trace_ready=handler, **options)


def test_profiled_steps_only(torch: Any, tmp_path: Path, switch_interval: float) -> None:
    with scheduled(torch, tensorboard_trace_handler(tmp_path, "w")) as prof:
        seen = []
        for _ in range(6):
            seen.append((is_running(), sys.getswitchinterval() < switch_interval))
            prof.step()
    assert seen == [(False, False)] * 2 + [(True, True)] * 2 + [(False, False)] * 2


def test_a_profiler_without_a_schedule(torch: Any, tmp_path: Path) -> None:
    before = time.time_ns()
    with torch.profiler.profile(on_trace_ready=tensorboard_trace_handler(tmp_path, "w", sample=True)):
        end = time.monotonic() + PATIENCE_S
        until(lambda: is_running() and time.monotonic() > end - PATIENCE_S + 0.05)
    (summary,) = summaries(tmp_path)
    assert not is_running()
    assert before < summary.python_samples.start_ns[0] < time.time_ns()
    assert {line.file for line in summary.python_samples.lines} == {__file__}


@pytest.mark.parametrize("options", [{"sample": False}, {"with_stack": True}])
def test_switched_off_or_not_needed(torch: Any, tmp_path: Path, options: dict[str, bool]) -> None:
    handler = tensorboard_trace_handler(tmp_path, "w", sample=options.get("sample", True))
    with torch.profiler.profile(on_trace_ready=handler, with_stack=options.get("with_stack", False)):
        assert not is_running()
    assert not summaries(tmp_path)[0].HasField("python_samples")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_it(
    torch: Any, tmp_path: Path, switch_interval: float, error: type[BaseException]
) -> None:
    def profiled() -> None:
        with torch.profiler.profile(on_trace_ready=tensorboard_trace_handler(tmp_path, "w", sample=True)):
            assert is_running()
            raise error

    with pytest.raises(error):
        profiled()
    assert not is_running() and sys.getswitchinterval() == switch_interval


def test_the_child_of_a_fork_samples_nothing_and_its_parent_goes_on(
    torch: Any, tmp_path: Path, switch_interval: float
) -> None:
    from tb_torchcompile_plugin.writer.recorder import recorder

    def child() -> None:
        assert not is_running() and sys.getswitchinterval() == switch_interval
        assert not recorder().summary("full").HasField("python_samples")

    handler = tensorboard_trace_handler(tmp_path, "w", sample=True)
    with torch.profiler.profile(on_trace_ready=handler):
        rows = recorder().sampler._rows
        until(lambda: len(rows) > 0)
        in_a_fork(child)
        assert is_running()
        count = sum(rows.samples)
        until(lambda: sum(rows.samples) > count)
