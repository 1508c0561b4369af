"""The drop-in handler: the contract of torch's own one, kept under every failure that can be forced."""

import errno
import gzip
import json
import os
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from live import (
    SUMMARY,
    TRACE,
    TRACE_LOGGER,
    in_a_fork,
    names,
    needs_torch,
    run_alone,
    run_handler,
    summaries,
    torch_before,
)
from tb_torchcompile_plugin import CompileRecorder, tensorboard_trace_handler
from tb_torchcompile_plugin.writer import recorder as recorder_module
from tb_torchcompile_plugin.writer.log_handlers import RecordHandler

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]


def profile(torch: Any, on_ready: Callable[[Any], None], steps: int = 2, wait: int = 0) -> None:
    """A short profiled run with a repeating schedule: the one that crashes when a handler raises."""
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    schedule = torch.profiler.schedule(wait=wait, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=on_ready) as prof:
        for _ in range(2 * steps):
            compiled(torch.ones(2))
            prof.step()


def test_a_trace_and_a_summary_for_each_cycle(torch: Any, tmp_path: Path) -> None:
    profile(torch, tensorboard_trace_handler(str(tmp_path)))
    traces, written = names(tmp_path, TRACE), names(tmp_path, SUMMARY)
    assert traces == written
    assert len(traces) >= 2
    assert all(
        re.fullmatch(rf"{re.escape(socket.gethostname())}_{os.getpid()}\.\d+", name) for name in traces
    )
    assert len(list(tmp_path.iterdir())) == 2 * len(traces)
    for name in traces:
        assert json.loads((tmp_path / (name + TRACE)).read_text())["traceEvents"]
    assert [len(summary.compilations) for summary in summaries(tmp_path)] == [1] * len(traces)


