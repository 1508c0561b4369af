"""`profile_steps`: a loop is recorded once nothing is compiled any more, and nothing is raised into it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from live import SUMMARY, TRACE, names, needs_torch, run, summaries
from tb_torchcompile_plugin import profile_steps

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]


@pytest.fixture
def step(torch: Any) -> Callable[[int], Any]:
    """A step that is compiled again for each rank of its argument."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    return lambda ranks: compiled(torch.ones([1] * ranks))


def recorded_steps(folder: Path) -> list[int]:
    """Numbers of the steps in the one trace."""
    (trace,) = folder.glob(f"*{TRACE}")
    events = json.loads(trace.read_text())["traceEvents"]
    steps = {e["name"] for e in events if e.get("cat") == "user_annotation"}
    return sorted(int(name.removeprefix("ProfilerStep#")) for name in steps if "#" in name)


def test_it_records_when_two_steps_in_a_row_compiled_nothing(
    step: Callable[[int], Any], tmp_path: Path
) -> None:
    with profile_steps(tmp_path) as steps:
        for number in range(12):
            step([1, 1, 2][number] if number < 3 else 2)  # compiles in 0 and 2; 3 and 4 are quiet, 5 warms up
            steps.step()
    assert recorded_steps(tmp_path) == [6, 7, 8]
    assert names(tmp_path, TRACE) == names(tmp_path, SUMMARY)
    assert [len(summary.compilations) for summary in summaries(tmp_path)] == [2]


def test_a_loop_that_always_compiles_is_recorded_as_it_is(torch: Any, tmp_path: Path) -> None:
    with profile_steps(tmp_path, steps=1) as steps:
        for number in range(23):
            torch._dynamo.reset()
            torch.compile(lambda x, number=number: x + number, backend="eager")(torch.ones(1))
            steps.step()
    assert recorded_steps(tmp_path) == [21]


def test_starting_again_ends_the_previous_loop(
    torch: Any, step: Callable[[int], Any], tmp_path: Path
) -> None:
    steps = profile_steps(tmp_path, after=0, steps=2)
    for calls in (2, 6):
        steps.start()
        for _ in range(calls):
            step(1)
            steps.step()
    assert not torch.autograd._profiler_enabled()
    assert len(names(tmp_path, TRACE)) == 2


def test_as_a_decorator_each_call_is_a_step(step: Callable[[int], Any], tmp_path: Path) -> None:
    @profile_steps(tmp_path, "rank7", after=1, steps=2)
    def train_step(ranks: int) -> Any:
        """Says what it does."""
        return step(ranks)

    results = [train_step(2) for _ in range(6)]
    assert all(float(result[0][0]) == 2 for result in results)
    assert (train_step.__name__, train_step.__doc__) == ("train_step", "Says what it does.")
    assert recorded_steps(tmp_path) == [2, 3]
    assert next(tmp_path.glob(f"*{TRACE}")).name.startswith("rank7.")


def test_a_loop_that_ends_while_it_is_recorded_is_written(step: Callable[[int], Any], tmp_path: Path) -> None:
    with profile_steps(tmp_path, after=0, steps=9) as steps:
        for _ in range(3):
            step(1)
            steps.step()
    assert recorded_steps(tmp_path)[:2] == [1, 2]


@pytest.mark.parametrize(
    ("steps_taken", "said"),
    [(1, "the loop ended after 1 step, while"), (0, "Call it at the end of each step")],
)
def test_a_loop_that_is_too_short_is_reported(
    step: Callable[[int], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, steps_taken: int, said: str
) -> None:
    with profile_steps(tmp_path) as steps:
        step(1)
        for _ in range(steps_taken):
            steps.step()
    assert not names(tmp_path, TRACE)
    assert said in caplog.text and ("after=1" in caplog.text) == bool(steps_taken)


def test_another_profiler_is_left_alone_and_nothing_is_raised(
    torch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with torch.profiler.profile() as theirs, profile_steps(tmp_path, after=0, steps=1) as steps:
        for _ in range(4):
            torch.ones(1) + 1
            steps.step()
    assert theirs.events()
    assert not names(tmp_path, TRACE) and "another profiler" in caplog.text


def test_a_profiler_that_cannot_start_is_said_once(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.profiler, "profile", Mock(side_effect=RuntimeError("no profiler here")))
    with profile_steps(tmp_path) as steps:
        steps.step()
    assert caplog.text.count("no profiler here") == 1


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"after": -1}, {"capture": "some"}])
def test_arguments_that_cannot_be_meant_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"steps >= 1|capture"):
        profile_steps(tmp_path, **wrong)


def test_a_program_that_ends_in_the_middle_writes_what_was_recorded(tmp_path: Path) -> None:
    run(
        f"""
        import torch
        from tb_torchcompile_plugin import profile_steps

        @profile_steps({str(tmp_path)!r}, after=0, steps=50)
        def train_step():
            return torch.ones(1) + 1

        for _ in range(4):
            train_step()
        """,
        tmp_path,
    )
    assert recorded_steps(tmp_path)[:3] == [1, 2, 3]
