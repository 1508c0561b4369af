"""all_runs.py: a run in a line, and all runs compared with one of them."""

from pathlib import Path

import pytest

from profiles import profile_with
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.compare.all_runs import (
    WAITING,
    KnownRun,
    RunPlace,
    SpanLine,
    all_runs,
    compile_line,
    span_line,
)
from tb_torchcompile_plugin.analysis.finding import Severity
from tb_torchcompile_plugin.analysis.statistics import step_times
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary, Recompile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from traces import Event, launch, slice_


def steps(*lengths: float) -> list[Event]:
    events: list[Event] = []
    begin = 0.0
    for at, length in enumerate(lengths):
        events.append(slice_(f"ProfilerStep#{at}", begin, length, "user_annotation"))
        events += launch("k", begin + 1, begin + 5, length / 10)
        begin += length
    return events


def line_of(run: str, *lengths: float, severity: Severity | None = None) -> KnownRun:
    times = step_times(lengths)
    line = SpanLine(
        None, severity, None, None, None, None, times.mean_us if times else None, times, None, None
    )
    return KnownRun(RunPlace(run, "w", "1", 1, 0.0), line, None)


def test_a_span_in_a_line_says_what_its_panels_say(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, steps(100, 120, 110))
    line = span_line(profile)
    first, *_ = profile.of(findings).findings
    assert line.finding == first.title and line.severity == first.severity
    assert line.step_us == pytest.approx(110) and line.times and line.times.steps == 3
    assert line.gpu_busy_percent is not None and line.compiled_percent == 0.0
    assert (line.compile_s, line.graph_breaks, line.recompiles) == (None, None, None), "nothing tells"


def test_a_summary_alone_tells_its_half() -> None:
    summary = CompileSummary(compilations=[Compilation(duration_ns=2_000_000_000)], recompiles=[Recompile()])
    line = compile_line(CompileData(summary, "summary", "x"))
    assert (line.compile_s, line.compilations, line.graph_breaks, line.recompiles) == (2.0, 1, 0, 1)


def test_runs_are_held_against_the_pinned_one() -> None:
    answer = all_runs([line_of("a", 100, 101), line_of("b", 120, 121), line_of("c", 100, 102)], "a")
    a, b, c = answer.rows
    assert a.change_percent is None, "it is the pinned one"
    assert b.change_percent == pytest.approx(19.9, abs=0.1) and not b.within_noise
    assert c.change_percent == pytest.approx(0.5, abs=0.1) and c.within_noise
    assert answer.headline == "3 runs. Step times are compared with run a."


def test_what_was_not_read_is_not_known() -> None:
    unread = KnownRun(RunPlace("x", "w", "1", 1, 0.0), None, None, WAITING)
    answer = all_runs([line_of("a", 100), unread], "x", "x")
    assert answer.rows[1].step_us is None and not answer.rows[1].read
    assert [row.change_percent for row in answer.rows] == [None, None], "nothing is known of what is pinned"
    assert answer.reading == 1 and answer.headline.endswith("Reading 1 more run, now x.")


def test_the_headline_counts_what_is_wrong() -> None:
    severities: tuple[Severity, ...] = ("critical", "warning", "warning", "info")
    found = [line_of(name, 100, severity=severity) for name, severity in zip("abcd", severities)]
    assert all_runs(found, "").headline == "4 runs: 1 has a critical finding and 2 have a warning."
