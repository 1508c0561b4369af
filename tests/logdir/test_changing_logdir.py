"""Logdirs that change under the tab's eyes, readings that nobody waits for any more, and a server that stops."""

import gc
import gzip
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from werkzeug.test import Client

from compile_records import write_log as log
from served import ROOT, ask_span, error_of, make_client, make_plugin, wait_for
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report, span_report
from tb_torchcompile_plugin.api import read_queue as readings
from tb_torchcompile_plugin.api import session as api
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import NotFound, UserError
from tb_torchcompile_plugin.logdir import discovery as logdir
from tb_torchcompile_plugin.reader import compile_data
from tb_torchcompile_plugin.reader import merge as workers
from tb_torchcompile_plugin.reader.cache import copies as anywhere
from tb_torchcompile_plugin.reader.cache import store
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Cancelled
from traces import slice_, write_trace

EVENTS = [slice_(f"op{number}", number, 1) for number in range(200)]


def ids(span: str, worker: str = "w") -> dict[str, str]:
    return {"run": ".", "worker": worker, "span": span}


def spans(client: Client) -> list[str]:
    answer = client.get(f"{ROOT}/runs").get_json()
    return [span["span"] for run in answer["runs"] for worker in run["workers"] for span in worker["spans"]]


class TestLive:
    def test_new_spans_appear_and_deleted_ones_disappear(self, tmp_path: Path) -> None:
        client = make_client(make_plugin(tmp_path))
        assert spans(client) == []
        write_trace(tmp_path, EVENTS, "w.1.pt.trace.json")
        assert spans(client) == ["1"]
        second = write_trace(tmp_path, EVENTS, "w.2.pt.trace.json")
        assert ask_span(client, ids("2")).status_code == 200  # found without listing first
        assert spans(client) == ["1", "2"]
        second.unlink()
        assert spans(client) == ["1"]
        assert ask_span(client, ids("2")).status_code == 404

    def test_a_run_that_is_deleted_disappears(self, tmp_path: Path) -> None:
        trace = write_trace(tmp_path / "a", EVENTS)
        session = Session([("", str(tmp_path))])
        assert [run.run for run in session.runs().runs] == ["a"]
        trace.unlink()
        trace.parent.rmdir()
        assert session.runs().runs == []
        with pytest.raises(NotFound):
            session.compile_data("a", "w").of(compile_report)

    @pytest.mark.parametrize("name", ["w.1.pt.trace.json", "w.1.pt.trace.json.gz"])
    def test_a_file_that_is_still_written_is_incomplete_and_read_again(
        self, tmp_path: Path, name: str
    ) -> None:
        whole = write_trace(tmp_path, EVENTS, "x").read_bytes()
        (tmp_path / "x").unlink()
        data = gzip.compress(whole, 1) if name.endswith("gz") else whole
        client, path, seen = make_client(make_plugin(tmp_path)), tmp_path / name, []
        for share in (0.5, 0.9):
            path.write_bytes(data[: int(len(data) * share)])
            spans(client)
            answer = ask_span(client, ids("1")).get_json()
            seen.append(answer["events"])
            problems = [notice["problem"] for notice in answer["warnings"]]
            assert any(problem.startswith("incomplete: ") for problem in problems)
            assert any(
                "to read it again when it changes" in notice["next_step"] for notice in answer["warnings"]
            )
        path.write_bytes(data)
        spans(client)
        answer = ask_span(client, ids("1")).get_json()
        assert answer["warnings"] == []
        assert seen == sorted(seen)
        assert 0 < seen[0] < seen[1] < answer["events"] == 200

    def test_an_empty_file_says_so_until_it_is_written(self, tmp_path: Path) -> None:
        client = make_client(make_plugin(tmp_path))
        (tmp_path / "w.1.pt.trace.json").touch()
        spans(client)
        error = error_of(ask_span(client, ids("1")))
        assert "empty" in error["message"]
        assert "try again later" in error["next_step"]
        write_trace(tmp_path, EVENTS)
        spans(client)
        assert ask_span(client, ids("1")).status_code == 200

    def test_a_failure_that_has_gone_is_not_remembered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Permissions change neither size nor time of a file."""
        write_trace(tmp_path, EVENTS)
        client = make_client(make_plugin(tmp_path))

        denied = Mock(side_effect=UserError("cannot be opened: Permission denied"))
        with monkeypatch.context() as patch:
            patch.setattr(anywhere, "open_trace", denied)
            assert "Permission" in error_of(ask_span(client, ids("1")))["message"]
        assert ask_span(client, ids("1")).status_code == 200

    def test_compile_data_that_could_not_be_read_is_tried_again(self, tmp_path: Path) -> None:
        log(tmp_path, "x", pid=5)
        session = Session([("", str(tmp_path))])
        session.runs()
        path = tmp_path / "dedicated_log_torch_trace_x.log"
        path.rename(tmp_path / "away")
        with pytest.raises(UserError, match="cannot be"):
            session.compile_data(".", "pid_5").of(compile_report)
        (tmp_path / "away").rename(path)
        assert session.compile_data(".", "pid_5").of(compile_report).source == "torch_trace"

    def test_compile_data_is_read_once_for_all_who_ask_at_a_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log(tmp_path, "x", pid=5)
        session = Session([("", str(tmp_path))])
        session.runs()
        read: list[Any] = []
        sound = compile_data.read_compile_data

        def slow(worker: Any) -> Any:
            read.append(worker)
            time.sleep(0.2)
            return sound(worker)

        monkeypatch.setattr(api, "read_compile_data", slow)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: session.compile_data(".", "pid_5"), range(4)))
        assert len(read) == 1 and all(data is answers[0] for data in answers)

    def test_of_a_growing_log_only_the_newest_state_is_remembered(self, tmp_path: Path) -> None:
        log(tmp_path, "x", pid=5)
        session, seen = Session([("", str(tmp_path))]), []
        for _ in range(3):
            session.runs()
            seen.append(weakref.ref(session.compile_data(".", "pid_5")))
            with (tmp_path / "dedicated_log_torch_trace_x.log").open("a") as file:
                file.write('V0921 14:13:20.000000 5 torch/x.py:1] {"artifact": {"name": "x"}}\n')
        gc.collect()
        assert [state() is not None for state in seen] == [False, False, True]

    def test_a_file_that_has_not_changed_is_looked_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "settings.json").write_text('{"a": 1}')
        looked: list[str] = []
        sound = logdir.read_head

        def read_head(path: str) -> bytes:
            looked.append(path)
            return sound(path)

        monkeypatch.setattr(logdir, "read_head", read_head)
        session = Session([("", str(tmp_path))])
        for _ in range(3):
            session.runs()
        assert len(looked) == 1

    def test_a_span_that_is_gone_before_it_is_read_is_one_clear_error(self, tmp_path: Path) -> None:
        client = make_client(make_plugin(tmp_path))
        trace = write_trace(tmp_path, EVENTS)
        spans(client)
        trace.unlink()
        error = error_of(ask_span(client, ids("1")))
        assert "No such file" in error["message"]
        assert error["file"] == str(trace)

    @pytest.mark.parametrize("share", [0.5, 2.0])
    def test_a_file_that_changes_between_listing_and_reading(self, tmp_path: Path, share: float) -> None:
        client = make_client(make_plugin(tmp_path))
        trace = write_trace(tmp_path, EVENTS)
        spans(client)
        with trace.open("r+b") as file:
            file.truncate(int(trace.stat().st_size * share))
        answer = ask_span(client, ids("1")).get_json()
        assert 0 < answer["events"] <= 200
        assert all(notice["file"] == str(trace) for notice in answer["warnings"])

    def test_a_log_that_vanishes_while_it_is_looked_at_hides_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_trace(tmp_path, EVENTS)
        log(tmp_path, "x", pid=5)

        def gone(path: str) -> None:
            raise UserError("cannot be opened: No such file", file=path)

        monkeypatch.setattr(workers, "log_identity", gone)
        (run,) = Session([("", str(tmp_path))]).runs().runs
        assert [worker.worker for worker in run.workers] == ["dedicated_log_torch_trace_x.log", "w"]

    def test_a_poll_does_not_walk_the_logdir(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_trace(tmp_path, EVENTS)
        session = Session([("", str(tmp_path))])
        session.runs()
        monkeypatch.setattr(os, "walk", lambda *_, **__: 1 / 0)
        assert session.profile(".", "w", "1").of(span_report).events == 200

    def test_who_asks_for_what_is_gone_shares_a_walk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_trace(tmp_path, EVENTS)
        session, walks, walk = Session([("", str(tmp_path))]), list[str](), os.walk

        def counted(path: str, **how: Any) -> Any:
            walks.append(path)
            time.sleep(0.2)
            return walk(path, **how)

        def ask(_: int) -> None:
            with pytest.raises(NotFound, match="no worker 'gone'"):
                session.poll_profile(".", "gone", "1")

        session.runs()
        monkeypatch.setattr(os, "walk", counted)
        ask(0)
        assert len(walks) == 1
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(ask, range(20)))
        assert len(walks) <= 4

    def test_a_file_that_becomes_a_pipe_does_not_hang(self, tmp_path: Path) -> None:
        client = make_client(make_plugin(tmp_path))
        trace = write_trace(tmp_path, EVENTS)
        spans(client)
        trace.unlink()
        os.mkfifo(trace)
        assert "regular file" in error_of(ask_span(client, ids("1")))["message"]
        trace.unlink()
        trace.symlink_to(trace)
        assert ask_span(client, ids("1")).status_code == UserError.status


class SlowReader:
    """Stands for the trace reader: reads without end until let go or stopped."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.let_go = threading.Event()
        self._read = store.open_trace

    def __call__(self, path: str, *, progress: Any, cancelled: Any) -> Any:
        self.started.append(Path(path).name)
        progress(BytesRead(path, 10, 100, 1, None))
        while not self.let_go.wait(0.005):
            if cancelled():
                self.stopped.append(Path(path).name)
                raise Cancelled(path)
        return self._read(path, progress=progress, cancelled=cancelled)


