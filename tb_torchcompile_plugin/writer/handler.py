"""The drop-in for torch.profiler.tensorboard_trace_handler."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from typing import Any

from tb_torchcompile_plugin.torch_names.graph_breaks import says_trace_is_saved
from tb_torchcompile_plugin.writer import log_handlers as background
from tb_torchcompile_plugin.writer import stacks
from tb_torchcompile_plugin.writer.recorder import Output, checked_capture, recorder

# As torch names it; the stem is folder and worker.
_TRACE_FILE = re.compile(r"(?P<stem>.*)\.(?P<time_ns>\d+)\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_SAVED = (
    "the trace is not written here, because torch saves it once and another handler of this profiler was first: give "
    "the profiler one handler, or call this one first"
)
_CANCELLED = (
    "on_trace_ready was cancelled: a file of this cycle is there as a whole or not at all. For its trace profile "
    "again, and let the handler end"
)


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    *,
    capture: str = "full",
    index: bool = False,
    digest: bool = False,
    triton: bool = False,
    **kw: Any,
) -> Callable[[Any], None]:
    """An `on_trace_ready` that writes the trace as torch's own handler does, and a compile summary beside it.

        from tb_torchcompile_plugin import tensorboard_trace_handler

        with torch.profiler.profile(on_trace_ready=tensorboard_trace_handler("runs")) as prof:
            ...

    dir_name, worker_name, use_gzip and further keywords (such as `use_python_export` of torch 2.13) mean what they
    mean to `torch.profiler.tensorboard_trace_handler`; that function does the export. Files:
    `{worker}.{time_ns}.pt.trace.json` (`.gz`) and `{worker}.{time_ns}.pt.compile.pb` with the same time. The default
    worker is `{hostname}_{pid}`.

    **Create it before the model is first called.** It listens from then on; of compilations before it, what torch
    still knows is recovered, without phases. It may be created anew in each cycle inside your own handler: a
    process has one recorder. What is compiled after the last cycle is written when the interpreter exits.

    capture: "full" stores source lines, graphs and generated code. "summary" stores none of these, and no text
    that quotes the model's code: use it where logs leave the house.

    index: read each trace into the reader's cache of this user right after it is written, so that the tab opens at
    once: one background process of lowest priority, the newest trace first. It finishes what waits when training
    ends, and ends with training that is killed. Costs about 5 CPU seconds and 200 MB for a gigabyte of trace; only of
    use where TensorBoard runs as the same user on the same machine.

    digest: have the same process write a `{worker}.{time_ns}.pt.digest.pb` of at most 100 kB beside each trace: what a
    job of many ranks is looked at with, without their traces. With both, the trace is read once. One that could not be
    written, `tb-torchcompile index` writes later.

    triton: keep what Triton made of inductor's kernels: TTIR, TTGIR and PTX of the configuration in use (not with
    `capture="summary"`), registers, spills and shared memory of each, and the times that autotuning measured. They are
    read from torch's objects and from Triton's cache folder when a summary is written; at most 32 MB of texts, which
    compress to a tenth. Create the handler before compiling: torch tells the times once.

    CPU: inductor's C++ kernels show up by name only if `TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1` was in the
    environment **before compiling** (it is part of the generated code). GPU: kernels are sorted by the names that
    inductor gives them; unique names are torch's default, do not switch `TORCHINDUCTOR_UNIQUE_KERNEL_NAMES` off.
    Bytes and operations of kernels are estimates from shapes (`record_shapes=True`), and exact with
    `TORCHINDUCTOR_BENCHMARK_KERNEL=1` set before compiling. That costs about a second of compile time for a model of
    four transformer blocks, a compile cache of its own, and nothing at run time.

    torch 2.14 and later: with TORCH_COMPILE_DEBUG_EXTEND=1 in the environment the stacks of inductor's kernels are
    written into the trace, as torch's `inductor_trace_handler` does; where that one is called before this handler in
    the same `on_trace_ready`, its trace is the one that the summary goes with.

    Cost: compiling takes a few percent longer, because torch builds the texts of its compile log (as with TORCH_TRACE);
    in other steps at most 5 µs go into noting how long they take, recorded and not. Writing the summary takes
    milliseconds for each cycle, the first one some tenths of a second.

    The returned function never raises: an exception in `on_trace_ready` can crash the process. Failures are logged once
    by the logger `tb_torchcompile_plugin`. Raises TypeError and ValueError for arguments that do not exist.
    """
    folder = os.fspath(dir_name)
    checked_capture(capture)
    export = _Exporter(folder, worker_name, use_gzip, kw)
    output = Output(folder, worker_name, capture)
    recorder().listen(capture, forever=True)
    recorder().add_output(output, lasting=True)
    recorder().note_steps()
    if triton:
        recorder().keep_triton()

    def handler(prof: Any) -> None:
        try:
            stem, time_ns = export(prof)
            recorder().add_output(output, lasting=True)
            summary = recorder().write(output, time_ns, stem)
            if index or digest:
                _read_ahead(export.path, summary, index, digest)
        except Exception as error:
            recorder().report("the profiler's trace handler failed", error)
        except BaseException:  # Ctrl-C ends what it is meant to end
            recorder().warn(_CANCELLED)
            raise

    return handler


def _read_ahead(trace: str, summary: str | None, index: bool, digest: bool) -> None:
    """Trace and summary are there, whether or not a process can be started that reads them."""
    try:
        background.read(trace, summary, index=index, digest=digest)
    except Exception as error:
        recorder().report("the trace is not read in the background", error)


class _Exporter:
    """torch's own handler, with the file put in place only when it is whole."""

    def __init__(self, folder: str, worker: str | None, use_gzip: bool, kw: dict[str, Any]) -> None:
        self._arguments = (folder, worker, use_gzip, kw)
        self._handler = self._stock()
        self._since_ns = time.time_ns()
        self.path = ""  # of the last trace

    def _stock(self) -> Callable[[Any], None]:
        import torch

        folder, worker, use_gzip, kw = self._arguments
        self._pid = os.getpid()
        handler: Callable[[Any], None] = torch.profiler.tensorboard_trace_handler(
            folder, worker, use_gzip, **kw
        )
        return handler

    def __call__(self, prof: Any) -> tuple[str | None, int]:
        """Exports; returns (folder/worker, time_ns) of the trace file's path. Never raises an Exception."""
        redirected = _Redirected(prof)
        try:
            if self._pid != os.getpid():
                # torch keeps the default worker name, and the child of a fork must not go by its parent's.
                self._handler = self._stock()
            if stacks.wanted() and not stacks.writes_by_itself(prof):
                redirected.path = stacks.export(prof, *self._arguments)
            else:
                self._handler(redirected)
        except Exception as error:
            other = stacks.written_since(self._since_ns, *self._arguments[:2])
            if not other or other == redirected.path:
                why = _SAVED if says_trace_is_saved(str(error)) else "the trace cannot be written"
                recorder().report(why, error, self._arguments[0])
            else:  # a profiler saves its trace once: another handler was first
                redirected.path = other
        self.path, self._since_ns = redirected.written, time.time_ns()
        name = _TRACE_FILE.fullmatch(redirected.path)
        return (name["stem"], int(name["time_ns"])) if name else (None, time.time_ns())


