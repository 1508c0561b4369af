"""Traces are read into the cache during training by one process, the newest first, which ends with training."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from queue import PriorityQueue

import pytest

from tb_torchcompile_plugin.api.indexing.beside_training import ToRead, listen
from tb_torchcompile_plugin.reader.cache.store import is_stored
from tb_torchcompile_plugin.writer import background

pytestmark = pytest.mark.slow

EVENT = (
    '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": %d, "dur": 1, "args": {}}'
)
PROGRAM = """
    import os, sys
    from tb_torchcompile_plugin.writer import background
    for path in sys.argv[2:]:
        background.read(path, None, index=True, digest=False)
    print(background._reader.pid, flush=True)
    if sys.argv[1] == "forks" and not os.fork():
        import time
        time.sleep(5)  # and holds all that its parent had open
    if sys.argv[1] != "ends":
        sys.stdin.read()
"""


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small ones are not worth an entry, so these are large."""
    monkeypatch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path / "cache"))
    text = '{"traceEvents": [' + ",".join(EVENT % number for number in range(60_000)) + "]}"
    paths = [tmp_path / f"w.{number}.pt.trace.json" for number in range(3)]
    for path in paths:
        path.write_text(text)
    return list(map(str, paths))


def trained(how: str, traces: list[str]) -> tuple[subprocess.Popen[str], int]:
    """A program that has its traces read, and the process that reads them."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), how, *traces]
    training = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert training.stdout
    return training, int(training.stdout.readline())


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 180
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_one_process_reads_all(traces: list[str], tmp_path: Path) -> None:
    background.read(str(tmp_path / "was never written"), None, index=True, digest=False)
    readers = []
    for path in traces:
        background.read(path, None, index=True, digest=False)
        readers.append(background._reader)
    (reader,) = set(readers)
    background._finish()
    assert reader and reader.wait(timeout=180) == 0
    assert all(map(is_stored, traces))
    assert reader.stdin
    reader.stdin.close()


def test_another_one_follows_a_reader_that_was_killed(traces: list[str]) -> None:
    background.read(traces[0], None, index=True, digest=False)
    reader = background._reader
    assert reader
    reader.kill()
    reader.wait()
    background.read(traces[1], None, index=True, digest=False)
    assert background._reader and background._reader.pid != reader.pid
    background._finish()
    assert background._reader.wait(timeout=180) == 0 and is_stored(traces[1])
    for one in (reader, background._reader):
        assert one.stdin
        one.stdin.close()


def test_what_waits_is_read_after_training(traces: list[str]) -> None:
    training, reader = trained("ends", traces)
    training.communicate(timeout=180)
    wait_until_gone(reader)
    assert all(map(is_stored, traces))


def test_what_training_sent_before_it_ended_is_read_by_a_reader_that_starts_late(traces: list[str]) -> None:
    sent = "".join(f"{json.dumps([path, None, True, False])}\n" for path in ["gone"] * 5_000 + traces)
    another = str(os.getppid())  # not the parent of the reader: as if training had ended
    command = [sys.executable, "-m", background._READER, another]
    subprocess.run(command, input=f"{sent}null\n".encode(), timeout=180, check=True)
    assert all(map(is_stored, traces))
    for broken in (sent, f"{sent}[1, 2, 3, 4, 5]\n"):  # training that was killed, and one of another version
        assert subprocess.run(command, input=broken.encode(), timeout=180).returncode == 1


@pytest.mark.parametrize("how", ["waits", "forks"])
def test_nothing_is_left_of_training_that_was_killed(traces: list[str], how: str) -> None:
    training, reader = trained(how, traces * 50)
    os.kill(training.pid, signal.SIGKILL)
    wait_until_gone(reader)
    training.wait()
    for pipe in (training.stdin, training.stdout):
        assert pipe
        pipe.close()


def test_the_newest_is_read_first() -> None:
    waiting: PriorityQueue[tuple[float, ToRead | None]] = PriorityQueue()
    listen(['["a", null, true, false]', '["b", "c", false, true]', "null"], waiting)
    assert [waiting.get()[1] for _ in range(3)] == [
        ToRead("b", "c", cache=False, digest=True),
        ToRead("a", None, cache=True, digest=False),
        None,
    ]
