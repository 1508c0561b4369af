"""The cache of parsed traces: quick, shared, bounded, and right whatever happens to its files."""

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from kineto_helpers import assert_same
from recordings import Recording
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.cache import cache as cache_room
from tb_torchcompile_plugin.reader.cache import store
from tb_torchcompile_plugin.reader.cache.store import open_trace
from tb_torchcompile_plugin.reader.trace import kineto as kineto_ingest
from tb_torchcompile_plugin.reader.trace import table
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Cancelled, read_trace

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that stores small traces too."""
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "WORTH_STORING", 0)
    return tmp_path / "cache"


@pytest.fixture
def trace_file(recording: Recording, tmp_path: Path) -> Path:
    """A recording that a test may change."""
    source = next(recording("resnet18").glob("*.pt.trace.json"))
    target = tmp_path / "logdir" / source.name
    target.parent.mkdir()
    shutil.copy(source, target)
    return target


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were read anew."""
    seen: list[str] = []
    ingest = kineto_ingest.ingest

    def counted(path: str, *args: object) -> object:
        seen.append(path)
        return ingest(path, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "ingest", counted)
    return seen


def entries(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if not path.name.startswith(".tmp-")]


def test_second_opening_reads_nothing(cache: Path, trace_file: Path, reads: list[str]) -> None:
    path = str(trace_file)
    assert not store.is_stored(path)
    first, second = open_trace(path), open_trace(path)
    assert store.is_stored(path)
    assert reads == [path]
    assert_same(first, second)
    assert_same(second, read_trace(path))
    assert second.args(3) == first.args(3)
    assert [file.name for file in trace_file.parent.iterdir()] == [trace_file.name]
    assert not [path for path in cache.iterdir() if path.name.startswith(".tmp-")]


