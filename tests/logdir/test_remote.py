"""Remote logdirs: a real S3-compatible server that the test starts, and fsspec's own memory filesystem."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import msgspec
import pytest

from recordings import Recording
from served import ROOT, ask_span, error_of, forget_stores, make_client, make_plugin, s3_server, upload
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report, span_report
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.logdir.discovery import discover
from tb_torchcompile_plugin.logdir.filesystem import File, remote_file
from tb_torchcompile_plugin.reader.cache import copies, store
from tb_torchcompile_plugin.reader.compile_data import read_payload
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Cancelled
from traces import kernel, slice_, write_trace

pytestmark = pytest.mark.slow

EVENTS = [slice_(f"op{number}", number, 1) for number in range(200)] + [
    kernel("triton_poi_fused_add_0", 5, 2)
]
BUCKET = "s3://bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 server with one empty bucket."""
    with s3_server("bucket") as address:
        yield address


@pytest.fixture
def s3(server: str) -> Iterator[Any]:
    """The bucket's filesystem; the bucket is emptied afterwards."""
    bucket = filesystem._store(BUCKET)
    yield bucket
    bucket.invalidate_cache()
    for name in bucket.find("bucket"):
        bucket.rm_file(name)


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def trace(tmp_path: Path) -> bytes:
    return write_trace(tmp_path, EVENTS).read_bytes()


def names(url: str) -> dict[str, list[str]]:
    """run → spans, as the tab would list them."""
    answer = Session([("", url)]).runs()
    return {run.run: [span.span for worker in run.workers for span in worker.spans] for run in answer.runs}


def span_of(session: Session) -> Any:
    (run,) = session.runs().runs
    (worker,) = run.workers
    return session.profile(run.run, worker.worker, worker.spans[-1].span).of(span_report)


