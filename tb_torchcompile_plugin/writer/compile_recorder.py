"""Recording without a profiler."""

from __future__ import annotations

import os
import time
from types import TracebackType

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.writer.recorder import Output, checked_capture, recorder


class CompileRecorder:
    """Records compilations without any profiler, and writes a compile summary when the block ends.

        with CompileRecorder("runs/warmup"):
            model(batch)

    The file is `{worker_name}.{time_ns}.pt.compile.pb` in `dir_name`, as the handler writes it; `worker_name` defaults
    to `{hostname}_{pid}`. `capture` and `triton` mean what they mean there. Failures are logged, never raised; only an
    unknown `capture` is a ValueError.
    """

    def __init__(
        self,
        dir_name: str | os.PathLike[str],
        worker_name: str | None = None,
        capture: str = "full",
        *,
        triton: bool = False,
    ) -> None:
        self._output = Output(os.fspath(dir_name), worker_name, checked_capture(capture))
        self._is_mine, self._triton = False, triton

    def __enter__(self) -> CompileRecorder:
        recorder().listen(self._output.capture, forever=False)
        if self._triton:
            recorder().keep_triton()
        self._is_mine = recorder().add_output(self._output, lasting=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.write()
        recorder().release()
        if self._is_mine:
            recorder().drop_output(self._output)

    def write(self) -> str | None:
        """Writes what is known so far; returns the path of the file, or None where that failed (it is logged)."""
        return recorder().write(self._output, time.time_ns())

    def summary(self) -> CompileSummary:
        """What is known so far, as the message that the file holds."""
        return recorder().summary(self._output.capture)
