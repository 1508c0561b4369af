"""rows.py, remembered.py, runs.py: a run in a line, what is remembered of it, and runs beside one another."""

from pathlib import Path

import msgspec
import pytest

from profiles import profile_with
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.overview import overview
from tb_torchcompile_plugin.analysis.compare import all_runs as memory
from tb_torchcompile_plugin.analysis.compare.all_runs import (
    KnownRun,
    RunPlace,
    SpanLine,
    all_runs,
    compile_line,
    overview_remembered,
    remembered,
    span_line,
)
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_times
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary, Recompile
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.reader.cache import rows
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


def line_of(run: str, *lengths: float) -> KnownRun:
    times = step_times(lengths)
    line = SpanLine(None, None, None, None, None, None, times.mean_us if times else None, times, None, None)
    return KnownRun(RunPlace(run, "w", "1", 1, 0.0), line, None)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(str(tmp_path / "x.pt.trace.json"), 7, 8)


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


def test_what_was_seen_first_is_remembered_until_a_file_changes(tmp_path: Path, file: File) -> None:
    profile = profile_with(tmp_path, steps(100, 120))
    profile.files = (file,)
    assert remembered((file,)).last is None
    assert overview_remembered(profile) == overview(profile)
    last = remembered((file,)).last
    assert last and last.overview == overview(profile) and last.line == span_line(profile)
    assert remembered((File(file.path, 7, 9),)).last is None


def test_a_span_from_nowhere_is_not_remembered(tmp_path: Path) -> None:
    before = list(tmp_path.rglob("*"))
    assert overview_remembered(profile_with(tmp_path, steps(100))).step
    assert remembered(()).last is None and before == []


def test_a_row_that_is_damaged_or_of_another_version_does_not_count(
    tmp_path: Path, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    profile = profile_with(tmp_path, steps(100, 120))
    profile.files = (file,)
    overview_remembered(profile)
    monkeypatch.setattr(memory, "SPAN", "span-of-another-version")
    assert remembered((file,)).last is None
    monkeypatch.undo()
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    assert remembered((file,)).last is not None
    (path,) = (tmp_path / "cache" / "rows").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    assert remembered((file,)).last is None


def test_where_nothing_can_be_kept_nothing_is_said_of_it(
    tmp_path: Path, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    assert not rows.keep("key", Kept(1))
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "0")
    assert not rows.keep("key", Kept(1)) and not (tmp_path / "other").exists()
    monkeypatch.delenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES")
    assert not rows.keep("key", Named("\udcff")), "what is no UTF-8"
    assert rows.keep(rows.key_of("kind", [File("\udcff", 1, 2)]), Kept(1)), "but for a file's name"


class Kept(msgspec.Struct):
    number: int


class Named(msgspec.Struct):
    name: str


def test_rows_used_longest_ago_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path))
    monkeypatch.setattr(rows, "_MOST", 10)
    for number in range(11):
        assert rows.keep(f"{number}", Kept(number))
    assert rows.kept("10", Kept) == Kept(10)
    assert rows.kept("0", Kept) is None
    assert len(list((tmp_path / "rows").iterdir())) == 9


def test_runs_are_held_against_the_pinned_one() -> None:
    answer = all_runs([line_of("a", 100, 101), line_of("b", 120, 121), line_of("c", 100, 102)], 0, "a")
    a, b, c = answer.rows
    assert a.change_percent is None, "it is the pinned one"
    assert b.change_percent == pytest.approx(19.9, abs=0.1) and not b.within_noise
    assert c.change_percent == pytest.approx(0.5, abs=0.1) and c.within_noise
    assert answer.headline == "3 runs."


def test_what_was_not_read_is_not_known() -> None:
    unread = KnownRun(RunPlace("x", "w", "1", 1, 0.0), None, None)
    answer = all_runs([line_of("a", 100), unread], 2, "x")
    assert answer.rows[1].step_us is None and not answer.rows[1].read
    assert [row.change_percent for row in answer.rows] == [None, None], "nothing is known of what is pinned"
    assert answer.headline == (
        "2 runs. 1 trace is not read yet: open a run to read it. 2 summaries are being read."
    )
