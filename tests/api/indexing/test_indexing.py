"""api: `index` writes the digests that a logdir lacks, whatever happens to a trace, a process or a disk."""

import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import job_in
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.api.indexing import index
from tb_torchcompile_plugin.api.indexing.index import Attempted, Order, in_processes, write_digest
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.index import plan
from tb_torchcompile_plugin.job.digest.file import FORMAT_VERSION, load
from tb_torchcompile_plugin.job.digest.make import digest
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, columns_from_message
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.logdir.filesystem import local_file
from terminal import Run, digests, indexing
from traces import slice_, write_trace

pytestmark = pytest.mark.slow

DIGEST = "rank{0}.179500000000000000{0}.pt.digest.pb"
DEADLY = "killed"  # the worker of this name


@pytest.fixture
def job(late_job: Callable[[int], Path], tmp_path: Path) -> Path:
    """Three ranks in a run of a logdir."""
    shutil.copytree(late_job(3), tmp_path / "logdir" / "run")
    return tmp_path / "logdir"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return indexing(capsys, monkeypatch)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.pb*"))


def test_a_digest_beside_each_trace(job: Path, run: Run) -> None:
    assert run(job) == (0, "3 digests written, 0 existed already\n", "")
    assert names(job) == [f"run/{DIGEST.format(rank)}" for rank in range(3)]
    assert run(job) == (0, "0 digests written, 3 existed already\n", "")


def test_the_numbers_are_the_same_with_and_without_traces(job: Path, run: Run) -> None:
    known = job_in(job)
    run(job)
    files = [local_file(str(job / "run" / DIGEST.format(rank))) for rank in range(3)]
    messages = [load(file) for file in files if file]
    ranks = tuple(
        RankDigest(rank, f"rank{rank}", f"179500000000000000{rank}", columns_from_message(one))
        for rank, one in enumerate(messages)
    )
    for one, rank in zip(messages, known.ranks):
        made = rank.profile.of(digest)
        made.format_version = FORMAT_VERSION
        assert one == made
    alone, whole = Job(ranks).of(job_report), known.of(job_report)
    for table in ("by_rank", "waits", "collectives", "steps", "late"):
        assert getattr(alone, table) == getattr(whole, table) != []