def report(capsys: pytest.CaptureFixture[str], url: str) -> tuple[int, Any, list[str]]:
    status = main(["report", url, "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else None, err.splitlines()


def existing(url: str) -> File:
    file = remote_file(url)
    assert file is not None
    return file


def without(missing: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in which a package cannot be imported."""
    command = [sys.executable, "-W", "error", "-c", f"import sys\nsys.modules[{missing!r}] = None\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def copied(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("copy-*/*"))


class TestSameAnswers:
    def test_of_a_recording_on_s3(self, s3: Any, recording: Recording) -> None:
        folder = recording("breaks")
        upload(s3, folder, "bucket/runs/breaks")
        here = json.loads(msgspec.json.encode(read_report(str(folder))))
        there = json.loads(msgspec.json.encode(read_report(f"{BUCKET}/runs/breaks/")))
        (log,) = (path.name for path in folder.glob("*.log"))
        assert there["runs"][0]["workers"][0]["compile"].pop("file") == f"{BUCKET}/runs/breaks/{log}"
        del here["runs"][0]["workers"][0]["compile"]["file"]
        assert there == here

    def test_copies_are_no_runs_where_the_cache_lies_in_a_logdir(
        self, memory: Any, cache: Path, trace: bytes
    ) -> None:
        memory.pipe_file("/logs/w.1.pt.trace.json", trace)
        span_of(Session([("", "memory://logs")]))
        assert copied(cache)
        assert list(names(str(cache.parent))) == ["."]

    def test_of_one_trace_with_the_compile_data_of_its_worker(
        self, s3: Any, recording: Recording, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = recording("handler_breaks")
        upload(s3, folder, "bucket/runs")
        (trace,) = (path.name for path in folder.glob("*.pt.trace.json*"))
        status, there, err = report(capsys, f"{BUCKET}/runs/{trace}")
        assert (err, status) == ([], 0)
        assert there["runs"][0]["workers"][0]["compile"]["graph_breaks"]
        assert there["runs"][0]["workers"][0]["spans"][0]["events"]

    def test_through_the_tab_with_a_name_in_the_spec(self, s3: Any, recording: Recording) -> None:
        upload(s3, recording("breaks"), "bucket/a:b/breaks")
        client = make_client(make_plugin(spec=f"mine:{BUCKET}/a:b,here:{recording('resnet18_eager')}"))
        answer = client.get(f"{ROOT}/runs").get_json()
        assert [run["run"] for run in answer["runs"]] == ["mine/breaks", "here"]
        ids = {"run": "mine/breaks", "worker": "vm_1027"}
        assert len(client.get(f"{ROOT}/compile", query_string=ids).get_json()["graph_breaks"]) == 4
        response = ask_span(client, {**ids, "span": "1795230252555613000"})
        assert response.status_code == 200
        assert response.get_json()["gpu"]

    def test_the_text_of_an_artifact_that_still_lies_in_a_log(self, s3: Any, recording: Recording) -> None:
        upload(s3, recording("breaks"), "bucket/runs")
        here, there = (Session([("", url)]) for url in (str(recording("breaks")), f"{BUCKET}/runs"))
        (run,) = there.runs().runs
        worker = run.workers[0].worker
        texts = [read_payload(session.compile_data(".", worker), 0) for session in (here, there)]
        assert texts[0] == texts[1]

    def test_ranks_are_told_by_the_ends_of_files(self, s3: Any, cache: Path, tmp_path: Path) -> None:
        """The first and last bytes come by range; no file is fetched to list them."""
        padding = {"pad": " " * 200_000}
        for rank in (0, 1):
            info = {"distributedInfo": {"rank": rank}}
            write_trace(tmp_path, EVENTS, f"w{rank}.1.pt.trace.json", **padding, **info)
        upload(s3, tmp_path, "bucket/runs")
        (run,) = Session([("", f"{BUCKET}/runs")]).runs().runs
        assert {worker.worker: worker.rank for worker in run.workers} == {"w0": 0, "w1": 1}
        assert not cache.exists()


class TestDiscovery:
    def test_folders_are_runs_and_names_tell(self, memory: Any, trace: bytes) -> None:
        for name in ("w.2.pt.trace.json", "w.10.pt.trace.json", "a/b/v.pt.trace.json", "a/any.json"):
            memory.pipe_file(f"/logs/{name}", trace)
        memory.pipe_file("/logs/a/package.json", b'{"name": "x"}')
        memory.pipe_file("/logs/a/empty.json", b"")
        memory.pipe_file("/logs-of-another/x.1.pt.trace.json", trace)
        assert names("memory://logs") == {".": ["2", "10"], "a": ["0"], "a/b": ["0"]}
        assert names("memory://logs/") == names("memory://logs")
        assert names("memory://logs/a") == {".": ["0"], "b": ["0"]}

    def test_a_bucket_is_a_logdir_too(self, s3: Any, trace: bytes) -> None:
        s3.pipe_file("bucket/w.1.pt.trace.json", trace)
        s3.pipe_file("bucket/folder/", b"")
        assert names(BUCKET) == names(f"{BUCKET}/") == {".": ["1"]}

    def test_a_file_url_is_a_path(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_trace(tmp_path, EVENTS)
        assert names(f"file://{tmp_path}") == {".": ["1"]}
        status, _, err = report(capsys, f"file://{tmp_path}")
        assert (status, err) == (0, [])

    def test_times_and_tags_of_stores(self) -> None:
        def of(**info: Any) -> File:
            return filesystem._file("x://y", {"size": 1, **info})

        assert of(mtime=1.5).mtime_ns == of(updated="1970-01-01T00:00:01.5Z").mtime_ns == 1_500_000_000
        assert of(updated="yesterday").mtime_ns == of().mtime_ns == 0
        assert of(ETag='"abc"').tag == of(etag="abc").tag == "abc"


class TestCopies:
    def file(self, memory: Any, data: bytes = b"x" * 5000) -> File:
        memory.pipe_file("/logs/x.json", data)
        return existing("memory://logs/x.json")

    def test_a_file_is_fetched_once_and_again_when_it_changes(
        self, s3: Any, trace: bytes, monkeypatch: pytest.MonkeyPatch, cache: Path
    ) -> None:
        fetched = []
        read_blocks = filesystem.read_blocks

        def counted(url: str, *rest: int) -> Iterator[bytes]:
            fetched.append(url)
            return read_blocks(url, *rest)

        monkeypatch.setattr(filesystem, "read_blocks", counted)
        url = f"{BUCKET}/runs/w.1.pt.trace.json"
        s3.pipe_file(url, trace)
        for _ in range(2):
            assert span_of(Session([("", f"{BUCKET}/runs")])).events == 201
        assert fetched == [url]
        assert copied(cache) == ["w.1.pt.trace.json"]
        s3.pipe_file(url, trace.replace(b"op7", b"OP7"))  # as long as before, and within the same second
        assert span_of(Session([("", f"{BUCKET}/runs")])).events == 201
        assert fetched == [url, url]

    def test_the_parsed_trace_is_found_again_behind_a_fetched_copy(
        self, s3: Any, trace: bytes, monkeypatch: pytest.MonkeyPatch, cache: Path
    ) -> None:
        monkeypatch.setattr(store, "WORTH_STORING", 0)
        s3.pipe_file("bucket/runs/w.1.pt.trace.json", trace)
        span_of(Session([("", f"{BUCKET}/runs")]))
        entries = {path.name for path in cache.iterdir()}
        assert len(entries) == 2  # the copy and the columns
        (copy,) = cache.glob("copy-*/w.1.pt.trace.json")
        copy.unlink()
        span_of(Session([("", f"{BUCKET}/runs")]))
        assert {path.name for path in cache.iterdir()} == entries

    def test_a_large_file_comes_in_order_and_tells_how_far(
        self, memory: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(copies, "_BLOCK", 7)
        moves: list[BytesRead] = []
        data = bytes(range(256)) * 3
        with copies.local(self.file(memory, data), moves.append) as path:
            assert Path(path).read_bytes() == data
            assert Path(path).name == "x.json"
        assert [moved.bytes_read for moved in moves] == [*range(7, 768, 7), 768]
        assert {moved.bytes_total for moved in moves} == {768}
        assert moves[-1].seconds_left == 0

    def test_cancelling_leaves_nothing_behind(self, memory: Any, cache: Path) -> None:
        with pytest.raises(Cancelled), copies.local(self.file(memory), cancelled=lambda: True):
            pass
        assert list(cache.iterdir()) == []

    def test_the_copies_used_longest_ago_go_first(
        self, memory: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = []
        for age, number in enumerate("abc"):
            memory.pipe_file(f"/logs/{number}.json", b"x" * 1000)
            files.append(existing(f"memory://logs/{number}.json"))
            with copies.local(files[-1]) as path:
                os.utime(Path(path).parent, (age, age))
        monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "2500")
        with copies.local(files[0]):  # used now, so b is the oldest
            memory.pipe_file("/logs/d.json", b"x" * 1000)
            with copies.local(existing("memory://logs/d.json")):
                assert copied(cache) == ["a.json", "d.json"]

    def test_a_copy_in_use_stays(self, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "1")
        with copies.local(self.file(memory)) as path:
            memory.pipe_file("/logs/y.json", b"y" * 1000)
            with copies.local(existing("memory://logs/y.json")):
                assert Path(path).exists()

    @pytest.mark.parametrize("broken", ["no cache wanted", "no folder can be made"])
    def test_without_a_cache_the_copy_is_gone_afterwards(
        self, memory: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, broken: str
    ) -> None:
        if broken == "no cache wanted":
            monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "0")
        else:
            cache.write_text("a file is in the way")
        with copies.local(self.file(memory)) as path:
            assert Path(path).read_bytes() == b"x" * 5000
        assert not Path(path).exists()
        assert not cache.is_dir()

    def test_a_full_disk_is_said(self, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(copies, "_write", Mock(side_effect=OSError(28, "No space left on device")))
        with (
            pytest.raises(UserError, match=r"No space left.*TB_TORCHCOMPILE_CACHE"),
            copies.local(self.file(memory)),
        ):
            pass

    def test_a_damaged_copy_is_fetched_again(self, memory: Any) -> None:
        file = self.file(memory)
        with copies.local(file) as path:
            Path(path).write_bytes(b"half")
        with copies.local(file) as path:
            assert Path(path).read_bytes() == b"x" * 5000

    def test_a_file_that_changes_meanwhile_is_never_half_of_each(
        self, memory: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(copies, "_BLOCK", 1000)
        monkeypatch.setattr(copies, "_AT_ONCE", 1)
        changes = [b"b" * 5000, b"c" * 7000]

        def change(_: BytesRead) -> None:
            if changes:
                memory.pipe_file("/logs/x.json", changes.pop(0))

        with copies.local(self.file(memory, b"a" * 5000), change) as path:
            assert Path(path).read_bytes() == b"c" * 7000

    def test_a_file_that_never_stands_still_is_given_up(self, memory: Any) -> None:
        def change(_: BytesRead) -> None:
            memory.pipe_file("/logs/x.json", os.urandom(5000))

        with pytest.raises(UserError, match="keeps changing"), copies.local(self.file(memory), change):
            pass

    def test_a_store_that_tells_less_when_it_lists(
        self, memory: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listed = replace(self.file(memory), mtime_ns=0)
        with copies.local(listed):
            pass
        monkeypatch.setattr(copies, "_write", lambda *_: 1 / 0)
        with copies.local(listed) as path:
            assert Path(path).read_bytes() == b"x" * 5000

    def test_several_at_a_time_fetch_it_once(self, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        file, writes, write = self.file(memory), [], copies._write
        all_have_it = threading.Barrier(4)

        def counted(*arguments: Any) -> int:
            writes.append(1)
            time.sleep(0.1)  # the others begin meanwhile
            return write(*arguments)

        monkeypatch.setattr(copies, "_write", counted)

        def read(_: int) -> None:
            with copies.local(file):
                all_have_it.wait(60)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))
        assert len(writes) == 1 and not all_have_it.broken

    def test_warnings_and_errors_name_the_url(
        self, memory: Any, trace: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        memory.pipe_file("/logs/good.1.pt.trace.json", trace)
        memory.pipe_file("/logs/cut.1.pt.trace.json", trace[:9000])
        memory.pipe_file("/logs/bad.1.pt.trace.json", b"no trace at all")
        memory.pipe_file("/logs/good.1.pt.compile.pb", b"\xff\xff")
        status, document, err = report(capsys, "memory://logs")
        assert status == 0
        for name in ("cut.1.pt.trace.json", "bad.1.pt.trace.json", "good.1.pt.compile.pb"):
            assert any(f"warning: memory://logs/{name}: " in line for line in err)
        assert "copy-" not in "".join(err)
        assert "copy-" not in json.dumps(document)

    def test_nothing_is_written_to_the_logdir(self, s3: Any, trace: bytes) -> None:
        s3.pipe_file("bucket/runs/w.1.pt.trace.json", trace)
        span_of(Session([("", f"{BUCKET}/runs")]))
        s3.invalidate_cache()
        assert s3.find("bucket") == ["bucket/runs/w.1.pt.trace.json"]


class TestLive:
    def test_what_somebody_else_writes_is_seen(self, s3: Any, trace: bytes) -> None:
        """Stores remember their listings; theirs must not be ours."""
        other = type(s3)(skip_instance_cache=True, use_listings_cache=False)
        session = Session([("", f"{BUCKET}/live")])
        for number in range(1, 4):
            other.pipe_file(f"bucket/live/w.{number}.pt.trace.json", trace)
            (run,) = session.runs().runs
            assert len(run.workers[0].spans) == number
        other.rm_file("bucket/live/w.3.pt.trace.json")
        (run,) = session.runs().runs
        assert len(run.workers[0].spans) == 2
        url = f"{BUCKET}/live/w.1.pt.trace.json"
        other.pipe_file(url, b"shorter")
        assert existing(url).size == 7

    def test_new_grown_and_deleted_spans(self, s3: Any, trace: bytes) -> None:
        client = make_client(make_plugin(f"{BUCKET}/live"))
        (warning,) = client.get(f"{ROOT}/runs").get_json()["warnings"]
        assert warning["file"] == f"{BUCKET}/live"
        s3.pipe_file("bucket/live/w.1.pt.trace.json", trace[:9000])
        ids = {"run": ".", "worker": "w", "span": "1"}
        assert client.get(f"{ROOT}/runs").get_json()["warnings"] == []
        cut = ask_span(client, ids).get_json()
        assert 0 < cut["events"] < 200
        assert "cut off" in cut["warnings"][0]["problem"]
        s3.pipe_file("bucket/live/w.1.pt.trace.json", trace)
        client.get(f"{ROOT}/runs")
        assert ask_span(client, ids).get_json()["events"] == 201
        s3.rm_file("bucket/live/w.1.pt.trace.json")
        assert client.get(f"{ROOT}/runs").get_json()["runs"] == []
        assert ask_span(client, ids).status_code == 404


class TestTrouble:
    def said(self, url: str) -> Any:
        runs, (notice,) = discover(url)
        assert runs == []
        assert notice.file.startswith(url.partition("://")[0])
        assert notice.next_step
        assert "\n" not in str(notice)
        return notice

    @pytest.mark.parametrize("path", ["bucket/nothing", "no-such-bucket", "no-such-bucket/runs"])
    def test_nothing_there(self, s3: Any, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert "no such" in self.said(f"s3://{path}").problem
        status, _, err = report(capsys, f"s3://{path}")
        assert status == 1
        assert len(err) == 1

    def test_a_file_that_must_not_be_read_costs_that_file_only(
        self, s3: Any, trace: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in ("good.1.pt.trace.json", "locked.1.pt.trace.json", "locked.json"):
            s3.pipe_file(f"bucket/runs/{name}", trace)
        locked = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject"}
        statement = {**locked, "Resource": "arn:aws:s3:::bucket/runs/locked*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        s3.call_s3("put_bucket_policy", Bucket="bucket", Policy=policy)
        try:
            status, document, err = report(capsys, f"{BUCKET}/runs")
        finally:
            s3.call_s3("delete_bucket_policy", Bucket="bucket")
        assert status == 0
        rows = {line.split(": ")[1].rpartition("/")[2] for line in err}
        assert rows == {"locked.1.pt.trace.json", "locked.json"}
        assert all("access was refused" in line and "credentials" in line for line in err)
        workers = {worker["worker"]: worker["spans"][0] for worker in document["runs"][0]["workers"]}
        assert workers["good"]["events"] == 201

    def test_no_credentials(self, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
        forget_stores()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
        assert "access was refused" in self.said(f"{BUCKET}/runs").problem
        forget_stores()

    def test_a_network_that_fails_and_comes_back(
        self, memory: Any, trace: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        memory.pipe_file("/logs/w.1.pt.trace.json", trace)
        write_trace(tmp_path, EVENTS, "local.1.pt.trace.json")
        client = make_client(make_plugin(spec=f"far:memory://logs,near:{tmp_path}"))
        ids = {"run": "far", "worker": "w", "span": "1"}
        client.get(f"{ROOT}/runs")

        unreachable = Mock(side_effect=TimeoutError("the network is\ndown"))
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "cat_file", unreachable)
            patch.setattr(type(memory), "info", unreachable)
            error = error_of(ask_span(client, ids))
            assert "network is down" in error["message"]
            assert error["file"] == "memory://logs/w.1.pt.trace.json"
            answer = client.get(f"{ROOT}/runs").get_json()
            assert [run["run"] for run in answer["runs"]] == ["near"]
            assert [warning["file"] for warning in answer["warnings"]] == ["memory://logs"]
        assert ask_span(client, ids).get_json()["events"] == 201

    def test_compile_data_that_could_not_be_fetched_is_tried_again(
        self, memory: Any, recording: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upload(memory, recording("handler_breaks"), "/logs")
        session = Session([("", "memory://logs")])
        (run,) = session.runs().runs
        worker = run.workers[0].worker
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "cat_file", lambda *_, **__: 1 / 0)
            with pytest.raises(UserError, match="the store cannot be read"):
                session.compile_data(".", worker).of(compile_report)
        assert session.compile_data(".", worker).of(compile_report).graph_breaks

    def test_an_unknown_store(self) -> None:
        assert "nostore" in self.said("nostore://bucket/x").problem

    @pytest.mark.parametrize(
        ("scheme", "missing", "command"),
        [
            *(("s3", name, "pip install 'tb-torchcompile-plugin[remote]'") for name in ("s3fs", "fsspec")),
            ("gs", "gcsfs", "Please install gcsfs"),
            ("az", "adlfs", "Install adlfs"),
        ],
    )
    def test_a_missing_package_is_one_line_with_the_command(
        self, scheme: str, missing: str, command: str
    ) -> None:
        program = f"""
from tb_torchcompile_plugin.cli.command import main
sys.exit(main(["report", "{scheme}://bucket/x"]))
"""
        done = without(missing, program)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1) and command in done.stderr

    def test_local_logdirs_never_load_it(self, tmp_path: Path) -> None:
        write_trace(tmp_path, EVENTS)
        program = f"""
from tb_torchcompile_plugin.api.report import read_report
assert read_report({str(tmp_path)!r}).runs
print([name for name in sys.modules if name in ("s3fs", "aiohttp", "botocore")])
"""
        assert without("fsspec", program).stdout == "[]\n"
