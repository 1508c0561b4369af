"""`digest=True`: a digest of each trace is written during training, without disturbing it."""

import gzip
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live import needs_torch
from tb_torchcompile_plugin import tensorboard_trace_handler
from tb_torchcompile_plugin.api.indexing.index import write_digest
from tb_torchcompile_plugin.cli.index import plan
from tb_torchcompile_plugin.job.digest.file import is_current, load
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, columns_from_message, compiled_of
from tb_torchcompile_plugin.logdir.discovery import WorkerFiles, discover
from tb_torchcompile_plugin.reader.cache.store import is_stored
from tb_torchcompile_plugin.writer import background

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]


@pytest.fixture(autouse=True)
def _own_reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of this test alone, which is ended whatever becomes of the test."""
    monkeypatch.setattr(background, "_reader", None)
    monkeypatch.setattr(background, "_owner", os.getpid())
    yield
    if background._reader:
        background._reader.kill()
        with background._reader:
            pass


def trained(torch: Any, folder: Path, cycles: int = 1, **handler: Any) -> int:
    """How many steps it went through."""
    compiled = torch.compile(lambda x: (x @ x).relu().sum(), backend="eager")
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=cycles)
    on_ready = tensorboard_trace_handler(str(folder), "rank0", **handler)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=on_ready) as prof:
        for _ in range(4 * cycles):
            compiled(torch.ones(64, 64))
            prof.step()
        return int(prof.step_num)


def finished(timeout_s: float = 120) -> None:
    """Until all that training left behind is read."""
    background._finish()
    if background._reader:
        assert background._reader.wait(timeout_s) == 0


def only_worker(folder: Path) -> WorkerFiles:
    ((run,), notices) = discover(str(folder))
    assert notices == []
    (worker,) = run.workers.values()
    return worker


@pytest.mark.parametrize("packed", [False, True], ids=["json", "gzip"])
def test_each_cycle_has_a_digest_of_its_trace(torch: Any, tmp_path: Path, packed: bool) -> None:
    trained(torch, tmp_path, 2, digest=True, use_gzip=packed)
    finished()
    worker = only_worker(tmp_path)
    assert set(worker.digests) == {span.span for span in worker.spans} and len(worker.spans) == 2
    for span in worker.spans:
        assert span.file.name.endswith(".gz") is packed
        assert is_current(worker.digests[span.span], span.file) and not is_stored(span.file.path)
        made = RankDigest(
            0,
            "rank0",
            span.span,
            columns_from_message(load(worker.digests[span.span]), worker.digests[span.span]),
        )
        assert len(made.columns.windows.names) == 2
        compiled = made.of(compiled_of)
        assert compiled and len(compiled.compilations) == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_it_is_what_index_writes(torch: Any, tmp_path: Path) -> None:
    trained(torch, tmp_path / "run", digest=True)
    finished()
    (order,), _ = plan(str(tmp_path / "run"), str(tmp_path / "out"))
    write_digest(order._replace(next_to_trace=None))
    (written,), (again,) = (list((tmp_path / place).glob("*.digest.pb")) for place in ("run", "out"))
    assert written.read_bytes() == again.read_bytes()


def test_with_index_the_trace_is_read_once(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has but one look at the trace: it is gone as soon as it was read."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if any('beside_training' in one for one in sys.orig_argv):\n"
        "    from tb_torchcompile_plugin.reader.cache import store\n"
        "    store.WORTH_STORING = 0\n"
        "    read = store.ingest\n"
        "    def once(path, *rest):\n"
        "        print(path, file=open(os.environ['READ'], 'a'))\n"
        "        return read(path, *rest)\n"
        "    store.ingest = once\n"
        "    def never(*_, **__):\n"
        "        raise AssertionError('read twice')\n"
        "    from tb_torchcompile_plugin.api.indexing import index\n"
        "    index.read_trace = never\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("READ", str(tmp_path / "read"))
    monkeypatch.setattr("tb_torchcompile_plugin.reader.cache.store.WORTH_STORING", 0)
    trained(torch, tmp_path / "run", index=True, digest=True)
    finished()
    worker = only_worker(tmp_path / "run")
    (span,) = worker.spans
    assert (tmp_path / "read").read_text().splitlines() == [span.file.path]
    assert is_current(worker.digests[span.span], span.file) and is_stored(span.file.path)


def test_without_the_flag_nothing_is_started(torch: Any, tmp_path: Path) -> None:
    trained(torch, tmp_path)
    assert background._reader is None and only_worker(tmp_path).digests == {}


@pytest.mark.parametrize("how", ["no process", "no folder", "no trace"])
def test_a_digest_that_fails_does_not_disturb_training(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    if how == "no process":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    read = background.read

    def after_a_mishap(trace: str, *arguments: Any, **kw: Any) -> None:
        if how == "no folder":
            shutil.copy(trace, tmp_path / "kept")
            shutil.move(tmp_path / "run", tmp_path / "moved")
            (tmp_path / "run").write_text("a file")
            trace = str(tmp_path / "kept")
        elif how == "no trace":
            Path(trace).write_bytes(gzip.compress(b"nothing"))
        read(trace, *arguments, **kw)

    monkeypatch.setattr(background, "read", after_a_mishap)
    steps = trained(torch, tmp_path / "run", digest=True)
    finished()
    assert steps == 4 and not list(tmp_path.rglob("*.digest.pb"))
    said = [row.getMessage() for row in caplog.records if row.name == "tb_torchcompile_plugin"]
    expected = ["the trace is not read in the background"] if how == "no process" else []
    assert [message.partition(":")[0] for message in said if "background" in message] == expected


@pytest.mark.slow
def test_what_makes_digests_gives_way_to_training(torch: Any, tmp_path: Path) -> None:
    """Lowest priority from its start; how long steps take meanwhile is measured, not tested."""
    trained(torch, tmp_path / "digested", 12, digest=True)
    assert background._reader
    nice = Path(f"/proc/{background._reader.pid}/stat")
    while int(nice.read_text().rpartition(")")[2].split()[16]) != 19:  # until Python has begun there
        assert background._reader.poll() is None
        time.sleep(0.01)
    finished()
    assert len(only_worker(tmp_path / "digested").digests) == 12
