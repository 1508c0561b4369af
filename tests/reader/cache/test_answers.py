"""Answers about a large trace, kept in its entry: the same the second time, and gone with what they were made of."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.routes import ROUTES, SPAN, SPAN_OR_WORKER, Route, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.reader.cache import answers, store
from tb_torchcompile_plugin.reader.trace.kineto import Trace

pytestmark = pytest.mark.slow


@pytest.fixture
def logdir(recording: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording that a test may change, and a cache of its own that stores it although it is small."""
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_WORTH_STORING", 0)
    return Path(shutil.copytree(recording("resnet18"), tmp_path / "logdir"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The traces that were opened, be it from the cache."""
    seen: list[str] = []

    def counted(path: str, **settings: object) -> object:
        seen.append(path)
        return store.open_trace(path, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("tb_torchcompile_plugin.reader.cache.anywhere.open_trace", counted)
    return seen


def report(logdir: Path) -> bytes:
    return msgspec.json.encode(read_report(str(logdir)))


def test_a_second_report_opens_no_trace_and_is_the_same(logdir: Path, opened: list[str]) -> None:
    first = report(logdir)
    assert len(opened) == 1
    assert report(logdir) == first
    assert len(opened) == 1


@pytest.mark.parametrize(
    "changed", ["trace", "compile data", "the package", "the peaks", "who compiles packages"]
)
def test_what_they_were_made_of_has_changed(
    logdir: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    report(logdir)
    if changed == "the package":
        monkeypatch.setattr(answers, "_code", lambda: "another version")
    elif changed == "the peaks":
        monkeypatch.setenv("TB_TORCHCOMPILE_PEAKS", '{"NVIDIA H200": {"bandwidth_gb_s": 1}}')
    elif changed == "who compiles packages":
        (logdir / "other_1.7.pt.compile.pb").touch()
    else:
        (file,) = logdir.glob("*.pt.trace.json" if changed == "trace" else "*.log")
        os.utime(file, ns=(1, 1))
    report(logdir)
    assert len(opened) == 2


def test_a_damaged_answer_is_made_again(logdir: Path, opened: list[str], tmp_path: Path) -> None:
    first = report(logdir)
    (kept,) = (tmp_path / "cache").rglob("report-*.answer")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert report(logdir) == first
    assert len(opened) == 2


def test_nothing_is_kept_of_columns_that_were_cut_off(
    logdir: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trace, "is_whole", lambda self: False)
    report(logdir)
    report(logdir)
    assert len(opened) == 2


def test_no_older_answer_stays(logdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1", "2"):
        monkeypatch.setattr(answers, "_code", lambda version=version: version)
        report(logdir)
    assert len(list((tmp_path / "cache").rglob("report-*"))) == 1


def test_every_answer_of_the_tab_is_the_same_without_its_trace(logdir: Path, opened: list[str]) -> None:
    first = asked_of(logdir)
    assert len(opened) == 1
    again = asked_of(logdir)
    assert len(opened) == 1
    assert again == first


def test_the_run_beside_has_its_name_in_this_logdir(
    recording: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_WORTH_STORING", 0)
    for name in ("resnet18", "resnet18_eager"):
        shutil.copytree(recording(name), tmp_path / "logdir" / "today" / name)
    assert b'"today/resnet18_eager"' in _pays(tmp_path / "logdir", "today/resnet18")
    assert b'"resnet18_eager"' in _pays(tmp_path / "logdir" / "today", "resnet18")


def _pays(logdir: Path, run: str) -> bytes:
    session = Session([("", str(logdir))], ahead=False)
    (worker,) = next(one for one in session.runs().runs if one.run == run).workers
    made = _answer(
        session, ROUTES["pays"], {"run": run, "worker": worker.worker, "span": worker.spans[0].span}
    )
    session.close()
    return made


def asked_of(logdir: Path) -> dict[str, bytes]:
    """What a new server answers to every question about a span that needs no more than its name."""
    session = Session([("", str(logdir))], ahead=False)
    (run,) = session.runs().runs
    (worker,) = run.workers
    ids = {"run": run.run, "worker": worker.worker, "span": worker.spans[0].span}
    made = {name: _answer(session, route, ids) for name, route in ROUTES.items() if _plain(route)}
    session.close()
    return made


def _plain(route: Route[Any]) -> bool:
    return (
        route.subject in (SPAN, SPAN_OR_WORKER)
        and issubclass(route.answer, msgspec.Struct)
        and all(one.optional for one in route.parameters)
    )


def _answer(session: Session, route: Route[Any], ids: dict[str, str]) -> bytes:
    while isinstance(answer := poll(session, route, ids), Progress):
        session.profile(*ids.values())
    return msgspec.json.encode(answer)