def test_the_trace_is_what_the_stock_handler_writes(torch: Any, tmp_path: Path) -> None:
    for name, make in (
        ("ours", tensorboard_trace_handler),
        ("stock", torch.profiler.tensorboard_trace_handler),
    ):
        torch._dynamo.reset()
        with torch.profiler.profile(record_shapes=True, on_trace_ready=make(str(tmp_path / name), "w")):
            torch.ones(3) + 1
    kinds = []
    for name in ("ours", "stock"):
        (path,) = (tmp_path / name).glob("w.*" + TRACE)
        trace = json.loads(path.read_text())
        kinds.append((sorted(trace), [e["name"] for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]))
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    assert kinds[0] == kinds[1]


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_positional_arguments_gzip_and_a_path_object(torch: Any, tmp_path: Path) -> None:
    profile(torch, tensorboard_trace_handler(tmp_path / "deep" / "folder", "rank0", True), steps=1)
    folder = tmp_path / "deep" / "folder"
    (path,) = folder.glob("rank0.*.pt.trace.json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert names(folder, ".pt.trace.json.gz") == names(folder, SUMMARY)


def test_keywords_of_torch_are_passed_on(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def stock(folder: str, worker: str | None, use_gzip: bool, **kw: Any) -> Callable[[Any], None]:
        seen.update(kw)
        return lambda prof: None

    monkeypatch.setattr(torch.profiler, "tensorboard_trace_handler", stock)
    tensorboard_trace_handler(str(tmp_path), use_python_export=True, of_the_future=7)(None)
    assert seen == {"use_python_export": True, "of_the_future": 7}
    monkeypatch.undo()
    with pytest.raises(TypeError, match="of_the_future"):
        tensorboard_trace_handler(str(tmp_path), of_the_future=7)
    with pytest.raises(ValueError, match="capture must be one of"):
        tensorboard_trace_handler(str(tmp_path), capture="none")


def test_handlers_created_in_each_cycle_share_one_recorder(torch: Any, tmp_path: Path) -> None:
    def on_ready(prof: Any) -> None:
        tensorboard_trace_handler(str(tmp_path), worker_name="w")(prof)

    profile(torch, on_ready, steps=3)
    assert len([h for h in TRACE_LOGGER.handlers if isinstance(h, RecordHandler)]) == 1
    written = summaries(tmp_path)
    assert len(written) >= 3
    # Compiled before the first handler existed: recovered once, and not once for each cycle.
    assert [[row.recovered for row in summary.compilations] for summary in written] == [[True]] * len(written)


def test_a_profiler_that_saw_nothing(torch: Any, tmp_path: Path) -> None:
    """As with torch 2.13, which may call the handler although the device was stopped early."""
    with torch.profiler.profile() as prof:
        pass
    tensorboard_trace_handler(str(tmp_path), "w")(prof)
    assert len(names(tmp_path, TRACE)) == len(names(tmp_path, SUMMARY)) == 1


def test_the_summary_follows_what_is_compiled_later(torch: Any, tmp_path: Path) -> None:
    on_ready = tensorboard_trace_handler(str(tmp_path), "w")
    with torch.profiler.profile(on_trace_ready=on_ready):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    with torch.profiler.profile(on_trace_ready=on_ready):
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    assert [len(summary.compilations) for summary in summaries(tmp_path)] == [1, 2]


def test_a_worker_name_with_a_folder_in_it(tmp_path: Path) -> None:
    """torch takes it as part of the path; the summary is next to the trace, whichever handler writes it."""
    (tmp_path / "a").mkdir()
    tensorboard_trace_handler(str(tmp_path), "a/b")(Exporter(whole))
    assert names(tmp_path / "a", TRACE) == names(tmp_path / "a", SUMMARY) != []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with CompileRecorder(tmp_path, "a/b"):
        pass
    assert [summary.environment.worker for summary in summaries(tmp_path / "a")] == ["b", "b"]


def test_handlers_without_end_are_not_all_remembered(tmp_path: Path) -> None:
    for number in range(50):
        tensorboard_trace_handler(str(tmp_path / str(number)), "w")
        tensorboard_trace_handler(str(tmp_path), f"w{number}")
    assert len(recorder_module.recorder()._outputs) <= 16


def test_a_recorder_does_not_replace_the_output_of_a_handler(tmp_path: Path) -> None:
    for folder in ("other", "runs"):
        with CompileRecorder(tmp_path / folder, "w"):
            tensorboard_trace_handler(str(tmp_path / "runs"), "w")
        assert list(recorder_module.recorder()._outputs) == [(str(tmp_path / "runs"), "w", "full")]


# -- failures -----------------------------------------------------------------------------------------------------


class Exporter:
    """A fake profiler whose export calls a function."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def export_chrome_trace(self, path: str, **kw: Any) -> None:
        self._write(path)


def whole(path: str) -> None:
    Path(path).write_text('{"traceEvents": []}')


def half(path: str) -> None:
    """As Kineto leaves it on a full disk, of which it says nothing."""
    Path(path).write_text('{"traceEvents": [{')


def test_an_exporter_that_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(path: str) -> None:
        half(path)
        raise RuntimeError("Trace is already saved")

    on_ready = tensorboard_trace_handler(str(tmp_path), "w", use_gzip=True)
    on_ready(Exporter(fail))
    on_ready(Exporter(fail))
    assert not names(tmp_path, TRACE + ".gz")
    assert len(names(tmp_path, SUMMARY)) == 2  # what was compiled is not lost with the trace
    assert [path.suffix for path in tmp_path.iterdir()] == [".pb", ".pb"]
    assert caplog.text.count("Trace is already saved") == 1
    assert "use one handler" in caplog.text


@pytest.mark.parametrize("gzipped", [True, False])
def test_an_exporter_that_is_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gzipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Ctrl-C: while the trace is compressed, or its summary is written."""

    def cancelled(path: str) -> None:
        half(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tensorboard_trace_handler(str(tmp_path), "w", gzipped)(Exporter(cancelled if gzipped else whole))
    assert [path.suffix for path in tmp_path.iterdir()] == ([] if gzipped else [".json"])
    assert caplog.text.count("on_trace_ready was cancelled") == 1


def test_ctrl_c_in_the_handler_does_not_crash_torch(tmp_path: Path) -> None:
    program = """
        import os, signal
        from tb_torchcompile_plugin.writer.recorder import recorder
        handler = tensorboard_trace_handler(".")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background of a shell ignore it
        recorder().write = lambda *_: os.kill(os.getpid(), signal.SIGINT)
        steps = torch.profiler.schedule(wait=0, warmup=1, active=1)
        try:
            with torch.profiler.profile(schedule=steps, on_trace_ready=handler) as profiler:
                for _ in range(4):
                    profiler.step()
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert "interrupted" in run_handler(program, tmp_path)


@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 raises where the first one ends")
def test_a_profiler_inside_another_does_not_crash_torch(tmp_path: Path) -> None:
    program = """
        handler = tensorboard_trace_handler(".")
        try:
            with torch.profiler.profile(on_trace_ready=handler):
                with torch.profiler.profile(on_trace_ready=handler):
                    torch.ones(2) + 1
        except RuntimeError as error:
            print(error)
    """
    printed = run_handler(program, tmp_path)
    stopped_by_torch = torch_before("2.13") and not torch_before("2.11")  # before it calls the handler
    warning = "Can't disable Kineto profiler" if stopped_by_torch else "another profiler was started"
    assert warning in printed
    assert len(names(tmp_path, TRACE)) == len(names(tmp_path, SUMMARY)) == 1


@pytest.mark.parametrize(
    ("prof", "said", "traces"),
    [
        (Exporter(lambda path: None), "the trace cannot be written", 0),
        (Exporter(half), "is cut off", 1),  # half a trace is better than none, and the reader takes it
        (None, "the trace cannot be written", 0),
    ],
    ids=["nothing written", "half written", "no profiler"],
)
def test_a_trace_that_is_not_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prof: Any, said: str, traces: int
) -> None:
    tensorboard_trace_handler(str(tmp_path), "w")(prof)
    assert len(names(tmp_path, TRACE)) == traces
    assert said in caplog.text


def test_what_goes_wrong_in_each_cycle_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Names and folders with a time in them make no new problem."""

    no_space = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("tb_torchcompile_plugin.compile_log.summary.save", no_space)
    for cycle in range(3):
        folder = str(tmp_path / f"c{cycle}")
        tensorboard_trace_handler(folder, "w")(Exporter(half))
        tensorboard_trace_handler(folder, "w")(Exporter(no_space))
    assert len(caplog.records) == len(recorder_module.recorder()._reported) == 3
    assert str(tmp_path / "c0") in caplog.text


def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_space = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    on_ready = tensorboard_trace_handler(str(tmp_path), "w")
    monkeypatch.setattr("tb_torchcompile_plugin.logdir.filesystem.open", no_space, raising=False)
    on_ready(Exporter(no_space))
    assert list(tmp_path.iterdir()) == []
    assert caplog.text.count("No space left on device") == 2  # the trace, the summary
    monkeypatch.undo()
    on_ready(Exporter(whole))
    assert names(tmp_path, TRACE) == names(tmp_path, SUMMARY)


def test_a_folder_without_permission(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    denied = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
    on_ready = tensorboard_trace_handler(str(tmp_path / "runs"))

    def ready(prof: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "makedirs", denied)
            on_ready(prof)

    profile(torch, ready)
    assert "Permission denied" in caplog.text


def test_a_recorder_that_is_broken_to_the_core(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("take", "_drain"):
        monkeypatch.setattr(recorder_module.Recorder, name, Mock(side_effect=RuntimeError("a bug of ours")))
    profile(torch, tensorboard_trace_handler(str(tmp_path), "w"))
    assert names(tmp_path, TRACE)
    assert "a bug of ours" in caplog.text


def test_the_handler_in_the_child_of_a_fork(torch: Any, tmp_path: Path) -> None:
    on_ready = tensorboard_trace_handler(str(tmp_path))
    on_ready(Exporter(whole))
    pid = in_a_fork(lambda: on_ready(Exporter(whole)))
    workers = {name.rpartition(".")[0] for name in names(tmp_path, SUMMARY)}
    assert workers == {f"{socket.gethostname()}_{os.getpid()}", f"{socket.gethostname()}_{pid}"}
    assert names(tmp_path, SUMMARY) == names(tmp_path, TRACE)


def test_a_child_that_only_runs_code_of_its_parent_writes_no_summary(torch: Any, tmp_path: Path) -> None:
    on_ready = tensorboard_trace_handler(tmp_path)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    in_a_fork(lambda: on_ready(Exporter(whole)))
    assert names(tmp_path, TRACE) and not names(tmp_path, SUMMARY)


@pytest.mark.parametrize("worker", ["two\nlines", "folder/w", "folder\\w"])
def test_a_worker_name_that_is_no_file_name(
    torch: Any, tmp_path: Path, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    profile(torch, tensorboard_trace_handler(tmp_path, worker))
    folder = tmp_path / "folder" if "folder" in worker else tmp_path
    assert names(folder, SUMMARY) == names(folder, TRACE) != []
    assert "tb_torchcompile_plugin" not in {record.name for record in caplog.records}


# -- in a process of its own --------------------------------------------------------------------------------------


def test_a_real_run_ends_well_whatever_the_folder(tmp_path: Path) -> None:
    """The schedule that crashes the process if a handler raises, on a folder that is a file."""
    program = """
        open("file", "w").close()
        f = torch.compile(lambda x: x + 1, backend="eager")
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=1),
            on_trace_ready=tensorboard_trace_handler("file/runs"),
        ) as prof:
            for _ in range(6):
                f(torch.ones(2)); prof.step()
        print("the end")
    """
    printed = run_handler(program, tmp_path)
    assert "the end" in printed
    assert printed.count("cannot be written") == 2


def test_compilations_after_the_last_cycle_are_written_at_exit(tmp_path: Path) -> None:
    program = """
        handler = tensorboard_trace_handler("runs")
        with torch.profiler.profile(on_trace_ready=handler):
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
        raise SystemExit(0)
    """
    run_handler(program, tmp_path)
    assert len(names(tmp_path / "runs", TRACE)) == 1
    assert [len(summary.compilations) for summary in summaries(tmp_path / "runs")] == [1, 2]


def test_with_a_folder_for_each_cycle_the_newest_one_gets_what_came_last(tmp_path: Path) -> None:
    program = """
        for cycle in range(3):
            with torch.profiler.profile(on_trace_ready=tensorboard_trace_handler(f"c{cycle}")):
                torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    """
    run_handler(program, tmp_path)
    assert [len(summaries(tmp_path / f"c{cycle}")) for cycle in range(3)] == [1, 1, 2]


def test_a_handler_that_was_never_called_writes_at_exit_what_was_compiled(tmp_path: Path) -> None:
    program = """
        tensorboard_trace_handler("runs")
        COMPILE
    """
    run_handler(program.replace("COMPILE", ""), tmp_path)
    assert not (tmp_path / "runs").exists()
    run_handler(
        program.replace("COMPILE", "torch.compile(lambda x: x, backend='eager')(torch.ones(2).sin())"),
        tmp_path,
    )
    assert len(summaries(tmp_path / "runs")) == 1


def test_importing_the_writer_imports_neither_torch_nor_tensorboard(tmp_path: Path) -> None:
    program = """
        import sys
        import tb_torchcompile_plugin.writer.handler, tb_torchcompile_plugin.writer.recorder
        print(sorted({"torch", "tensorboard", "numpy", "werkzeug", "msgspec"} & set(sys.modules)))
    """
    assert run_alone(program, tmp_path).strip() == "[]"
