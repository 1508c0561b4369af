"""What the writer notes of a start-up: when the process began, its first steps, caches that were loaded as one."""

import sys
import time
from functools import partial
from typing import ClassVar

import pytest

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.writer import compiler_calls
from tb_torchcompile_plugin.writer.environment import process_start_ns
from tb_torchcompile_plugin.writer.step_notes import FirstSteps, first_steps


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell it")
def test_a_process_began_before_now_and_it_stays_so() -> None:
    first, second = process_start_ns(), process_start_ns()
    assert first is not None and second is not None and abs(first - second) < 50_000_000
    assert 0 < time.time_ns() - first < 24 * 3600 * 10**9


def steps(*rows: tuple[int | None, int, bool]) -> FirstSteps:
    noted = FirstSteps()
    for start_ns, end_ns, compiled in rows:
        if not noted.is_over:
            noted.note(start_ns, end_ns, compiled=compiled)
    return noted


def test_they_end_with_the_first_one_behind_a_compilation_that_compiles_nothing() -> None:
    noted = steps((None, 1, False), (1, 2, True), (2, 3, True), (3, 4, False), (4, 5, False))
    assert len(noted.rows) == 4 and noted.steady_ns == 3
    assert steps((None, 1, False), (1, 2, False)).steady_ns is None
    assert len(steps(*[(n, n + 1, True) for n in range(300)]).rows) == 256


def test_the_profilers_steps_count_unless_it_started_late() -> None:
    """optimizer.step() ends before what a step does after it, such as waiting for other ranks."""
    profiler = steps((None, 10, True), (11, 15, False))
    assert first_steps(profiler, steps((None, 8, True), (8, 13, False))) is profiler.rows
    optimizer = steps((None, 2, True), (2, 4, False))
    assert first_steps(profiler, optimizer) is optimizer.rows
    assert first_steps(FirstSteps(), optimizer) is optimizer.rows
    assert first_steps(steps((None, 10, True)), optimizer) is optimizer.rows


def test_what_was_loaded_is_noted_and_the_call_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    class Info:
        artifacts: ClassVar = {"inductor": ["a", "b"]}

    monkeypatch.setattr(compiler_calls, "_transfers", [])
    noting, note = compiler_calls._noting, compiler_calls._note_transfer
    load = noting(lambda data: Info, partial(note, load=True))
    save = noting(lambda: (b"four", Info), partial(note, load=False))
    assert load(b"bytes") is Info and save() == (b"four", Info)
    assert noting(lambda: None, partial(note, load=False))() is None
    summary = CompileSummary()
    compiler_calls.put_compiler_calls(summary, source=True)
    rows = [(row.load, row.size, dict(row.entries)) for row in summary.cache_transfers]
    assert rows == [(True, 5, {"inductor": 2}), (False, 4, {"inductor": 2}), (False, 0, {})]
