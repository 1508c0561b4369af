"""Test cpu.py: threads that worked."""

from pathlib import Path

from profiles import profile_with
from tb_torchcompile_plugin.analysis.runtime.cpu import cpu
from traces import AUTOGRAD, MAIN, slice_


def test_threads_worked_side_by_side_for_as_long_as_two_did(tmp_path: Path) -> None:
    events = [
        slice_("aten::mm", 0, 60),
        slice_("aten::add", 10, 20),
        slice_("aten::mul", 50, 50, tid=AUTOGRAD),
        slice_("aten::relu", 100, 100, tid=AUTOGRAD),
    ]
    answer = cpu(profile_with(tmp_path, events))
    rows = {row.thread: (row.busy_us, row.busy_percent, row.calls) for row in answer.threads}
    assert rows == {f"thread {MAIN}": (60, 30, 2), f"thread {AUTOGRAD}": (150, 75, 2)}
    (said,) = answer.sentences
    assert f"thread {AUTOGRAD} the most (75.0 % of 200 µs)" in said and said.endswith("5.00 % of the span.")


def test_an_empty_trace_says_so_alone(tmp_path: Path) -> None:
    answer = cpu(profile_with(tmp_path, [slice_("ProfilerStep#1", 0, 9, "user_annotation")]))
    assert answer.threads == () and answer.sentences[0].startswith("No operators")
