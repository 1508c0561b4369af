"""Reading with several processes: the same table, prompt cancelling, and no process left behind whatever happens."""

import contextlib
import gzip
import itertools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from kineto_helpers import assert_same
from recordings import Recording
from tb_torchcompile_plugin.reader.trace import kineto as kineto_ingest
from tb_torchcompile_plugin.reader.trace import pool as kineto_pool
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Cancelled, read_trace
from tb_torchcompile_plugin.reader.trace.segment import SegmentReader

pytestmark = pytest.mark.slow


@pytest.fixture
def large(recording: Recording) -> Path:
    """A recording that counts as large here: many segments."""
    return next(recording("breaks").glob("*.pt.trace.json"))


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_ingest, "SEGMENT_BYTES", 100_000)


def children() -> set[int]:
    """Processes that this one has started and not collected."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        pids |= set(map(int, task.read_text().split()))
    return pids


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_same_table(large: Path, tmp_path: Path, packed: bool, workers: int) -> None:
    path = large
    if packed:
        path = tmp_path / large.name
        path.write_bytes(gzip.compress(large.read_bytes(), 1))
    before = children()
    trace = read_trace(str(path), workers=workers, chunk_bytes=8 << 10)
    assert children() == before
    assert_same(trace, read_trace(str(path), workers=1))
    assert trace.args(100) == read_trace(str(large)).args(100)


def test_a_worker_is_one_thread(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy would start one for each core, and they would spin."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = children()
    threads: list[int] = []

    def look() -> bool:
        for pid in children() - before:
            with contextlib.suppress(OSError):
                threads.append(len(os.listdir(f"/proc/{pid}/task")))
        return False

    read_trace(str(large), workers=2, cancelled=look)
    assert set(threads) == {1}


def test_what_the_user_has_set_holds_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=4096:glibc.malloc.hugetlb=0")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    lean = kineto_pool._lean()
    assert lean["OPENBLAS_NUM_THREADS"] == "2"
    assert lean["GLIBC_TUNABLES"].startswith("glibc.malloc.hugetlb=1:glibc.rtld.optional_static_tls=4096")


def test_progress(large: Path) -> None:
    seen: list[BytesRead] = []
    trace = read_trace(str(large), workers=2, progress=seen.append)
    assert seen[-1].bytes_read == seen[-1].bytes_total == large.stat().st_size
    assert seen[-1].events == trace.events
    assert [p.bytes_read for p in seen] == sorted(p.bytes_read for p in seen)


@pytest.mark.parametrize("workers", [1, 2])
def test_cancelled(large: Path, workers: int) -> None:
    before = children()
    asked = itertools.count()
    with pytest.raises(Cancelled, match="cancelled"):
        read_trace(str(large), workers=workers, chunk_bytes=4096, cancelled=lambda: next(asked) > 2)
    assert next(asked) < 10
    assert children() == before


def test_a_worker_that_dies_costs_nothing(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = kineto_pool._Process.__init__

    def start_and_kill(self: kineto_pool._Process, number: int, *args: object) -> None:
        start(self, number, *args)  # type: ignore[arg-type]
        if number == 0:
            os.kill(self._popen.pid, signal.SIGKILL)

    monkeypatch.setattr(kineto_pool._Process, "__init__", start_and_kill)
    assert_same(read_trace(str(large), workers=2), read_trace(str(large), workers=1))


def test_workers_find_the_package_where_no_path_leads_to_it(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an editable install, and another folder to start in: they read all of it."""
    home = Path(kineto_pool.__file__).parents[3]
    elsewhere = [path for path in sys.path if path and Path(path).resolve() != home]
    expected = read_trace(str(large), workers=1)
    monkeypatch.setattr(sys, "path", elsewhere)
    monkeypatch.setattr(SegmentReader, "run", lambda *_: pytest.fail("read in this process"))
    assert_same(read_trace(str(large), workers=2), expected)


@pytest.mark.parametrize(
    ("module", "name", "broken"), [(sys, "executable", ""), (kineto_pool, "_BOOT", "raise SystemExit(3)")]
)
def test_workers_that_cannot_start(
    large: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, broken: str
) -> None:
    monkeypatch.setattr(module, name, broken)
    assert_same(read_trace(str(large), workers=2), read_trace(str(large), workers=1))


def test_workers_end_when_their_parent_is_killed(large: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from tb_torchcompile_plugin.reader.trace import kineto, pool\n"
        "kineto.SEGMENT_BYTES = 10_000\n"
        "pool._Process.close = lambda self: None\n"
        "from tb_torchcompile_plugin.reader.trace.kineto import read_trace\n"
        "while True: read_trace(sys.argv[1], workers=2, progress=lambda p: print('going', flush=True))\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # it leaves its files
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(large)], stdout=subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    workers = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 180
    while workers and time.monotonic() < end:
        workers = [pid for pid in workers if _runs(pid)]
        time.sleep(0.02)
    assert not workers


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def test_several_at_once(large: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(lambda _: read_trace(str(large), workers=2), range(3))
    for trace in others:
        assert_same(first, trace)


@pytest.mark.parametrize("workers", [1, 2])
def test_nowhere_to_put_files(large: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace(str(large))
    monkeypatch.setattr("tempfile.mkdtemp", Mock(side_effect=OSError(28, "No space left on device")))
    assert_same(read_trace(str(large), workers=workers), whole)


def test_no_process_can_be_started(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Mock(side_effect=BlockingIOError(11, "Resource temporarily unavailable"))
    monkeypatch.setattr("subprocess.Popen", refused)
    assert_same(read_trace(str(large), workers=2), read_trace(str(large), workers=1))
