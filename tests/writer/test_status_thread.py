"""status_thread.py under a real torch: what is shown while it compiles, and that nothing is left of it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from live import ROOT, fresh_recorder, in_a_fork, needs_torch
from tb_torchcompile_plugin.api.catalog import Catalog, Listing
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.logdir.compile_status import MAX_BYTES
from tb_torchcompile_plugin.writer import status_thread
from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder
from tb_torchcompile_plugin.writer.status_thread import StatusThread

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
STATUS = "*.pt.compiling"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(status_thread, "INTERVAL_S", 0.02)
    with fresh_recorder():
        yield


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tb_torchcompile")]


def wait_until_gone() -> None:
    deadline = time.monotonic() + 30
    while threads():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def compile_until(torch: Any, seen: Any, direction: str = "forward") -> None:
    """Compile with a backend that takes until `seen` returns something."""

    def backend(graph: Any, inputs: Any) -> Any:
        deadline = time.monotonic() + 30
        while not seen():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return graph.forward

    torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))


def look(folder: Path, found: list[bytes]) -> list[bytes]:
    """Add what the status files contain now."""
    found.extend(file.read_bytes() for file in folder.glob(STATUS))
    return found


def test_the_file_is_there_while_torch_compiles_and_only_then(torch: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    found: list[bytes] = []

    with CompileRecorder(tmp_path, "w", on_progress=lines.append):
        compile_until(torch, lambda: look(tmp_path, found) and lines)
        wait_until_gone()
        assert not list(tmp_path.iterdir())
    assert len(found[0]) <= MAX_BYTES
    status = json.loads(found[0])
    line = compile_until.__code__.co_firstlineno + 10
    assert status["frame"] == f"<lambda> ({Path(__file__).name}:{line})"
    expected = {
        "pid": os.getpid(),
        "compile_id": "0/0",
        "direction": "forward",
        "attempt": 1,
        "compilations": 1,
    }
    assert {name: status[name] for name in expected} == expected
    assert lines[0].startswith(f"compiling <lambda> ({Path(__file__).name}:{line}), 0/0 forward, ")


def test_a_backward_is_no_further_compilation_and_a_repeated_id_is_shown_again(
    torch: Any, tmp_path: Path
) -> None:
    outer: list[str] = []
    found: list[bytes] = []
    with CompileRecorder(tmp_path, "w", on_progress=outer.append) as recorder:
        with CompileRecorder(tmp_path, on_progress=lambda line: None):
            torch.compile(lambda x: x.sin(), backend="aot_eager")(
                torch.ones(3, requires_grad=True)
            ).sum().backward()
        for _ in range(2):
            torch._dynamo.reset()
            outer.clear()
            found.clear()
            compile_until(torch, lambda: outer and look(tmp_path, found))
            number = json.loads(found[-1])["compilations"]
            assert number == len(forward_compilations(recorder.summary()))


def a_thread(tmp_path: Path, read: Any) -> StatusThread:
    """A thread that reads a status once torch compiles nothing in this process."""
    return StatusThread(lambda: str(tmp_path / "w"), read, lambda: 0)


def test_a_thread_that_begins_while_another_one_is_stopped(tmp_path: Path) -> None:
    class Interrupted:
        """A lock after whose release another thread runs first."""

        lock = threading.RLock()
        then: Callable[[], None] | None = None

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *error: object) -> None:
            self.lock.release()
            if then := self.then:
                self.then = None
                then()

    status = a_thread(tmp_path, lambda _: None)
    status._has_ended = lambda *_: False  # type: ignore[method-assign]  # it never ends by itself
    status._lock = lock = Interrupted()  # type: ignore[assignment]  # a lock after which another thread runs
    status.begin()
    first, lock.then = status._thread, status.begin
    status.stop()
    assert first and status._thread
    assert not first.is_alive() and status._thread.is_alive()
    with lock:
        status.stop()  # by a signal handler
    wait_until_gone()


def test_a_thread_that_died_is_replaced(tmp_path: Path) -> None:
    reads: list[int] = []

    def read(_: object) -> None:
        reads.append(1)
        raise SystemExit

    status = a_thread(tmp_path, read)
    for number in (1, 2):
        status.begin()
        wait_until_gone()
        assert len(reads) == number


def test_a_callback_that_hangs_stops_neither_training_nor_the_removal_of_the_file(
    torch: Any, tmp_path: Path
) -> None:
    called, goes_on = threading.Event(), threading.Event()

    def hang(line: str) -> None:
        called.set()
        goes_on.wait(30)

    with CompileRecorder(tmp_path, "w", on_progress=hang) as recorder:
        compile_until(torch, called.is_set)
        began = time.monotonic()
        recorder.write()
        assert threads() and not list(tmp_path.glob(STATUS))
        assert time.monotonic() - began < 10
        goes_on.set()
        wait_until_gone()


def test_a_steady_step_starts_no_thread_and_writes_nothing(torch: Any, tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with CompileRecorder(tmp_path):
        compiled(torch.ones(3))
        wait_until_gone()
        for _ in range(100):
            compiled(torch.ones(3))
            assert not threads()
        assert not list(tmp_path.iterdir())


def test_a_callback_that_raises_and_a_folder_that_cannot_be_written_do_not_matter(
    torch: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    def fail(line: str) -> None:
        calls.append(line)
        raise SystemError(line)

    (tmp_path / "file").write_text("")
    CompileRecorder(tmp_path / "file" / "runs", on_progress=fail).__enter__()
    compile_until(torch, lambda: calls)
    wait_until_gone()
    assert capfd.readouterr() == ("", "")


def test_the_child_of_a_fork_leaves_the_file_of_its_parent_alone(torch: Any, tmp_path: Path) -> None:
    own = tmp_path / f"w.{os.getpid()}.pt.compiling"
    children: list[int] = []

    def child() -> None:
        assert not threads()
        time.sleep(0.1)
        assert not own.exists()  # removed by the parent before the fork

    def compiling_child() -> None:
        with CompileRecorder(tmp_path, "w"):
            compile_until(torch, lambda: (tmp_path / f"w.{os.getpid()}.pt.compiling").exists())
        assert not own.exists()

    def fork_meanwhile() -> bool:
        if own.exists():
            children.append(in_a_fork(child))
        return bool(children)

    with CompileRecorder(tmp_path, "w"):
        compile_until(torch, fork_meanwhile)
        wait_until_gone()
        in_a_fork(compiling_child)


_TRAINER = """
import sys, time, torch
from tb_torchcompile_plugin import CompileRecorder
with CompileRecorder(sys.argv[1], "w"):
    torch.compile(lambda x: x + 1, backend=lambda *_: time.sleep(600))(torch.ones(3))
"""


@pytest.mark.slow
def test_nothing_compiles_in_a_process_that_was_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": "3"}
    trainer = subprocess.Popen([sys.executable, "-c", _TRAINER, tmp_path / "run"], env=environment)
    catalog = Catalog([("", str(tmp_path))])

    def listing() -> Listing:
        return catalog.look()

    deadline = time.monotonic() + 120
    while not listing().compiling():
        assert time.monotonic() < deadline and trainer.poll() is None
        time.sleep(0.1)
    ((run, (status,)),) = listing().compiling().items()
    assert (run, status.rank, status.pid) == ("run", 3, trainer.pid)
    trainer.send_signal(signal.SIGKILL)
    while listing().compiling():  # soon it is a zombie: it has not been waited for
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert list((tmp_path / "run").glob(STATUS))
    trainer.wait()
    assert listing().compiling() == {}
