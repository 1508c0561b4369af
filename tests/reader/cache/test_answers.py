"""Answers on disk: the same the second time, and computed again when what they were computed from has changed."""

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recordings import Recording
from served import in_the_end, wait_for
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.routes import ROUTES, SPAN, SPAN_OR_WORKER, Route, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.reader.cache import answers, cache, store
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource, AnswerStore
from tb_torchcompile_plugin.reader.trace.kineto import Trace

pytestmark = pytest.mark.slow


@pytest.fixture
def logdir(recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording that a test may change, and a cache of its own that stores it although it is small."""
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "WORTH_STORING", 0)
    return Path(shutil.copytree(recording("resnet18"), tmp_path / "logdir"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The traces that were opened, be it from the cache."""
    seen: list[str] = []

    def counted(path: str, **settings: object) -> object:
        seen.append(path)
        return store.open_trace(path, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("tb_torchcompile_plugin.reader.cache.copies.open_trace", counted)
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
        monkeypatch.setattr(answers, "package_version", lambda: "another version")
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
    (kept,) = (tmp_path / "cache").rglob("report-*.msgpack")
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
        monkeypatch.setattr(answers, "package_version", lambda version=version: version)
        report(logdir)
    assert len(list((tmp_path / "cache").rglob("report-*"))) == 1


def test_every_answer_of_the_tab_is_the_same_without_its_trace(logdir: Path, opened: list[str]) -> None:
    first = asked_of(logdir)
    assert len(opened) == 1
    again = asked_of(logdir)
    assert len(opened) == 1
    assert again == first


def test_the_run_beside_has_its_name_in_this_logdir(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "WORTH_STORING", 0)
    for name in ("resnet18", "resnet18_eager"):
        shutil.copytree(recording(name), tmp_path / "logdir" / "today" / name)
    assert b'"today/resnet18_eager"' in _pays(tmp_path / "logdir", "today/resnet18")
    assert b'"resnet18_eager"' in _pays(tmp_path / "logdir" / "today", "resnet18")


def _pays(logdir: Path, run: str) -> bytes:
    session = Session([("", str(logdir))], ahead=False)
    (worker,) = next(one for one in session.runs().runs if one.run == run).workers
    made = _answer(
        session, ROUTES["payback"], {"run": run, "worker": worker.worker, "span": worker.spans[0].span}
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
    return msgspec.json.encode(in_the_end(lambda: poll(session, route, ids)))


# The store itself, without a trace.


class Row(msgspec.Struct, frozen=True):
    number: int


class Named(msgspec.Struct, frozen=True):
    name: str


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> File:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    return File(str(tmp_path / "x.pt.trace.json"), 7, 8)


def new_store() -> AnswerStore:
    """The store of another process: nothing is in memory."""
    return AnswerStore(10, large_files_only=False)


def test_memory_is_asked_before_the_disk_and_the_disk_before_it_is_computed(file: File) -> None:
    source, computed = AnswerSource((file,)), iter(range(10))

    def compute() -> Row:
        return Row(next(computed))

    store_ = new_store()
    assert store_.get("row", Row, source) is None
    first = store_.get("row", Row, source, compute)
    assert first == Row(0) and store_.get("row", Row, source, compute) is first
    assert new_store().get("row", Row, source, compute) == Row(0)
    assert new_store().get("row", Row, AnswerSource((replace(file, mtime_ns=9),)), compute) == Row(1)
    assert new_store().get("other", Row, source, compute) == Row(2)


def test_two_threads_that_ask_at_once_compute_it_once(file: File) -> None:
    store_, asked, may_end = new_store(), [], threading.Event()

    def compute() -> Row:
        asked.append(threading.current_thread())
        assert may_end.wait(60)
        return Row(1)

    with ThreadPoolExecutor(2) as pool:
        answers_ = [pool.submit(store_.get, "row", Row, AnswerSource((file,)), compute) for _ in range(2)]
        wait_for(lambda: bool(asked))
        may_end.set()
        assert answers_[0].result(60) is answers_[1].result(60)
    assert len(asked) == 1


def test_an_answer_is_kept_although_a_thread_only_looks_for_it_meanwhile(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that lists all runs looks for the line of a run while the reading of that run keeps it."""
    store_, source, load = new_store(), AnswerSource((file,)), answers.load
    looks, may_end = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        looks.set()
        assert may_end.wait(60)
        return load(*arguments)

    monkeypatch.setattr(answers, "load", slow)
    with ThreadPoolExecutor(2) as pool:
        looked = pool.submit(store_.get, "row", Row, source)
        assert looks.wait(60)
        kept = pool.submit(store_.get, "row", Row, source, lambda: Row(1))
        time.sleep(0.1)  # until it waits for the other one
        may_end.set()
        assert looked.result(60) is None and kept.result(60) == Row(1)
    assert store_.get("row", Row, source) == Row(1)


def test_a_failure_is_not_kept(file: File) -> None:
    store_, source = new_store(), AnswerSource((file,))
    with pytest.raises(ZeroDivisionError):
        store_.get("row", Row, source, lambda: Row(1 // 0))
    assert store_.get("row", Row, source, lambda: Row(1)) == Row(1)


def test_processes_that_write_one_answer_at_once_leave_a_whole_one(file: File) -> None:
    source = AnswerSource((file,))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: answers.save("row", Row(number), source), range(200)))
    assert answers.load("row", Row, source) is not None
    assert len(list(answers._path_and_key("row", source)[0].parent.iterdir())) == 1


@pytest.mark.parametrize("room", ["none", "not wanted"])
def test_where_nothing_can_be_written_it_is_known_to_this_process(
    tmp_path: Path, file: File, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    if room == "none":
        (tmp_path / "cache").write_text("a file")
    else:
        monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "0")
    source, store_ = AnswerSource((file,)), new_store()
    assert not answers.save("row", Row(1), source)
    assert store_.get("row", Row, source, lambda: Row(1)) == store_.get("row", Row, source) == Row(1)
    assert new_store().get("row", Row, source) is None and not (tmp_path / "cache").is_dir()


def test_names_that_are_no_utf_8(file: File) -> None:
    source = AnswerSource((replace(file, path="\udcff"),))
    assert answers.save("row", Row(1), source) and answers.load("row", Row, source) == Row(1)
    assert not answers.save("name", Named("\udcff"), source)


def test_an_answer_of_another_kind_or_cut_off_does_not_count(file: File) -> None:
    source = AnswerSource((file,))
    assert answers.save("row", Row(1), source) and answers.load("row", Named, source) is None
    path = answers._path_and_key("row", source)[0]
    *whole, last = path.read_bytes()
    for damaged in (whole, [*whole, last ^ 1]):
        path.write_bytes(bytes(damaged))
        assert answers.load("row", Row, source) is None
    assert new_store().get("row", Row, source, lambda: Row(2)) == Row(2) == answers.load("row", Row, source)


def test_of_too_many_the_least_recently_used_go_first(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_FILES", 10)
    source = AnswerSource((file,))
    for number in range(10):
        assert answers.save(f"row{number}", Row(number), source)
        os.utime(answers._path_and_key(f"row{number}", source)[0], (number, number))
    assert answers.load("row0", Row, source) == Row(0), "which counts as a use"
    assert answers.save("row10", Row(10), source)
    kept = [number for number in range(11) if answers.load(f"row{number}", Row, source)]
    assert kept == [0, 3, 4, 5, 6, 7, 8, 9, 10]


def test_answers_count_for_the_limit_of_the_cache(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    source = AnswerSource((file,))
    for number in range(4):
        assert answers.save(f"row{number}", Named("x" * 1000), source)
        os.utime(answers._path_and_key(f"row{number}", source)[0], (number, number))
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "2500")
    cache.evict(cache.cache_directory(), "")
    rows = [bool(answers.load(f"row{number}", Named, source)) for number in range(4)]
    assert rows == [False, False, True, True]


def test_the_version_of_an_installed_package_is_not_read_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "package"
    package.mkdir(parents=True)
    monkeypatch.setattr(answers, "_PACKAGE", package)
    version = answers.package_version.__wrapped__
    installed = version()
    assert "+" not in installed
    (package.parent / "pyproject.toml").touch()
    (package / "module.py").touch()
    os.utime(package / "module.py", ns=(5, 5))
    assert version() == f"{installed}+5"