def test_what_comes_from_the_cache_tells_how_far_it_is(
    cache: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_BLOCK", 1 << 14)
    read, mapped = list[BytesRead](), list[BytesRead]()
    trace = open_trace(str(trace_file), progress=read.append)
    open_trace(str(trace_file), progress=mapped.append)
    size = trace_file.stat().st_size
    assert [moved.bytes_read for moved in mapped] == sorted(moved.bytes_read for moved in mapped)
    assert len(mapped) > 10 and 0 < mapped[len(mapped) // 2].bytes_read < size
    for moves in (read, mapped):
        assert (moves[-1].bytes_read, moves[-1].bytes_total, moves[-1].events) == (size, size, trace.events)
    assert [(moved.bytes_read, moved.seconds_left) for moved in read[-2:]] == [(size, None), (size, 0.0)], (
        "all is read, and tables are made of it"
    )


def test_the_table_of_a_trace_with_losses(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"big": 123456789012345678901234567890, "traceEvents": [{"ph": "X", "name": "\\ud800", "ts": 1'
    )
    first, second = open_trace(str(path)), open_trace(str(path))
    assert first.notices
    assert_same(first, second)


@pytest.mark.parametrize("change", ["content", "time", "path", "format"])
def test_another_file_or_format_is_another_entry(
    cache: Path, trace_file: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    open_trace(str(trace_file))
    if change == "content":
        trace_file.write_text('{"traceEvents": []}')
    elif change == "time":
        os.utime(trace_file, ns=(1, 1))
    elif change == "format":
        monkeypatch.setattr(store, "FORMAT_VERSION", store.FORMAT_VERSION + 1)
    else:
        trace_file = trace_file.rename(trace_file.with_name("other.json"))
    trace = open_trace(str(trace_file))
    assert len(reads) == 2
    assert (trace.events == 0) == (change == "content")


@pytest.mark.parametrize("name", ["columns", "contents"])
@pytest.mark.parametrize("how", ["flip", "cut", "empty", "longer", "gone"])
def test_heals_itself(cache: Path, recording: Recording, reads: list[str], name: str, how: str) -> None:
    """Whatever file of an entry is changed, cut, emptied, lengthened or gone."""
    trace_file = next(recording("handler_late").glob("*.pt.trace.json"))
    whole = read_trace(str(trace_file))
    open_trace(str(trace_file))  # and let go of: a mapped file must not be cut while it is in use
    file = entries(cache)[0] / name
    data = bytearray(file.read_bytes())
    if how == "gone":
        file.unlink()
    else:
        data[random.Random(3).randrange(len(data))] ^= 1
        size = {"cut": len(data) // 2, "empty": 0}.get(how, len(data))
        file.write_bytes(bytes(data[:size]) + b"x" * (how == "longer"))
    assert_same(open_trace(str(trace_file)), whole)
    assert len(reads) == 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists the open files as Linux does")
def test_an_open_trace_keeps_one_file_open(cache: Path, trace_file: Path) -> None:
    """Many systems allow a process 1,024: a job of 64 ranks is more than one trace."""
    before = len(os.listdir("/proc/self/fd"))
    traces = [open_trace(str(trace_file)) for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) - before <= len(traces)


def test_a_file_in_the_place_of_an_entry(cache: Path, trace_file: Path) -> None:
    whole = open_trace(str(trace_file))
    entry = entries(cache)[0]
    shutil.rmtree(entry)
    entry.write_text("not a directory")
    assert_same(open_trace(str(trace_file)), whole)
    assert entry.is_dir()


def test_least_recently_used_goes_first(
    cache: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(trace_file.with_name(f"{number}.json")) for number in range(4)]
    for path in paths:
        shutil.copy(trace_file, path)
    for age, path in enumerate(paths[:3]):
        open_trace(path)
        os.utime(cache / (store._key(path) or ""), (age, age))
    size = sum(file.stat().st_size for file in entries(cache)[0].iterdir())
    open_trace(paths[0])  # now the one used last
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", str(int(2.5 * size)))
    open_trace(paths[3])
    assert [store.is_stored(path) for path in paths] == [True, False, False, True]


def test_the_entry_in_use_stays(cache: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "1")
    open_trace(str(trace_file))
    assert store.is_stored(str(trace_file))


def test_no_cache_wanted(cache: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE_MAX_BYTES", "0")
    assert len(open_trace(str(trace_file))) > 0
    assert not cache.exists()


def test_a_cache_that_cannot_be_written(cache: Path, trace_file: Path) -> None:
    cache.write_text("a file where the directory should be")
    assert_same(open_trace(str(trace_file)), read_trace(str(trace_file)))


def test_a_full_disk(cache: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_space = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(table, "load_columns", no_space)
    trace = open_trace(str(trace_file))
    no_space.assert_called_once()
    monkeypatch.undo()
    assert_same(trace, read_trace(str(trace_file)))
    assert not list(cache.iterdir())


def test_errors_are_the_readers_own(cache: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.touch()
    for path in (empty, tmp_path / "missing.json"):
        with pytest.raises(UserError):
            open_trace(str(path))


def test_cancelled_leaves_nothing(cache: Path, trace_file: Path) -> None:
    with pytest.raises(Cancelled):
        open_trace(str(trace_file), cancelled=lambda: True)
    assert not list(cache.iterdir())


def test_removed_while_open(cache: Path, trace_file: Path) -> None:
    trace = open_trace(str(trace_file))
    shutil.rmtree(cache)
    assert_same(trace, read_trace(str(trace_file)))


def test_threads_that_want_the_same_read_it_once(cache: Path, trace_file: Path, reads: list[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        traces = list(pool.map(lambda _: open_trace(str(trace_file)), range(4)))
    assert len(reads) == 1
    assert len(traces) == 4


PROGRAM = """
import sys
from tb_torchcompile_plugin.reader.cache import store
store.WORTH_STORING = 0
trace = store.open_trace(sys.argv[1])
print(len(trace), int(trace.dur.sum()))
"""


def test_two_servers(cache: Path, trace_file: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(trace_file)]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {server.communicate()[0] for server in servers}
    trace = read_trace(str(trace_file))
    assert answers == {f"{len(trace)} {int(trace.dur.sum())}\n"}
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("times", [4, pytest.param(12, marks=pytest.mark.large)])
def test_killed_at_any_moment(cache: Path, trace_file: Path, times: int) -> None:
    """What a killed reader leaves is never taken for a table, and is cleared away."""
    whole = read_trace(str(trace_file))
    draw = random.Random(4)
    command = [sys.executable, "-c", PROGRAM, str(trace_file)]
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    usual = time.monotonic() - started
    for _ in range(times):
        shutil.rmtree(cache, ignore_errors=True)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(draw.uniform(usual * 0.5, usual * 1.1))
        process.kill()
        process.wait()
        assert_same(open_trace(str(trace_file)), whole)
        assert_same(open_trace(str(trace_file)), whole)
        assert len(list(cache.iterdir())) == 1


CUT_OFF = """
import sys
import threading
from pathlib import Path
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import ROUTES, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.reader.cache import store
store.WORTH_STORING = 0
session = Session([("", sys.argv[1])])
(worker,) = session.runs().runs[0].workers
ids = {"run": ".", "worker": worker.worker, "span": worker.spans[0].span}
def ask(name):
    while isinstance(answer := poll(session, ROUTES[name], ids), Progress):
        pass
    return answer
def launches():
    return sum(row.launches for row in ask("kernels").rows)
def wait_until_nothing_is_computed():
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.name != "tb-torchcompile-reader":
            thread.join()
for question in (lambda: ask("operators"), launches):
    ask("span")
    wait_until_nothing_is_computed()
    for column in Path(sys.argv[2]).glob("*/columns"):
        column.write_bytes(b"")
    question()
print(launches())
session.close()
"""


def test_cut_off_while_it_is_mapped(cache: Path, trace_file: Path) -> None:
    """Whether it was read just now or came from the cache: it is read again, where touching it would be the end."""
    program = [sys.executable, "-c", CUT_OFF, str(trace_file), str(cache)]
    answered = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert answered.returncode == 0, answered.stderr
    launched = read_trace(str(trace_file)).select(cat=("kernel", "gpu_memcpy", "gpu_memset"))
    assert int(answered.stdout) == len(launched)


def test_a_cache_that_may_only_be_read_is_used(
    cache: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_trace(str(trace_file))
    monkeypatch.setattr(os, "utime", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    monkeypatch.setattr(store, "read_trace", None)
    monkeypatch.setattr(cache_room, "filling", None)
    assert len(open_trace(str(trace_file))) > 0