def test_out_mirrors_the_runs_and_takes_what_is_there(job: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(job / "run" / "rank0.1795000000000000000.pt.trace.json")
    before = digests(job)
    shutil.copytree(job / "run", job / "deep" / "er")
    assert run(job, "--out", out)[1] == "6 digests written, 0 existed already\n"
    assert names(out) == [
        f"{place}/{DIGEST.format(rank)}" for place in ("deep/er", "run") for rank in range(3)
    ]
    assert names(job) == [f"{place}/{DIGEST.format(0)}" for place in ("deep/er", "run")]
    assert {name: digests(out)[name] for name in before} == before
    assert run(job, "--out", out)[1] == "0 digests written, 6 existed already\n"


@pytest.mark.parametrize("change", ["trace", "cut", "version", "other"])
def test_only_a_digest_of_this_very_trace_counts(job: Path, run: Run, change: str) -> None:
    run(job)
    written = digests(job)
    path = job / "run" / DIGEST.format(1)
    if change == "trace":
        with (job / "run" / "rank1.1795000000000000001.pt.trace.json").open("a") as trace:
            trace.write("\n")
    elif change == "cut":
        path.write_bytes(path.read_bytes()[:50])
    else:
        rewrite(path, **({"format_version": 0} if change == "version" else {"trace_name": "other.json"}))
    assert run(job)[1] == "1 digests written, 2 existed already\n"
    assert (digests(job) == written) is (change != "trace")


def rewrite(path: Path, **fields: Any) -> bytes:
    """A digest that differs in these fields; returns what stands in its file now."""
    file = local_file(str(path))
    assert file
    made = load(file)
    for name, value in fields.items():
        setattr(made, name, value)
    path.write_bytes(made.SerializeToString())
    return path.read_bytes()


def test_what_a_newer_version_wrote_stays(job: Path, run: Run) -> None:
    run(job)
    path = job / "run" / DIGEST.format(1)
    newer = rewrite(path, format_version=FORMAT_VERSION + 1)
    assert run(job)[1] == "0 digests written, 3 existed already\n"
    assert path.read_bytes() == newer


def test_one_bad_file_costs_itself(job: Path, run: Run) -> None:
    bad = job / "run" / "rank7.1795000000000000001.pt.trace.json.gz"
    bad.write_bytes(gzip.compress(b"no JSON"))
    status, out, err = run(job)
    assert (status, out) == (0, "3 digests written, 0 existed already, 1 failed\n")
    assert err.startswith(f"warning: {bad}: this is not a profiler trace") and err.count("\n") == 1
    assert len(digests(job)) == 3


def test_a_mistake_of_ours_costs_one_trace(job: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write = write_digest

    def mistaken(order: Order) -> Any:
        if order.worker.worker == "rank1":
            raise ZeroDivisionError
        return write(order)

    monkeypatch.setattr(index, "write_digest", mistaken)
    status, _, err = run(job)
    assert status == 0 and "cannot be read (ZeroDivisionError)" in err and len(digests(job)) == 2


def test_where_nothing_can_be_read_one_line_says_why(tmp_path: Path, run: Run) -> None:
    status, _, err = run(tmp_path)
    assert status == 1 and err.startswith(f"tb-torchcompile: {tmp_path}: it contains no trace.")
    for number in range(60):
        (tmp_path / f"w{number}.1.pt.trace.json").write_text("no JSON")
    status, out, err = run(tmp_path)
    assert (status, out) == (1, "") and len(err.splitlines()) == 52
    assert err.splitlines()[-2] == "warning: 10 more warnings"
    assert "nothing could be read: see the warnings above" in err.splitlines()[-1]
    assert run(tmp_path / "nowhere")[0] == 1
    assert run(tmp_path / "w1.1.pt.trace.json")[2].startswith("tb-torchcompile: ")


def test_a_second_trace_of_one_name_gets_none(job: Path, run: Run) -> None:
    trace = job / "run" / "rank0.1795000000000000000.pt.trace.json"
    (job / "run" / f"{trace.name}.gz").write_bytes(gzip.compress(trace.read_bytes()))
    status, out, err = run(job)
    assert status == 0 and out.startswith("3 digests") and "no digest is written for this one" in err


class TestDisk:
    def test_a_full_one_ends_it_and_nothing_is_half_written(
        self, job: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace_ = os.replace
        done: list[str] = []

        def full(source: str, target: str) -> None:
            if done:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done.append(target)
            replace_(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", full)
            status, out, err = run(job)
        assert (status, out) == (1, "")
        assert "there is no disk space for it (No space left on device), after 1 digests" in err
        assert "run this again: it continues where it stopped" in err and len(err.splitlines()) == 1
        assert names(job) == [f"run/{DIGEST.format(0)}"]
        assert run(job)[1] == "2 digests written, 1 existed already\n"

    def test_a_really_full_one(self, job: Path, run: Run, tmp_path: Path) -> None:
        """/dev/full takes nothing."""
        (tmp_path / "out" / "run").mkdir(parents=True)
        own = f"{threading.get_ident()}.{os.getpid()}.tmp"
        for rank in range(3):
            name = f"{DIGEST.format(rank)}.{own}"
            (tmp_path / "out" / "run" / name).symlink_to("/dev/full")
        status, _, err = run(job, "--out", tmp_path / "out")
        assert status == 1 and "No space left on device" in err
        assert names(tmp_path / "out") == [f"run/{DIGEST.format(rank)}.{own}" for rank in (1, 2)]

    def test_a_folder_that_cannot_be_written(
        self, job: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
        status, _, err = run(job)
        assert status == 1 and err.count("this folder is not writable") == 3
        assert names(job) == []


class TestProcesses:
    @pytest.fixture
    def patched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In processes of the pool, too, which begin anew: reading a trace of this worker ends the one that does."""
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(
            "import os, signal\n"
            "from tb_torchcompile_plugin.api.indexing import index\n"
            "read = index._read\n"
            "def deadly(file):\n"
            f"    if {DEADLY!r} in file.name:\n"
            "        os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return read(file)\n"
            "index._read = deadly\n"
        )
        path = os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH"))))
        monkeypatch.setenv("PYTHONPATH", path)

    def test_two_do_what_one_does(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["index", str(job), "--workers", "1"]) == 0
        alone = digests(job)
        for path in job.rglob("*.digest.pb"):
            path.unlink()
        assert main(["index", str(job), "--workers", "2"]) == 0
        assert digests(job) == alone and len(alone) == 3
        assert capsys.readouterr().out.startswith("3 digests written")

    @pytest.mark.slow
    @pytest.mark.usefixtures("patched")
    def test_one_that_is_killed_is_retried_and_its_trace_is_blamed(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        trace = job / "run" / "rank0.1795000000000000000.pt.trace.json"
        deadly = trace.with_name(f"{DEADLY}.1795000000000000001.pt.trace.json")
        shutil.copy(trace, deadly)
        assert main(["index", str(job), "--workers", "2"]) == 0
        out, err = capsys.readouterr()
        assert out == "3 digests written, 0 existed already, 1 failed\n"
        assert err.startswith(f"warning: {deadly}: the process that read it was killed")
        assert names(job) == [f"run/{DIGEST.format(rank)}" for rank in range(3)]

    def test_none_outlives_a_command_that_was_killed(self, tmp_path: Path) -> None:
        write_trace(tmp_path, [slice_(f"op{at}", at, 1) for at in range(200_000)])
        children: list[int] = []
        with begun(tmp_path) as running:
            while not children:
                time.sleep(0.05)
                children = [pid for pid in children_of(running.pid) if "spawn_main" in command_of(pid)]
            time.sleep(0.3)
            running.send_signal(signal.SIGKILL)
        until = time.monotonic() + 180
        while any(map(command_of, children)) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(map(command_of, children))

    def test_ctrl_c_leaves_whole_digests_alone(self, job: Path) -> None:
        running = begun(job)
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=180)
        assert running.returncode in (0, 130) and "Traceback" not in err
        assert all(name.endswith(".pb") for name in names(job))

    def test_ctrl_c_is_nothing_to_a_worker_from_its_first_moment_on(self, job: Path) -> None:
        running = begun(job)
        while running.poll() is None:
            for child in children_of(running.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGINT)
            time.sleep(0.002)
        _, err = running.communicate(timeout=180)
        assert (running.returncode, "Traceback" in err) == (0, False)
        assert len(names(job)) == 3


def begun(job: Path) -> subprocess.Popen[str]:
    """`index` in a process of its own, from its first process on."""
    command = [sys.executable, "-m", "tb_torchcompile_plugin.cli", "index", str(job), "--workers", "1"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not children_of(running.pid):
        time.sleep(0.002)
    return running


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    try:
        return [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:
        return []


def command_of(pid: int) -> str:
    """Of a process that runs, "" else."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_pool_that_breaks_between_two_goes_on(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be killed when it is at nothing."""
    made = futures.ProcessPoolExecutor
    broken: list[bool] = []

    def pool_(*arguments: Any) -> Any:
        executor = made(*arguments)
        if not broken:
            broken.append(True)
            executor.__dict__["_broken"] = "killed"
        return executor

    monkeypatch.setattr(futures, "ProcessPoolExecutor", pool_)
    outcomes = list(in_processes(plan(str(job))[0], 1))
    assert [outcome for _, outcome in outcomes] == [Attempted("written")] * 3


def test_orders_carry_no_more_than_a_digest_needs(job: Path) -> None:
    (first, *_), _ = plan(str(job))
    assert first.worker.spans == [] and first.worker.digests == {}
    assert first == first._replace(worker=replace(first.worker))
