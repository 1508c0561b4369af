"""The times of steps under a real torch: which are noted, as what, and that the training loop notices nothing of it."""

import functools
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from live import in_a_fork, needs_torch, run, run_handler, summaries, torch_before
from profiles import data_of
from tb_torchcompile_plugin import CompileRecorder, tensorboard_trace_handler
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, StepTimes
from tb_torchcompile_plugin.profile.steps import unprofiled_steps
from tb_torchcompile_plugin.reader.merge import merge
from tb_torchcompile_plugin.writer import step_notes
from tb_torchcompile_plugin.writer.recorder import recorder
from tb_torchcompile_plugin.writer.step_notes import StepClock

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
MS = 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ns, which a test moves on."""
    now = [0]
    monkeypatch.setattr(step_notes, "perf_counter_ns", lambda: now[0])
    return now


@pytest.fixture
def handled(tmp_path: Path) -> None:
    """A handler has been created."""
    tensorboard_trace_handler(tmp_path)


def noted(capture: str = "full") -> StepTimes:
    return recorder().summary(capture).steps


def sgd(torch: Any) -> Any:
    return torch.optim.SGD([torch.zeros(2, requires_grad=True)], 0.1)


def take_steps(step: Any, clock: list[int], durations: list[int]) -> None:
    for duration in durations:
        clock[0] += duration
        step()


def scheduled(torch: Any, on_ready: Any = None, **of_schedule: int) -> Any:
    schedule = torch.profiler.schedule(**of_schedule)
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=on_ready
    )


# -- the profiler's steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", ["full", "summary"])
def test_steps_by_what_the_profiler_did(torch: Any, tmp_path: Path, clock: list[int], capture: str) -> None:
    """The first one began before anybody looked; of the others each belongs to the action that held while it ran."""
    handler = tensorboard_trace_handler(tmp_path, "w", capture=capture)
    with scheduled(torch, handler, wait=2, warmup=1, active=2, repeat=2) as prof:
        take_steps(prof.step, clock, list(range(1, 14)))
    steps = noted(capture)
    assert steps.source == "profiler.step"
    assert list(steps.unrecorded_ns) == [2, 6, 7, 11, 12, 13]
    assert list(steps.recorded_ns) == [4, 5, 9, 10]
    assert [list(summary.steps.recorded_ns) for summary in summaries(tmp_path)] == [[4, 5], [4, 5, 9, 10]]


def test_what_happens_inside_of_step_is_in_no_step(torch: Any, clock: list[int], tmp_path: Path) -> None:
    def slow(prof: Any) -> None:
        clock[0] += 1000

    tensorboard_trace_handler(tmp_path)
    with scheduled(torch, slow, wait=1, warmup=0, active=1) as prof:
        take_steps(prof.step, clock, [1] * 6)
    assert set(noted().unrecorded_ns) | set(noted().recorded_ns) == {1}


def test_a_step_that_compiled_is_left_out(torch: Any, clock: list[int], handled: None) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with scheduled(torch, wait=100, warmup=0, active=1) as prof:
        for number, size in enumerate([2, 2, 2, 3, 3, 2]):
            compiled(torch.ones(size))
            take_steps(prof.step, clock, [number])
    assert list(noted().unrecorded_ns) == [1, 2, 4, 5]


def test_the_last_steps_are_kept(torch: Any, clock: list[int], handled: None) -> None:
    with scheduled(torch, wait=1000, warmup=0, active=1) as prof:
        take_steps(prof.step, clock, list(range(300)))
    assert list(noted().unrecorded_ns) == list(range(44, 300))


def test_each_profiler_has_its_own_steps(torch: Any, clock: list[int], handled: None) -> None:
    for begin in (1, 100):
        with scheduled(torch, wait=50, warmup=0, active=1) as prof:
            take_steps(prof.step, clock, [begin, begin + 1, begin + 2])
    assert list(noted().unrecorded_ns) == [2, 3, 101, 102]


def test_what_step_raises_and_returns_is_its_own(torch: Any, clock: list[int], handled: None) -> None:
    prof = scheduled(torch, wait=50, warmup=0, active=1)
    broken = ValueError("of the user's schedule")

    def schedule(number: int) -> Any:
        if number == 3:
            raise broken
        return torch.profiler.ProfilerAction.NONE

    prof.schedule = schedule
    take_steps(prof.step, clock, [1, 2])
    with pytest.raises(ValueError, match="of the user's schedule") as raised:
        prof.step()
    assert raised.value is broken and raised.value.__cause__ is None and raised.value.__context__ is None
    prof.schedule = lambda number: torch.profiler.ProfilerAction.NONE
    take_steps(prof.step, clock, [4])
    assert list(noted().unrecorded_ns) == [2, 0]
    # older ones count before they ask the schedule
    assert prof.step_num == (4 if torch_before("2.13") else 3)


def test_a_second_handler_and_other_wrappers(
    torch: Any, clock: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is noted once, even where another wrapper hides ours from a later handler."""
    tensorboard_trace_handler(tmp_path, "a")
    ours = torch.profiler.profile.step
    tensorboard_trace_handler(tmp_path, "b")
    assert torch.profiler.profile.step is ours

    calls = []

    @functools.wraps(ours)
    def polite(self: Any) -> None:
        calls.append(self)
        ours(self)

    def rude(self: Any) -> None:
        polite(self)

    monkeypatch.setattr(torch.profiler.profile, "step", polite)
    tensorboard_trace_handler(tmp_path, "c")
    assert torch.profiler.profile.step is polite
    monkeypatch.setattr(torch.profiler.profile, "step", rude)
    tensorboard_trace_handler(tmp_path, "d")
    assert torch.profiler.profile.step is not rude
    with scheduled(torch, wait=50, warmup=0, active=1) as prof:
        take_steps(prof.step, clock, [1, 2, 3])
    assert list(noted().unrecorded_ns) == [2, 3]
    assert calls == [prof] * 3


