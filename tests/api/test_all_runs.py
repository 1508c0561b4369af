"""run_lines.py, session.py: all runs of a logdir in a line each, read in the background."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from recordings import Recording
from served import in_the_end, wait_for
from tb_torchcompile_plugin.analysis.compare.all_runs import NO_COMPILE_DATA, WAITING, AllRuns
from tb_torchcompile_plugin.api import session as sessions
from tb_torchcompile_plugin.api.catalog import BaselineRef
from tb_torchcompile_plugin.api.read_queue import ReadQueue
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.routes import ROUTES, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary
from tb_torchcompile_plugin.logdir.discovery import File
from traces import slice_, write_trace

SPAN = "1795230252555613000"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    made = Session([("", str(tmp_path / "runs"))])
    yield made
    made.close()


def add_run(folder: Path, name: str, length: float = 100) -> None:
    """A run of two steps, with a summary of one compilation."""
    events = [slice_(f"ProfilerStep#{at}", length * at, length, "user_annotation") for at in range(2)]
    path = write_trace(folder / "runs" / name, [*events, slice_("aten::mm", 3, 4)])
    path.rename(path.with_name(f"w.{SPAN}.pt.trace.json"))
    summary = CompileSummary(format_version=1, compilations=[Compilation(duration_ns=10**9)])
    path.with_name(f"w.{SPAN}.pt.compile.pb").write_bytes(summary.SerializeToString())


def ask(session: Session, name: str, **texts: str) -> Any:
    return in_the_end(lambda: poll(session, ROUTES[name], texts))


def settled(session: Session, pin: str = "") -> AllRuns:
    wait_for(lambda: not session.all_runs(pin).reading)
    return session.all_runs(pin)


def test_every_run_is_read_and_kept(tmp_path: Path, session: Session) -> None:
    for name in ("a", "b"):
        add_run(tmp_path, name)
    first = session.all_runs("")
    assert first.reading == 2 and {row.why_unknown.trace for row in first.rows} == {WAITING}
    rows = settled(session).rows
    known = [(row.run, row.step_us, row.compile_s, row.compilations) for row in rows]
    assert known == [(run, 100.0, 1.0, 1) for run in "ab"]
    again = Session([("", str(tmp_path / "runs"))])
    assert again.all_runs("").reading == 0 and again.all_runs("").rows == rows, "they are kept"


def order_of_reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose traces are read for their lines, without a progress, in order."""
    order: list[str] = []
    read = vars(sessions)["read"]

    def noting(file: File, advance: Any, *arguments: Any) -> Any:
        if advance is None:
            order.append(Path(file.path).parent.name)
        return read(file, advance, *arguments)

    monkeypatch.setattr(sessions, "read", noting)
    return order


