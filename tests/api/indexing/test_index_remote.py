"""api: `index` of a logdir in a store, whose traces are fetched, read and forgotten one by one."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest

from served import s3_server, upload
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.logdir import filesystem
from terminal import Run, digests, indexing

pytestmark = pytest.mark.slow

BUCKET = "s3://digests"


@pytest.fixture(scope="module")
def job(late_job: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(late_job(2), tmp_path_factory.mktemp("logdir") / "run")).parent


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A real server, which other processes reach by the environment."""
    with s3_server("digests"):
        yield filesystem._store(BUCKET)


@pytest.fixture
def memory(job: Path) -> Iterator[Any]:
    """Its traces at memory://bucket/run."""
    store = fsspec.filesystem("memory")
    upload(store, job, "/bucket")
    yield store
    store.store.clear()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return indexing(capsys, monkeypatch)


def test_digests_lie_beside_their_traces_and_nothing_is_kept_here(
    s3: Any, job: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(s3, job, "digests/logdir")
    assert main(["index", f"{BUCKET}/logdir", "--workers", "1"]) == 0
    assert capsys.readouterr().out == "2 digests written, 0 existed already\n"
    assert not list(cache.glob("copy-*"))
    assert main(["index", str(job), "--workers", "1", "--out", str(tmp_path / "out")]) == 0
    local = digests(tmp_path / "out")
    s3.invalidate_cache()
    written = [name for name in s3.find("digests/logdir") if name.endswith(".pb")]
    assert {name.rpartition("/")[2]: s3.cat_file(name) for name in written} == local
    assert all(name.startswith("digests/logdir/run/") for name in written) and len(local) == 2


def test_a_second_time_nothing_is_fetched_but_digests(memory: Any, run: Run, monkeypatch: Any) -> None:
    assert run("memory://bucket")[1] == "2 digests written, 0 existed already\n"
    monkeypatch.setattr(filesystem, "read_blocks", None)
    assert run("memory://bucket")[1] == "0 digests written, 2 existed already\n"


def test_from_a_store_into_a_folder_and_the_other_way(
    memory: Any, run: Run, job: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        assert run("memory://bucket", "--out", tmp_path / "out")[0] == 0
        assert run(job, "--out", "memory://elsewhere")[0] == 0
    assert run(job, "--out", "memory://elsewhere")[1] == "0 digests written, 2 existed already\n"
    there = [name for name in memory.find("/elsewhere") if name.endswith(".pb")]
    assert digests(tmp_path / "out") == {name.rpartition("/")[2]: memory.cat_file(name) for name in there}
    assert not [name for name in memory.find("/bucket") if name.endswith(".pb")]


def test_a_store_that_cannot_be_written_names_the_way_out(
    memory: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(memory), "pipe_file", Mock(side_effect=PermissionError("read only")))
    status, _, err = run("memory://bucket")
    assert status == 1 and "the store cannot be written (PermissionError: read only)" in err
    assert "choose another location with --out" in err