def test_profilers_are_not_kept_alive(torch: Any, tmp_path: Path) -> None:
    import gc
    import weakref

    tensorboard_trace_handler(tmp_path)
    prof, optimizer = scheduled(torch, wait=50, warmup=0, active=1), sgd(torch)
    with prof:
        prof.step()
        optimizer.step()
    gone = [weakref.ref(prof), weakref.ref(optimizer)]
    del prof, optimizer
    gc.collect()
    assert [it() for it in gone] == [None, None]


# -- an optimizer's steps -----------------------------------------------------------------------------------------


def test_steps_without_a_schedule_are_noted_from_the_optimizer(
    torch: Any, clock: list[int], tmp_path: Path
) -> None:
    handler = tensorboard_trace_handler(tmp_path, "w")
    optimizer, second = sgd(torch), sgd(torch)

    def step() -> None:
        optimizer.step()
        second.step()

    take_steps(step, clock, [1, 2, 3])
    with torch.profiler.profile(on_trace_ready=handler):
        take_steps(step, clock, [10, 11, 12])
    take_steps(step, clock, [4, 5])
    steps = noted()
    assert steps.source == "optimizer"
    assert list(steps.unrecorded_ns) == [2, 3, 5]  # 10 and 4 were recorded in part
    assert list(steps.recorded_ns) == [11, 12]


def test_an_optimizer_that_is_gone_hands_over(torch: Any, clock: list[int], handled: None) -> None:
    optimizer = sgd(torch)
    take_steps(optimizer.step, clock, [1, 2])
    del optimizer
    take_steps(sgd(torch).step, clock, [100])
    optimizer = sgd(torch)
    take_steps(optimizer.step, clock, [5, 6])
    assert list(noted().unrecorded_ns) == [2, 6]