class TestCancelling:
    @pytest.fixture
    def reader(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowReader]:
        slow = SlowReader()
        monkeypatch.setattr(anywhere, "open_trace", slow)
        monkeypatch.setattr(readings, "GRACE_S", 0.0)
        yield slow
        slow.let_go.set()

    @pytest.fixture
    def client(self, tmp_path: Path, reader: SlowReader) -> Client:
        for number in range(1, 5):
            write_trace(tmp_path, EVENTS, f"w.{number}.pt.trace.json")
        return make_client(make_plugin(tmp_path))

    def poll(self, client: Client, span: str) -> Progress:
        response = client.get(f"{ROOT}/span", query_string=ids(span))
        assert response.status_code == 202
        return Progress(**response.get_json()["progress"])

    def cancel(self, client: Client, span: str) -> None:
        response = client.delete(f"{ROOT}/reading", query_string=ids(span))
        assert (response.status_code, response.data) == (204, b"")

    def test_files_queue_and_are_told_their_place(self, client: Client, reader: SlowReader) -> None:
        for span in "1234":
            self.poll(client, span)
        wait_for(lambda: len(reader.started) == 2)
        answers = [self.poll(client, span) for span in "1234"]
        rows = [(progress.stage, progress.queue_position, progress.bytes_read) for progress in answers]
        assert rows == [("reading", 0, 10), ("reading", 0, 10), ("queued", 1, 0), ("queued", 2, 0)]
        assert answers[0].file == "w.1.pt.trace.json"
        reader.let_go.set()
        assert [ask_span(client, ids(span)).get_json()["events"] for span in "1234"] == [200] * 4

    def test_a_cancelled_one_makes_room_and_starts_anew_when_asked(
        self, client: Client, reader: SlowReader
    ) -> None:
        for span in "123":
            self.poll(client, span)
        wait_for(lambda: len(reader.started) == 2)
        self.cancel(client, "1")
        wait_for(lambda: reader.started[2:] == ["w.3.pt.trace.json"])
        assert reader.stopped == ["w.1.pt.trace.json"]
        assert self.poll(client, "1").stage == "queued"
        reader.let_go.set()
        assert ask_span(client, ids("1")).get_json()["events"] == 200

    def test_unknown_ids_and_missing_ones(self, client: Client) -> None:
        response = client.delete(f"{ROOT}/reading", query_string=ids("99"))
        assert response.status_code == 404
        response = client.delete(f"{ROOT}/reading")
        assert response.status_code == 400

    @pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT", "HEAD"])
    def test_only_delete_so_that_browsers_ask_before_another_site_may(
        self, client: Client, method: str
    ) -> None:
        """A page of another site may send GET, HEAD and POST unasked. It asks with OPTIONS for all else."""
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
        response = client.open(f"{ROOT}/reading", method=method, query_string=ids("1"), headers=headers)
        assert response.status_code == 405
        assert response.headers["Allow"] == "DELETE"
        assert not [name for name, _ in response.headers if name.startswith("Access-Control")]

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_another_site_is_refused(self, client: Client, reader: SlowReader, site: str) -> None:
        self.poll(client, "1")
        response = client.delete(f"{ROOT}/reading", query_string=ids("1"), headers={"Sec-Fetch-Site": site})
        assert response.status_code == 400
        assert error_of(response)["code"] == "bad_request"
        time.sleep(0.05)
        assert reader.stopped == []


