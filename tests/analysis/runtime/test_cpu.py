"""Test cpu.py: threads that worked, and what generated code shows of its kernels."""

from pathlib import Path

import pytest

from profiles import profile_with, spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.runtime.cpu import _threads_asked_for as asked_for
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
    assert answer.sentences == (
        f"2 threads worked, thread {AUTOGRAD} the most (75.0 % of 200 µs). Two or more worked at the same time "
        "for 5.00 % of the span.",
    )


def test_an_empty_trace_says_so_alone(tmp_path: Path) -> None:
    answer = cpu(profile_with(tmp_path, [slice_("ProfilerStep#1", 0, 9, "user_annotation")]))
    assert answer.sentences == (
        "No operators, compiled graphs or compiler phases were recorded on any thread.",
    )
    assert (answer.threads, answer.cpu_kernels) == ((), ())


def test_generated_code_tells_vectors_and_threads(recording: Recording) -> None:
    """This machine had no compiler flags for vectors: all of its loops are scalar, and short."""
    (profile,) = spans_in(recording("compiled_loop"))
    answer = cpu(profile)
    assert len(answer.cpu_kernels) == 9
    assert {(row.loops, row.threads) for row in answer.cpu_kernels} == {("scalar", 1)}
    assert sum(row.share_percent for row in answer.cpu_kernels) == pytest.approx(100)


@pytest.mark.parametrize(
    ("source", "threads"),
    [
        ("for (;;) {}", 1),
        ("#pragma omp parallel num_threads(8)\n{\n#pragma omp for\n}", 8),
        ("#pragma omp parallel num_threads(2)\n{}\n#pragma omp parallel num_threads(4)\n{}", 4),
        ("#pragma omp parallel\n{}", None),
    ],
)
def test_what_the_code_asks_of_openmp(source: str, threads: int | None) -> None:
    assert asked_for(source) == threads