@pytest.mark.parametrize(
    ("before", "schedule", "after", "source", "unrecorded", "recorded"),
    [
        # The profiler's steps win.
        ([], {"wait": 3, "warmup": 1, "active": 1}, [6, 7], "profiler.step", [2, 3], [5]),
        # The profiler had none: training goes on after its block; its warm-up is not unrecorded.
        ([], {"wait": 0, "warmup": 2, "active": 2}, [50, 6, 7], "optimizer", [6, 7], None),
        # Many warm up first, and wait for one step more in the profiler's block: that one may be any.
        ([40, 6, 7, 6], {"wait": 2, "warmup": 1, "active": 2}, [], "optimizer", [6, 7, 6, 1], None),
    ],
)
def test_who_tells_steps_where_both_do(
    torch: Any,
    clock: list[int],
    handled: None,
    before: list[int],
    schedule: dict[str, int],
    after: list[int],
    source: str,
    unrecorded: list[int],
    recorded: list[int] | None,
) -> None:
    optimizer = sgd(torch)
    take_steps(optimizer.step, clock, before)
    with scheduled(torch, repeat=1, **schedule) as prof:
        for duration in range(1, 1 + sum(schedule.values())):
            take_steps(optimizer.step, clock, [duration])
            prof.step()
    take_steps(optimizer.step, clock, after)
    steps = noted()
    assert (steps.source, list(steps.unrecorded_ns)) == (source, unrecorded)
    assert recorded in (None, list(steps.recorded_ns))


@pytest.mark.parametrize("steps_of_one", [2, 0.5])
def test_an_optimizer_that_steps_less_often_is_not_used(
    torch: Any, clock: list[int], handled: None, steps_of_one: float
) -> None:
    optimizer = sgd(torch)
    take_steps(optimizer.step, clock, [12, 12, 12])
    with scheduled(torch, wait=2, warmup=0, active=4, repeat=1) as prof:
        for number in range(1, 7):
            if number % 2 == 0 or steps_of_one == 0.5:
                take_steps(optimizer.step, clock, [6] * int(1 / min(steps_of_one, 1)))
            prof.step()
    steps = noted()
    assert (steps.source, len(steps.unrecorded_ns)) == ("profiler.step", 1)


@pytest.mark.filterwarnings("ignore")
def test_dynamo_sees_the_same_program(tmp_path: Path) -> None:
    """A loop that is compiled whole, with prof.step() and a compiled optimizer, has no frame and no break more."""
    program = """
        import sys, torch
        from torch._dynamo.utils import counters
        from tb_torchcompile_plugin import CompileRecorder, tensorboard_trace_handler
        (tensorboard_trace_handler if {ours} else torch.profiler.tensorboard_trace_handler)("logs")
        layer = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)

        def train(x, prof):
            y = layer(x)
            prof.step()
            return (y * 2).sum()

        compiled = torch.compile(train, backend="eager")
        stepped = torch.compile(optimizer.step, backend="eager")
        with torch.profiler.profile(schedule=torch.profiler.schedule(wait=50, warmup=0, active=1)) as prof:
            for _ in range(5):
                compiled(torch.ones(2, 2), prof).backward()
                stepped()
        print("FOUND", sorted(text[:36] for text in counters["graph_break"]), dict(counters["stats"]))
        print("FRAMES", counters["frames"]["ok"])
    """
    printed = [run(program.replace("{ours}", str(ours)), tmp_path) for ours in (True, False)]
    ours, stock = (re.findall("^FOUND.*", text, re.MULTILINE) for text in printed)
    assert ours == stock != []


# -- when it is written -------------------------------------------------------------------------------------------

LOOP = """
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1),
        on_trace_ready=tensorboard_trace_handler("logs", "w"),
    ) as prof:
        for _ in range(30):
            torch.ones(50).sum()
            prof.step()
"""


def test_steps_after_the_last_cycle_go_into_its_summary(tmp_path: Path) -> None:
    run_handler(LOOP, tmp_path)
    (summary,) = summaries(tmp_path / "logs")
    assert len(summary.steps.unrecorded_ns) == 27 and len(summary.steps.recorded_ns) == 1
    assert summary.environment.worker == "w"
    assert 0 < fmean(data_of(summary).of(unprofiled_steps)) < 1000 * MS


