"""Record what is compiled while a block of code runs: as numbers for tests, or into a file without a profiler."""

import logging
import os
import time
from collections.abc import Callable, Iterator

from tb_torchcompile_plugin.compile_log import counts
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import TorchCompilePluginError
from tb_torchcompile_plugin.writer.recorder import TRACE_LOGGER, Output, checked_capture, recorder, worker_of

_CAPTURE = "full"  # without source, reasons would be cut
_MAX_LINES = 20  # of a failed assertion, about one screen
_TRACE = logging.getLogger(TRACE_LOGGER)  # pytest would show each of its records next to a failure


class UnknownCount(TorchCompilePluginError):
    """torch has not recorded this count: that is not 0."""


class Count(int):
    """A number; iterating it gives what was counted, each with its reason and place."""

    name: counts.CountName
    rows: tuple[counts.CountedRow, ...]

    def __new__(cls, name: counts.CountName, rows: tuple[counts.CountedRow, ...]) -> "Count":
        """Count the rows, each as often as it occurred."""
        count = super().__new__(cls, sum(row.number for row in rows))
        count.name, count.rows = name, rows
        return count

    def __iter__(self) -> Iterator[counts.CountedRow]:
        return iter(self.rows)

    __str__ = int.__repr__

    def __repr__(self) -> str:
        return ": ".join(filter(None, (self.in_words, "; ".join(self.lines))))

    @property
    def in_words(self) -> str:
        """Return such as "2 graph breaks"."""
        kind = counts.COUNTS[self.name]
        return f"{int(self):,} {kind.one if self == 1 else kind.many}"

    @property
    def lines(self) -> list[str]:
        """Return such as "/home/me/model.py:12: Call to print", or "…: forward: 0/0: s == 0.0", for each row."""
        lines = []
        for row in self.rows:
            where = row.file if row.line is None else f"{row.file}:{row.line}"
            what = "" if row.what == counts.COUNTS[self.name].one else row.what
            number = f"{row.number:,} of them" if row.number > 1 else ""
            lines.append(": ".join(filter(None, (where, what, row.why, number))))
        return lines


class _Counted:
    """An attribute of a block that counts. torch may not have recorded what it counts: UnknownCount."""

    def __init__(self, name: counts.CountName) -> None:
        self._name = name

    def __get__(self, block: "RecordedBlock", owner: object) -> Count:
        __tracebackhide__ = True  # pytest shows only the test of a failure
        if (rows := counts.counted_rows(block.summary(), self._name)) is None:
            kind = counts.COUNTS[self._name]
            raise UnknownCount(f"the number of {kind.many} is unknown: {kind.why_not}")
        return Count(self._name, tuple(rows))


class RecordedBlock:
    """What was compiled inside the block; read inside of it: until now."""

    graph_breaks = _Counted("breaks")  # places that broke a graph, each once
    skipped_frames = _Counted("skipped")  # functions that torch gave up, so that they run eager
    recompiles = _Counted("recompiles")  # functions that were compiled again, because a guard failed
    graphs = _Counted("graphs")  # that are not empty
    guards = _Counted("guards")  # of all graphs
    kernels = _Counted("kernels")  # that inductor generated
    cache_misses = _Counted("cache_misses")  # of torch's compile caches

    def __init__(self) -> None:
        self._before = self._inside = CompileSummary()
        self._open = False
        self._pytest_handlers: list[logging.Handler] = []

    def __enter__(self) -> "RecordedBlock":
        self._pytest_handlers = [
            handler for handler in _TRACE.handlers if type(handler).__module__.startswith("_pytest.")
        ]
        for handler in self._pytest_handlers:
            _TRACE.removeHandler(handler)
        recorder().start(_CAPTURE)
        self._before, self._open = recorder().summary(_CAPTURE), True
        return self

    def __exit__(self, *error: object) -> None:
        self._inside, self._open = self.summary(), False
        recorder().release()
        for handler in self._pytest_handlers:
            _TRACE.addHandler(handler)

    def summary(self) -> CompileSummary:
        """Return everything that torch recorded, as the message of a compile summary; see summary.proto."""
        return (
            counts.summary_since(recorder().summary(_CAPTURE), self._before) if self._open else self._inside
        )


def explained(op: str, left: object, right: object) -> list[str] | None:
    """Return the lines for a comparison that failed; None where neither side is a Count."""
    count = left if isinstance(left, Count) else right
    if not isinstance(count, Count):
        return None
    words = (side.in_words if isinstance(side, Count) else repr(side) for side in (left, right))
    more = len(count.lines) - _MAX_LINES
    return [f" {op} ".join(words), *count.lines[:_MAX_LINES], *([f"and {more} more"] if more > 0 else [])]


class CompileRecorder:
    """Records compilations without any profiler, and writes a compile summary when the block ends.

        with CompileRecorder("runs/warmup"):
            model(batch)

    The file is `{worker_name}.{time_ns}.pt.compile.pb` in `dir_name`, as the handler writes it; `worker_name` defaults
    to `{hostname}_{pid}`. `capture`, `triton` and `on_progress` mean the same as there. Failures are logged, never
    raised; only an unknown `capture` is a ValueError.
    """

    def __init__(
        self,
        dir_name: str | os.PathLike[str],
        worker_name: str | None = None,
        capture: str = "full",
        *,
        triton: bool = False,  # ignored
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self._output = Output(os.fspath(dir_name), worker_of(worker_name), checked_capture(capture))
        self._is_new = False
        self._on_progress = on_progress

    def __enter__(self) -> "CompileRecorder":
        self._earlier_callback = recorder().status.on_progress
        recorder().status.on_progress = self._on_progress or self._earlier_callback
        recorder().start(self._output.capture)
        self._is_new = recorder().add_output(self._output, lasting=False)
        return self

    def __exit__(self, *error: object) -> None:
        self.write()
        recorder().release()
        if self._is_new:
            recorder().drop_output(self._output)
        if self._on_progress:
            recorder().status.on_progress = self._earlier_callback

    def write(self) -> str | None:
        """Write what is known so far; return the path of the file, or None where that failed (it is logged)."""
        return recorder().write(self._output, time.time_ns())

    def summary(self) -> CompileSummary:
        """Return what is known so far, as the message in the file."""
        return recorder().summary(self._output.capture)
