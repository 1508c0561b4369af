"""The drop-in replacement for torch.profiler.tensorboard_trace_handler."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tb_torchcompile_plugin.writer import background
from tb_torchcompile_plugin.writer.recorder import Output, checked_capture, recorder
from tb_torchcompile_plugin.writer.trace_export import Exporter

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
    """Return an `on_trace_ready` that writes the trace as torch's own handler does, and a compile summary next to it.

        from tb_torchcompile_plugin import tensorboard_trace_handler

        with torch.profiler.profile(on_trace_ready=tensorboard_trace_handler("runs")) as prof:
            ...

    dir_name, worker_name, use_gzip and further keywords (such as `use_python_export` of torch 2.13) mean what they
    mean to `torch.profiler.tensorboard_trace_handler`; that function does the export. Files:
    `{worker}.{time_ns}.pt.trace.json` (`.gz`) and `{worker}.{time_ns}.pt.compile.pb` with the same time. The default
    worker is `{hostname}_{pid}`.

    **Create it before the first call to the model.** It records from then on; compilations before it are recovered
    from what torch still keeps, without phases. It may be created again in each cycle inside your own handler: a
    process has one recorder. What is compiled after the last cycle is written when the interpreter exits.

    capture: "full" stores source lines, graphs and generated code. "summary" stores none of these, and no text
    that quotes the model's code: use it where logs are shared outside the company.

    index: read each trace into the reader's cache of this user right after it is written, so that the tab opens at
    once. One background process of lowest priority does it, at about 5 CPU seconds and 200 MB per gigabyte of trace;
    only useful where TensorBoard runs as the same user on the same machine.

    digest: have the same process write a `{worker}.{time_ns}.pt.digest.pb` of at most 100 kB next to each trace: a job
    of many ranks is shown from these, without the traces. `tb-torchcompile index` writes missing ones later.

    triton: keep what Triton made of inductor's kernels: TTIR, TTGIR and PTX of the configuration in use (not with
    `capture="summary"`, at most 32 MB), registers, spills and shared memory of each, and the times that autotuning
    measured, which torch reports once: create the handler before compiling.

    CPU: inductor's C++ kernels have names only if `TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1` was in the environment
    **before compiling** (it is part of the generated code). GPU: kernels are sorted by the names that inductor gives
    them; unique names are torch's default, do not switch `TORCHINDUCTOR_UNIQUE_KERNEL_NAMES` off.
    Bytes and operations of kernels are estimates from shapes (`record_shapes=True`), and exact with
    `TORCHINDUCTOR_BENCHMARK_KERNEL=1` set before compiling. That costs about a second of compile time for a model of
    four transformer blocks, a compile cache of its own, and nothing at run time.

    torch 2.14 and later: with TORCH_COMPILE_DEBUG_EXTEND=1 in the environment the stacks of inductor's kernels are
    written into the trace, as torch's `inductor_trace_handler` does; where that one is called before this handler in
    the same `on_trace_ready`, the summary belongs to its trace.

    Cost: compiling takes a few percent longer, because torch builds the texts of its compile log (as with TORCH_TRACE);
    in other steps at most 5 µs go into noting how long they take, profiled and unprofiled. Writing the summary takes
    milliseconds per cycle, the first one some tenths of a second.

    The returned function never raises: an exception in `on_trace_ready` can crash the process. Failures are logged once
    by the logger `tb_torchcompile_plugin`. Raises TypeError and ValueError for arguments that do not exist.
    """
    folder = os.fspath(dir_name)
    checked_capture(capture)
    export = Exporter(folder, worker_name, use_gzip, kw)
    output = Output(folder, worker_name, capture)
    recorder().start(capture, forever=True)
    recorder().add_output(output, lasting=True)
    recorder().note_steps()
    if triton:
        recorder().keep_triton()

    def handler(prof: Any) -> None:
        problem = "the profiler's trace handler failed"
        try:
            trace, stem, time_ns = export(prof)
            recorder().add_output(output, lasting=True)
            summary = recorder().write(output, time_ns, stem)
            problem = (
                "the trace is not read in the background"  # it is there, whether or not a process can start
            )
            if index or digest:
                background.read(trace, summary, index=index, digest=digest)
        except Exception as error:
            recorder().report(problem, error)
        except BaseException:  # Ctrl-C still ends the program
            recorder().warn(_CANCELLED)
            raise

    return handler