def test_a_logdir_that_was_removed_stays_removed(tmp_path: Path) -> None:
    run_handler(LOOP + "    import shutil; shutil.rmtree('logs')\n", tmp_path)
    assert not (tmp_path / "logs").exists()


def test_steps_alone_write_nothing(tmp_path: Path) -> None:
    program = """
        tensorboard_trace_handler("logs")
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
        for _ in range(9):
            optimizer.step()
    """
    run_handler(program, tmp_path)
    assert not (tmp_path / "logs").exists()


def test_without_a_handler_no_step_is_noted(torch: Any, clock: list[int], tmp_path: Path) -> None:
    with CompileRecorder(tmp_path):
        take_steps(sgd(torch).step, clock, [1, 2, 3])
    assert not summaries(tmp_path)[0].HasField("steps")


def test_the_child_of_a_fork_has_its_own_steps(torch: Any, clock: list[int], handled: None) -> None:
    optimizer = sgd(torch)
    take_steps(optimizer.step, clock, [1, 2, 3])

    def train() -> None:
        assert not recorder().summary("full").HasField("steps")
        take_steps(optimizer.step, clock, [7, 8])
        assert list(noted().unrecorded_ns) == [8]

    in_a_fork(train)
    assert list(noted().unrecorded_ns) == [2, 3]


# -- a torch that is not as we know it ----------------------------------------------------------------------------


def test_a_torch_without_these_names(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(step_notes, "_hooked", False)
    monkeypatch.delattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_post_hook")
    monkeypatch.delattr(torch.profiler.profile, "step")
    tensorboard_trace_handler(tmp_path)
    assert "step times cannot be recorded" in caplog.text
    assert not recorder().summary("full").HasField("steps")


def test_a_profiler_without_an_action(
    torch: Any, clock: list[int], handled: None, caplog: pytest.LogCaptureFixture
) -> None:
    prof = scheduled(torch, wait=50, warmup=0, active=1)
    for _ in range(3):
        step_notes.note(StepClock.entered, object())
    step_notes.note(StepClock.optimizer_stepped, 4)
    assert caplog.text.count("a step time cannot be recorded") == 2  # one for each kind of error
    take_steps(prof.step, clock, [1, 2])
    assert list(noted().unrecorded_ns) == [2]


# -- read back ----------------------------------------------------------------------------------------------------


def test_at_least_two_count_without_pauses() -> None:
    summary = CompileSummary(steps=StepTimes(unrecorded_ns=[9, 2, 4, 100], recorded_ns=[7]))
    assert list(unprofiled_steps(data_of(merge(summary, CompileSummary())))) == [9, 2, 4]
    assert not unprofiled_steps(data_of(CompileSummary()))


@pytest.mark.parametrize(
    ("recorded", "answer"), [([14, 13], [5]), ([5, 13], []), ([4], []), ([], [])], ids=str
)
def test_a_single_step_counts_if_it_is_shorter_than_all_profiled_ones(
    recorded: list[int], answer: list[int]
) -> None:
    summary = CompileSummary(steps=StepTimes(unrecorded_ns=[5], recorded_ns=recorded))
    assert list(unprofiled_steps(data_of(summary))) == answer


def test_whether_algorithms_are_deterministic_when_a_profiler_first_records(tmp_path: Path) -> None:
    program = """
        from tb_torchcompile_plugin import CompileRecorder
        with CompileRecorder(".") as recorder:
            handler = tensorboard_trace_handler(".")
            print(recorder.summary().environment.HasField("deterministic_algorithms"))
            torch.use_deterministic_algorithms(True)
            with torch.profiler.profile(on_trace_ready=handler):
                torch.use_deterministic_algorithms(False)
    """
    assert run_handler(program, tmp_path).startswith("False")
    assert [row.environment.deterministic_algorithms for row in summaries(tmp_path)] == [True, True]