def test_a_session_that_is_let_go_of_ends_its_threads(tmp_path: Path) -> None:
    write_trace(tmp_path, EVENTS)
    before = set(threading.enumerate())
    session = Session([("", str(tmp_path))])
    assert session.profile(".", "w", "1").of(span_report).events == 200
    threads = {thread for thread in threading.enumerate() if thread.name == "tb-torchcompile-reader"} - before
    assert threads
    kept = weakref.ref(session)
    del session
    gc.collect()
    assert kept() is None
    wait_for(lambda: not any(thread.is_alive() for thread in threads))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit", "SIGTERM"])
def test_a_server_that_stops_while_it_reads_leaves_nothing_behind(tmp_path: Path, ending: str) -> None:
    """TensorBoard's SIGTERM handler calls sys.exit in the main thread, as this program does."""
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 1},\n'
    with (tmp_path / "w.1.pt.trace.json").open("wb") as file:
        file.write(b'{"schemaVersion": 1, "traceEvents": [\n')
        for _ in range(150):
            file.write(event * (1_000_000 // len(event)))
        file.write(b'{"ph": "X"}]}')
    program = f"""
import signal, sys, time
from tb_torchcompile_plugin.api.session import Session
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
session = Session([("", {str(tmp_path)!r})])
while not session.poll_profile(".", "w", "1").bytes_read:
    time.sleep(0.01)
print("reading", flush=True)
if {ending!r} == "exit":
    sys.exit(0)
time.sleep(600)
"""
    mark, cache = f"MARK_{os.getpid()}_{ending}", tmp_path / "cache"
    environment = {**os.environ, mark: "1", "TB_TORCHCOMPILE_CACHE": str(cache), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    if ending == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)  # it would sleep longer
    assert (process.returncode, err) == (0, "")
    assert not processes_with(mark)
    assert list(cache.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "w.1.pt.trace.json"]


def processes_with(variable: str) -> list[str]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes():
                pids.append(path.parent.name)
        except OSError:
            continue
    return pids
