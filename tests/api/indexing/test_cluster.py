"""api: digests by workers of Dask: a scheduler and two workers that the test starts, and what becomes of them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tb_torchcompile_plugin.api.indexing import pool
from tb_torchcompile_plugin.cli import index
from tb_torchcompile_plugin.cli.command import main
from terminal import digests

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
FRUGAL = {"DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s"}
DEADLY = "killed"  # reading the trace of this worker ends the process that does
SITE = f"""
import os, signal, sys
if any("dask_worker" in one for one in sys.orig_argv):
    from tb_torchcompile_plugin.api.indexing import pool
    read = pool._read
    def deadly(file):
        if {DEADLY!r} in file.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(file)
    pool._read = deadly
"""


class Cluster:
    """A scheduler, and as many workers as are asked for; what a worker is killed at is tried once more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sitecustomize.py").write_text(SITE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.scheduler = self.start("scheduler", "--host", self.address, "--no-show")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.closed = False
        self._wait_for_scheduler()

    def _wait_for_scheduler(self) -> None:
        host, port = self.address.removeprefix("tcp://").split(":")
        for _ in range(600):
            with suppress(OSError), socket.create_connection((host, int(port))):
                return
            time.sleep(0.1)
        raise TimeoutError(self.address)

    def start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{what}", "--no-dashboard"]
        environment = {
            **os.environ,
            **FRUGAL,
            "PYTHONPATH": str(self.folder),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
        }
        return subprocess.Popen(
            [*command, *arguments], cwd=self.folder, env=environment, stderr=subprocess.DEVNULL
        )

    def work(self, count: int = 1) -> None:
        arguments = ["--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder)]
        self.workers += [self.start("worker", self.address, *arguments) for _ in range(count)]

    def replace_killed(self) -> None:
        """Each as soon as it is, until all is over."""
        for worker in self.workers:  # which grows meanwhile
            while worker.poll() is None and not self.closed:
                time.sleep(0.1)
            if self.closed:
                return
            self.work()

    def close(self) -> None:
        self.closed = True
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def started(factory: pytest.TempPathFactory, workers: int) -> Iterator[Cluster]:
    cluster = Cluster(factory.mktemp("cluster"))
    cluster.work(workers)
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from started(tmp_path_factory, workers=1)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Whoever kills workers starts others in their place."""
    yield from started(tmp_path_factory, workers=2)


@pytest.fixture
def job(late_job: Callable[[int], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(late_job(4), tmp_path / "logdir"))


def names(job: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in job.glob("*digest.pb*"))


def test_two_workers_write_what_one_process_does(
    two_workers: Cluster, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(job), "--scheduler", two_workers.address]) == 0
    assert capsys.readouterr().out == "4 digests written, 0 existed already\n"
    written = digests(job)
    assert main(["index", str(job), "--workers", "1", "--out", str(job.parent / "out")]) == 0
    assert written == digests(job.parent / "out")
    assert main(["index", str(job), "--scheduler", two_workers.address]) == 0
    assert "0 digests written, 4 existed already" in capsys.readouterr().out


def test_the_trace_that_workers_are_killed_at_is_blamed(
    two_workers: Cluster, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = next(job.glob("rank0.*.pt.trace.json"))
    shutil.copy(trace, job / trace.name.replace("rank0", DEADLY))

    threading.Thread(target=two_workers.replace_killed, daemon=True).start()
    assert main(["index", str(job), "--scheduler", two_workers.address]) == 0
    out, err = capsys.readouterr()
    assert sum(map(int, re.findall(r"\d+", out)[:2])) == 4  # one whose answer was lost is asked for again
    assert out.endswith(", 1 failed\n") and f"{DEADLY}." in err and "(KilledWorker" in err
    assert names(job) == [f"rank{rank}" for rank in range(4)]


def test_a_scheduler_that_goes_away_is_said_and_nothing_is_lost(
    cluster: Cluster, job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cluster = pool.on_cluster

    def kill_after_the_first(*arguments: Any) -> Iterator[object]:
        for outcome in on_cluster(*arguments):
            yield outcome
            cluster.scheduler.send_signal(signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(index, "on_cluster", kill_after_the_first)
        began = time.monotonic()
        status = main(["index", str(job), "--scheduler", cluster.address])
    out, err = capsys.readouterr()
    assert (status, out) == (1, "") and time.monotonic() - began < 180
    assert f"the scheduler at {cluster.address} disappeared. Start it" in err
    assert len(err.splitlines()) == 1
    assert 0 < len(names(job)) <= 4
    assert main(["index", str(job), "--workers", "1"]) == 0
    assert names(job) == [f"rank{rank}" for rank in range(4)]


def test_without_a_scheduler_one_line_says_so(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tb_torchcompile_plugin.api.indexing.pool._PATIENCE_S", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense"):
        assert main(["index", str(job), "--scheduler", address]) == 1
        _, err = capsys.readouterr()
        assert f"no Dask scheduler responds at {address}" in err and len(err.splitlines()) == 1
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["index", str(job), "--scheduler", "tcp://127.0.0.1:9"]) == 1
    assert "Run: pip install 'tb-torchcompile-plugin[cluster]'" in capsys.readouterr().err
