"""The drop-in replacement for torch.profiler.tensorboard_trace_handler.

It exports a trace as torch's own handler does, with the file put in place only when it is complete.
"""

import glob
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tb_torchcompile_plugin.logdir.filesystem import read_range, renamed
from tb_torchcompile_plugin.torch_names.graph_breaks import is_trace_already_saved
from tb_torchcompile_plugin.writer import background
from tb_torchcompile_plugin.writer.recorder import Output, checked_capture, recorder, worker_of

# As torch names it; the stem is folder and worker.
_TRACE_FILE = re.compile(r"(?P<stem>.*)\.(?P<time_ns>\d+)\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_SAVED = (
    "the trace is not written here, because torch saves it only once and another handler of this profiler was called "
    "first: use one handler, or call this one first"
)
_TAKEN = (
    "another profiler was started while this one recorded, and took what it recorded: no trace is written. "
    "Use one profiler at a time"
)
_CANCELLED = (
    "on_trace_ready was cancelled: each file of this cycle is either complete or missing. To get its trace, profile "
    "again and let the handler finish"
)


def tensorboard_trace_handler(  # noqa: PLR0913  # all but the first are options
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    *,
    capture: str = "full",
    index: bool = False,
    digest: bool = False,
    triton: bool = False,  # ignored
    sample: bool = True,
    on_progress: Callable[[str], None] | None = None,
    **kw: Any,
) -> Callable[[Any], None]:
    """Return an `on_trace_ready` that writes the trace like torch's own handler, and a compile summary next to it.

        from tb_torchcompile_plugin import tensorboard_trace_handler

        with torch.profiler.profile(on_trace_ready=tensorboard_trace_handler("runs")) as prof:
            ...

    dir_name, worker_name, use_gzip and other keywords (such as `use_python_export` of torch 2.13) have the same meaning
    as in `torch.profiler.tensorboard_trace_handler`, which exports the trace. Files:
    `{worker}.{time_ns}.pt.trace.json` (`.gz`) and `{worker}.{time_ns}.pt.compile.pb` with the same time. The default
    worker is `{hostname}_{pid}`.

    **Create it before the first call to the model**, so that it records every compilation; earlier ones are recovered
    from torch's memory, without phases. You can create it again in each cycle inside your own handler: a process has
    one recorder. Compilations after the last cycle are written when the interpreter exits.

    capture: "full" stores source lines, graphs and generated code. "summary" stores none of these, and no text that
    quotes the model's code: use it if logs are shared outside the company.

    index: read each trace into this user's cache directly after it is written, so that the tab opens quickly. One
    background process of lowest priority needs about 5 CPU seconds and 200 MB per gigabyte of trace. Only useful if
    TensorBoard runs as the same user on the same machine.

    digest: let the same process write a `{worker}.{time_ns}.pt.digest.pb` of at most 100 kB next to each trace: jobs of
    many ranks are shown from these, without the traces. `tb-torchcompile index` writes missing ones later.

    triton: ignored; an option of earlier versions.

    sample: while the profiler records, sample which line of your program each thread runs, so that Python time between
    operators has a line without `with_stack`. One sample every 20 to 45 ms should cost about 1 % of the time
    (see docs/benchmarks.md); `sample=False` disables it. Nothing is sampled with `with_stack=True`.
    The most recently created handler decides.

    While torch compiles, a small file next to these (`{worker}.{pid}.pt.compiling`) shows what, in which phase and
    since when, for All runs, Overview and `tb-torchcompile watch`. A thread that exists only meanwhile writes it.

    on_progress: a function that another thread calls at each change while torch compiles, with a line such as
    "compiling forward (train.py:58), 0/0 forward, inductor, 12 s"; `print`, for example. What it raises is ignored.

    CPU: inductor's C++ kernels have names only if `TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1` is set **before
    compiling** (it is part of the generated code). GPU: kernels are classified by the names that inductor generates;
    do not disable torch's default `TORCHINDUCTOR_UNIQUE_KERNEL_NAMES`. Bytes and operations of kernels are estimated
    from shapes (`record_shapes=True`), and exact if `TORCHINDUCTOR_BENCHMARK_KERNEL=1` is set before compiling
    (docs/guides/kernels.md lists its cost).

    torch 2.14 and later: call torch's `inductor_trace_handler` before this handler in the same `on_trace_ready` to have
    the stacks of inductor's kernels in the trace. The summary then belongs to that trace.

    Cost: compiling takes a few percent longer, because torch builds the texts of its compile log (as with TORCH_TRACE).
    In other steps, recording their duration takes at most 5 µs. Writing the summary takes milliseconds per cycle, and
    some tenths of a second for the first one.

    The returned function never raises, because an exception in `on_trace_ready` can crash the process. Failures are
    logged once by the logger `tb_torchcompile_plugin`. Raises TypeError and ValueError for invalid arguments.
    """
    output = Output(os.fspath(dir_name), worker_of(worker_name), checked_capture(capture))
    export = _Exporter(output.folder, output.worker, use_gzip, kw)
    recorder().start(capture)
    recorder().add_output(output, lasting=True)
    recorder().note_steps()
    recorder().sampler.enabled = sample
    recorder().status.on_progress = on_progress or recorder().status.on_progress

    def handler(prof: Any) -> None:
        if _is_taken(prof):
            recorder().warn(_TAKEN)
            return
        try:
            with recorder().reporting("the profiler's trace handler failed"):
                trace, stem, time_ns = export(prof)
                recorder().add_output(output, lasting=True)
                summary = recorder().write(output, time_ns, stem)
                if index or digest:
                    with recorder().reporting("the trace is not read in the background"):
                        background.read(trace, summary, index=index, digest=digest)
        except BaseException:  # Ctrl-C still ends the program
            recorder().warn(_CANCELLED)
            # A profiler whose `step` ends here would stop a cycle that it has not begun: torch would crash.
            with suppress(Exception):
                prof.current_action = type(prof.current_action).NONE
            raise

    return handler