def test_the_newest_run_is_read_first_and_each_once(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_of_reading(monkeypatch)
    for age, name in enumerate(("new", "old", "older")):
        add_run(tmp_path, name)
        for path in (tmp_path / "runs" / name).iterdir():
            path.rename(path.with_name(path.name.replace(SPAN, str(int(SPAN) - age))))
    settled(session)
    assert order == ["new", "old", "older"]


def test_nothing_is_read_before_somebody_asks_and_while_a_run_is_opened(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_of_reading(monkeypatch)
    for name in ("a", "b"):
        add_run(tmp_path, name)
    session.runs()
    ask(session, "overview", run="a", worker="w", span=SPAN)
    assert order == []
    is_reading = True
    monkeypatch.setattr(ReadQueue, "is_busy", property(lambda _: is_reading))
    assert session.all_runs("").reading == 1
    ask(session, "step", run="a", worker="w", span=SPAN)  # is not held up
    assert not session.all_runs("").rows[1].read
    is_reading = False
    assert settled(session).rows[1].read and order == ["b"]


def test_a_trace_that_cannot_be_read_costs_its_own_run(tmp_path: Path, session: Session) -> None:
    for name in ("a", "b"):
        add_run(tmp_path, name)
    (tmp_path / "runs" / "a" / f"w.{SPAN}.pt.trace.json").write_text('{"traceEvents": 5}')
    a, b = settled(session).rows
    assert b.read and not a.read and a.compile_s == 1.0
    assert a.why_unknown.trace.startswith("It cannot be read: ")


def test_a_run_that_was_opened_is_known_from_then_on(tmp_path: Path, session: Session) -> None:
    add_run(tmp_path, "a", 100)
    add_run(tmp_path, "b", 150)
    for run in ("a", "b"):
        ask(session, "overview", run=run, worker="w", span=SPAN)
    for known in (session, Session([("", str(tmp_path / "runs"))])):
        a, b = known.all_runs("a").rows
        assert (a.read, a.step_us, a.span) == (True, 100.0, SPAN)
        assert b.change_percent == pytest.approx(50)


def test_a_run_that_was_opened_at_another_panel_is_known_too(tmp_path: Path, session: Session) -> None:
    add_run(tmp_path, "a", 100)
    ask(session, "findings", run="a", worker="w", span=SPAN)
    wait_for(lambda: session.all_runs("").rows[0].read)  # what every panel asks for is enough
    assert session.all_runs("").rows[0].step_us == 100.0


def test_the_first_finding_of_a_job_is_that_of_all_ranks(
    tmp_path: Path, recording: Recording, session: Session
) -> None:
    copytree(recording("ddp"), tmp_path / "runs" / "ddp")
    (worker,) = [one for one in session.runs().runs[0].workers if one.rank == 0]
    ask(session, "overview", run="ddp", worker=worker.worker, span=worker.spans[0].span)
    (alone,) = session.all_runs("").rows
    report = ask(session, "job", run="ddp")
    (row,) = session.all_runs("").rows
    assert row.ranks == 2 and row.finding == report.findings[0].title != alone.finding


def test_a_log_is_read_too(tmp_path: Path, recording: Recording, session: Session) -> None:
    (tmp_path / "runs").mkdir()
    (log,) = recording("breaks").glob("*.log")
    (tmp_path / "runs" / log.name).write_bytes(log.read_bytes())
    (row,) = session.all_runs("").rows
    assert (row.span, row.compile_s, row.graph_breaks) == (None, None, None)
    (row,) = settled(session).rows
    assert row.graph_breaks == 4 and row.compile_s == pytest.approx(4.556, abs=0.001)


def test_a_summary_that_cannot_be_read_costs_its_own_run(tmp_path: Path, session: Session) -> None:
    for name in ("a", "b"):
        add_run(tmp_path, name)
    (tmp_path / "runs" / "a" / f"w.{SPAN}.pt.compile.pb").write_bytes(b"\xff no summary")
    a, b = settled(session).rows
    assert a.compile_s is None and b.compile_s == 1.0 and a.step_us == 100.0


def test_a_report_says_the_same_of_a_run_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled as well, where nothing can be written down, and of a run without a trace."""
    add_run(tmp_path, "a")
    add_run(tmp_path, "b")
    (tmp_path / "runs" / "b" / f"w.{SPAN}.pt.trace.json").unlink()
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    first, again = (read_report(str(tmp_path / "runs")).all_runs for _ in range(2))
    assert first == again
    rows = [(row.run, row.read, row.compile_s, row.step_us) for row in first]
    assert rows == [("a", True, 1.0, 100.0), ("b", False, 1.0, None)]


def test_a_run_that_was_opened_is_known_where_nothing_can_be_written(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_run(tmp_path, "a")
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    ask(session, "overview", run="a", worker="w", span=SPAN)
    (row,) = session.all_runs("").rows
    assert row.read and row.step_us == 100.0


def test_why_something_is_not_known_of_a_run(tmp_path: Path, session: Session) -> None:
    for name in ("on_the_cpu", "without_trace"):
        add_run(tmp_path, name)
    (tmp_path / "runs" / "without_trace" / f"w.{SPAN}.pt.trace.json").unlink()
    (tmp_path / "runs" / "on_the_cpu" / f"w.{SPAN}.pt.compile.pb").unlink()
    cpu, traceless = (row.why_unknown for row in settled(session).rows)
    assert (cpu.step, cpu.trace, cpu.compile) == ("", "", NO_COMPILE_DATA)
    assert cpu.gpu.startswith("Nothing ran on a GPU")
    assert {traceless.step, traceless.gpu, traceless.trace} == {"There is no trace"}
    assert traceless.compile == ""


def test_the_baseline_run_is_found_by_what_ran_once_it_is_read(
    tmp_path: Path, session: Session, recording: Recording
) -> None:
    """Names do not tell; `third` is another program, and its step is compared with no pinned run."""
    for run, name in (("monday", "resnet18_eager"), ("tuesday", "resnet18"), ("third", "breaks")):
        copytree(recording(name), tmp_path / "runs" / run)
    workers = {run.run: next(row for row in run.workers if row.spans) for run in session.runs().runs}
    spans = {run: (row.worker, row.spans[0].span) for run, row in workers.items()}
    asked = {run: {"run": run, "worker": worker, "span": span} for run, (worker, span) in spans.items()}
    about = {name: asked["tuesday"][name] for name in ("run", "worker")}
    assert ask(session, "baseline", **about) == BaselineRef()
    for ids in asked.values():
        ask(session, "overview", **ids)
    session.catalog.look()
    assert ask(session, "baseline", **about) == BaselineRef(**asked["monday"])
    assert "the same program eager" in " ".join(ask(session, "payback", **asked["tuesday"]).sentences)
    rows = {row.run: row.change_percent for row in settled(session, "monday").rows}
    assert rows["tuesday"] is not None and rows["third"] is None
