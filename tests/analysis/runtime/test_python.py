"""Test python.py: whose functions took the host's time, by recorded stacks."""

from typing import Any

import pytest

from profiles import profile_of, profile_with
from tb_torchcompile_plugin.analysis.runtime.python import python as python_time
from tb_torchcompile_plugin.profile.host.host_tree import calling_tracks
from tb_torchcompile_plugin.profile.steps import StepWindows
from traces import AUTOGRAD, frame, slice_, step


def test_a_recursive_function_counts_once_in_its_total(tmp_path):
    events = [frame("a.py(1): f", 0, 100), frame("a.py(1): f", 10, 50), frame("b.py(2): g", 70, 20)]
    events += [slice_("aten::mm", 72, 10), frame("a.py(1): f", 200, 5)]
    f, g = python_time(profile_with(tmp_path, events)).functions
    assert (f.name, f.file, f.line, f.calls, f.self_us, f.total_us) == ("f", "a.py", 1, 3, 85, 105)
    assert (g.name, g.self_us, g.total_us, g.owner) == ("g", 10, 20, "yours")


def test_threads_without_operators_are_excluded(tmp_path):
    events = [slice_("aten::mm", 0, 1), frame("a.py(1): f", 10, 100)]
    events += [frame("threading.py(9): wait", 0, 5000, tid=7)]
    answer = python_time(profile_with(tmp_path, events))
    assert [row.name for row in answer.functions] == ["f"]
    assert answer.note.endswith(" 1 thread without operators is excluded.")


def test_times_are_of_a_step_and_the_costliest_function_is_named(tmp_path):
    """What a library does for a function of the user's is that function's; the inner one has its own."""
    events = []
    for number, at in enumerate((0, 1000)):
        events += [step(number, at, 900), frame("train.py(5): main", at, 800)]
        events += [frame("torch/nn/functional.py(9): gelu", at + 10, 100), slice_("aten::gelu", at + 20, 80)]
        events.append(frame("model.py(17): forward", at + 200, 500))
        events.append(frame("numpy/core.py(3): dot", at + 210, 400))
    answer = python_time(profile_with(tmp_path, events))
    own: dict[str, Any] = {row.name: row.user_us for row in answer.functions}
    assert own == {"main": 300, "gelu": None, "forward": 500, "dot": None}
    said = (
        "is your most expensive function. With library calls and backward, it takes 500 µs per step, 62.5 %"
    )
    assert f"forward (model.py:17) {said} of host time." == answer.headline
    assert answer.parts == {"yours": 300, "library": 420, "built in": 0, "operators": 80}


def test_the_backward_of_what_a_function_called_is_its_own(tmp_path):
    forward = slice_("aten::mm", 20, 20) | {"args": {"Sequence number": 4, "Fwd thread id": 0}}
    backward = slice_("MmBackward0", 300, 50, tid=AUTOGRAD)
    backward["args"] = {"Sequence number": 4, "Fwd thread id": 1}
    answer = python_time(profile_with(tmp_path, [frame("m.py(1): f", 10, 40), forward, backward]))
    assert [(row.self_us, row.user_us) for row in answer.functions] == [(20, 90)]


def test_a_framework_is_a_library_and_the_loop_that_runs_it_all_is_not_what_costs(tmp_path):
    events = [frame("train.py(5): main", 0, 2000), slice_("aten::mm", 1, 1)]
    for number, at in enumerate((10, 1000)):
        events += [step(number, at, 900), frame("lightning/loops.py(9): advance", at + 10, 800)]
        events += [frame("train.py(17): torch_dynamo_resume_in_forward_at_30", at + 100, 200)]
        events += [slice_("aten::mm", at + 110, 10)]
    answer = python_time(profile_with(tmp_path, events))
    own: dict[str, Any] = {row.name: (row.owner, row.user_us) for row in answer.functions}
    assert own["advance"] == ("library", None) and own["forward after line 30"] == ("yours", 200)
    assert own["main"][1] > 200 and answer.headline.startswith("forward after line 30 (train.py:17) is")


def test_a_call_whose_end_was_missed_takes_no_time_from_its_caller(tmp_path):
    """torch's tracer lets it run on, over what its caller calls next and beyond its end."""
    events = [frame("m.py(1): f", 0, 100), frame("<built-in method __exit__>", 10, 150)]
    events += [frame("torch/a.py(2): g", 50, 30), slice_("aten::mm", 55, 5), frame("m.py(9): h", 120, 20)]
    answer: Any = python_time(profile_with(tmp_path, events))
    times = {row.name: (row.self_us, row.user_us) for row in answer.functions}
    assert times["f"] == (10, 100) and times["g"] == (25, None) and times["h"] == (20, 20)
    assert all(row.self_us >= 0 for row in answer.functions)


@pytest.mark.parametrize("events", [[slice_("aten::mm", 0, 1)], []])
def test_without_stacks_nothing_is_known(tmp_path, events):
    answer = python_time(profile_with(tmp_path, events))
    assert (answer.recorded, answer.functions, answer.parts) == (False, [], {})
    assert answer.headline == "Python stacks were not recorded."


def test_the_parts_are_all_host_time_of_threads_that_called(recording):
    (file,) = recording("breaks").glob("*.trace.json")
    made = profile_of(file)
    trace, answer, own = made.trace, python_time(made), made.trace.self_ns
    here = made.of(calling_tracks)[trace.track]
    recorded_us = (own[here].sum() - own[made.of(StepWindows).rows].sum()) / 1000
    assert sum(answer.parts.values()) * 3 == pytest.approx(recorded_us)
    assert own.min() >= 0
    assert len(answer.functions) > 100
