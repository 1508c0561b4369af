"""Test gpu_idle.py: idle time in the steps by culprit, to the nanosecond."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles import profile_in, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.scenario import scenario
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import IdleReason, idle_culprits
from tb_torchcompile_plugin.analysis.runtime.step_picture import time_base
from tb_torchcompile_plugin.profile.columns import subtract
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.steps import steady_steps, step_time
from traces import Event, frame, in_steps, launch, slice_


def steps(*, shapes: bool = False) -> list[Event]:
    """Three steps of 100 µs: Python for 30, then an operator for 20 that launches 10 µs of work, then nothing."""
    make = [frame("train.py(3): log", 1, 30), *launch("k", 50, 55, 10)]
    events = in_steps(*make, every=100)
    for at in range(3):
        args: dict[str, Any] = {"Input Dims": [[at + 1, 8]]} if shapes else {}
        events.append(slice_("aten::mm", 100 * at + 40, 20, **args))
    return events


def by_culprit(rows: list[IdleReason]) -> dict[tuple[str, str], IdleReason]:
    return {(row.cause, row.name): row for row in rows}


def test_idle_time_is_what_the_host_did_meanwhile(tmp_path: Path) -> None:
    rows = by_culprit(idle_culprits(profile_with(tmp_path, steps())))
    python = rows["python", "train.py(3): log"]
    assert (python.idle_us, python.calls, python.pattern, python.file) == (30, 1, "every step", "train.py")
    assert (python.longest_start_us, python.longest_us) == (1, 30)
    assert rows["operator", "aten::mm"].idle_us > 0
    assert sum(row.idle_us for row in rows.values()) == 90, "10 of 100 µs the GPU works"
    assert sum(row.share_percent for row in rows.values()) == pytest.approx(100)


def test_the_pattern_tells_when_it_comes_and_in_how_many_shapes(tmp_path: Path) -> None:
    only_first = [*steps(shapes=True), frame("train.py(9): warm", 70, 25)]
    rows = by_culprit(idle_culprits(profile_with(tmp_path, only_first)))
    assert rows["operator", "aten::mm"].pattern == "every step, a new shape each time"
    assert rows["python", "train.py(9): warm"].pattern == "the first step only"


def test_without_launches_nothing_is_told(tmp_path: Path) -> None:
    assert idle_culprits(profile_with(tmp_path, [slice_("aten::mm", 0, 5)])) == []


@pytest.mark.parametrize("name", ["breaks", "resnet18", "small_batch"])
def test_rows_of_a_device_sum_to_its_idle_time(recording: Recording, name: str) -> None:
    for folder in {path.parent for path in recording(name).rglob("*.trace.json*")}:
        if len(list(folder.glob("*.pt.trace.json*"))) != 1:
            continue
        profile = profile_in(folder)
        work, steady = profile.of(gpu_work), profile.of(steady_steps)
        assert steady
        for device in np.unique(work.device).tolist():
            idle = subtract(steady.windows, busy(profile.trace, work.index[work.device == device])).total_ns
            rows = [row for row in idle_culprits(profile) if row.device == device]
            total = sum(row.idle_us for row in rows) * len(steady.rows) * 1000
            assert total == pytest.approx(idle - 1000 * step_time(profile).overhead_us * len(steady.rows))


def test_its_times_are_of_a_step(tmp_path: Path) -> None:
    assert profile_with(tmp_path, steps()).of(time_base) == "a step"


@pytest.mark.parametrize(
    ("most_calls", "words"), [(1, "the first of 3 steps"), (2, "a step of the first 2 of 3 steps")]
)
def test_of_very_many_calls_the_words_tell_which_steps_were_taken(
    tmp_path: Path, most_calls: int, words: str
) -> None:
    cut = replace(profile_with(tmp_path, steps()), most_calls=most_calls)
    assert cut.of(time_base) == words
    assert words.removeprefix("a step of ") in scenario(cut).headline


def test_without_steps_its_times_are_of_the_span(tmp_path: Path) -> None:
    bare = profile_with(tmp_path, [*launch("k", 0, 5, 10), *launch("k", 20, 25, 10)])
    assert bare.of(time_base) == "the span"
    assert replace(bare, most_calls=1).of(time_base) == "the span, its first 1 calls"