def _is_taken(prof: Any) -> bool:
    """Return whether another profiler took the results of this one: torch would crash when it saves them."""
    with suppress(Exception):
        return not _writes_by_itself(prof) and prof.profiler.kineto_results.trace_start_ns() == 0
    return False


class _Exporter:
    def __init__(self, folder: str, worker: str | None, use_gzip: bool, kw: dict[str, Any]) -> None:
        """Raises TypeError for an option that torch does not have."""
        self._arguments = (folder, worker, use_gzip, kw)
        self._stock_handler()
        self._since_ns = time.time_ns()

    def _stock_handler(self) -> Callable[[Any], None]:
        """Return a new one each time: it keeps its default worker name, and the child of a fork needs its own."""
        import torch

        folder, worker, use_gzip, kw = self._arguments
        stock = torch.profiler.tensorboard_trace_handler
        handler: Callable[[Any], None] = stock(folder, worker, use_gzip, **kw)
        return handler

    def __call__(self, prof: Any) -> tuple[str, str | None, int]:
        """Export; return the trace file's path, and folder/worker and time_ns from it. Never raises an Exception."""
        redirected = _Redirected(prof)
        try:
            self._stock_handler()(redirected)
        except Exception as error:
            other = _written_since(self._since_ns, *self._arguments[:2])
            if not other or other == redirected.path:
                problem = _SAVED if is_trace_already_saved(str(error)) else "the trace cannot be written"
                recorder().report(problem, error, self._arguments[0])
            else:  # a profiler saves its trace once: another handler was first
                redirected.path = other
        # CUPTI's monitor compresses the trace whatever its name.
        path = redirected.path if os.path.exists(redirected.path) else f"{redirected.path}.gz"
        self._since_ns = time.time_ns()
        if match := _TRACE_FILE.fullmatch(redirected.path):
            return path, match["stem"], int(match["time_ns"])
        return path, None, time.time_ns()


class _Redirected:
    """A profiler that never shows TensorBoard half a trace.

    Kineto writes plain JSON to a temporary name of its own and renames it: that export is left alone, so that the
    file is the stock one to the byte (it contains its own name). The others write to the final name, and are
    redirected; but not a profiler that writes by itself after this has returned: nothing would rename its file.
    """

    def __init__(self, prof: Any) -> None:
        self._prof = prof
        self.path = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prof, name)

    def export_chrome_trace(self, path: str, *arguments: Any, **kw: Any) -> None:
        """Export as the profiler does, through a temporary name where it has none of its own."""
        self.path = path
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if _writes_by_itself(self._prof):
            self._prof.export_chrome_trace(path, *arguments, **kw)
            return
        if path.endswith(".gz") or any(arguments) or any(kw.values()):
            # The name must not look like a trace, and must still say whether torch is to compress.
            temporary = path.removesuffix(".gz") + ".tmp" + (".gz" if path.endswith(".gz") else "")
            with renamed(temporary, path):
                self._prof.export_chrome_trace(temporary, *arguments, **kw)
        else:
            self._prof.export_chrome_trace(path, *arguments, **kw)
        if path.endswith(".gz"):
            return
        # Kineto reports nothing when the disk is full. What it wrote until then is still readable.
        size = os.path.getsize(path)
        # bytes: the last bracket, and white space behind it
        if not read_range(path, max(0, size - 16), size).rstrip().endswith(b"}"):
            recorder().report("the trace is cut off", OSError("is the disk full?"), path)


def _writes_by_itself(prof: Any) -> bool:
    """Return whether this profiler may write the file after its export has returned.

    That is torch's CUPTI monitor, which torch 2.15 calls cuspy.
    """
    return any(getattr(prof, name, False) for name in ("_use_cupti_monitor", "_use_cuspy"))


def _written_since(time_ns: int, folder: str, worker: str | None) -> str:
    """Return the newest trace of this worker if it is newer than that, otherwise "".

    A profiler saves its trace once, and another handler of the same `on_trace_ready` may have been first.
    """
    stem = glob.escape(os.path.join(folder, worker or ""))
    paths = glob.glob(f"{stem}.*.pt.trace.json*" if worker else f"{stem}*_{os.getpid()}.*.pt.trace.json*")
    times = [(int(match["time_ns"]), path) for path in paths if (match := _TRACE_FILE.fullmatch(path))]
    newest, path = max(times, default=(0, ""))
    return path if newest > time_ns else ""