class _Redirected:
    """A profiler that never shows TensorBoard half a trace.

    Kineto writes plain JSON to a temporary name of its own and renames it: that export is left alone, so that the
    file is the stock one to the byte (it holds its own name). The others write to the final name, and are redirected;
    but not a profiler that writes by itself, when this has returned long since: nobody would rename what it writes.
    """

    def __init__(self, prof: Any) -> None:
        self._prof = prof
        self.path = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prof, name)

    @property
    def written(self) -> str:
        """Where the trace is; CUPTI's monitor compresses it whatever its name."""
        return self.path if os.path.exists(self.path) else f"{self.path}.gz"

    def export_chrome_trace(self, path: str, *arguments: Any, **kw: Any) -> None:
        self.path = path
        aside = path.endswith(".gz") or any(arguments) or any(kw.values())
        if aside and not stacks.writes_by_itself(self._prof):
            self._export_aside(path, *arguments, **kw)
        else:
            self._prof.export_chrome_trace(path, *arguments, **kw)
        if not stacks.writes_by_itself(self._prof) and _is_cut_off(path):
            recorder().report("the trace is cut off", OSError("is the disk full?"), path)

    def _export_aside(self, path: str, *arguments: Any, **kw: Any) -> None:
        # The name must not look like a trace, and must still say whether torch is to compress.
        temporary = path.removesuffix(".gz") + ".tmp" + (".gz" if path.endswith(".gz") else "")
        try:
            self._prof.export_chrome_trace(temporary, *arguments, **kw)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _is_cut_off(path: str) -> bool:
    """Kineto says nothing when the disk is full. What it wrote until then can still be read in part."""
    if path.endswith(".gz"):
        return False
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 16))
        return not file.read().rstrip().endswith(b"}")
