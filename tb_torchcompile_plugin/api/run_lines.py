"""The line of each run: as it was when it was read, else what its summary tells, which is read in the background.

No trace is opened for it, and no log: one look at a logdir of thousands of runs takes part of a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.runs.remembered import COMPILE, JOB, SPAN, JobLine, remember_compiled
from tb_torchcompile_plugin.analysis.runs.rows import CompileLine, SpanLine, compile_line
from tb_torchcompile_plugin.analysis.runs.runs import KnownRun, RunPlace
from tb_torchcompile_plugin.job.members import members
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles, span_time_ns
from tb_torchcompile_plugin.reader.cache import rows
from tb_torchcompile_plugin.reader.compile_data import read_compile_data

_log = logging.getLogger(__name__)
Line = TypeVar("Line", bound=msgspec.Struct)


class _LastLine(msgspec.Struct, frozen=True):
    """Of what is remembered of a span the part that a table needs."""

    line: SpanLine


class RunLines:
    """Safe to call from many threads."""

    def __init__(self) -> None:
        self._read: dict[str, CompileLine | None] = {}  # by what it was made of; None while it is not read
        self._waiting: list[tuple[str, WorkerFiles]] = []
        self._lock = threading.Lock()
        self._working = False

    @property
    def reading(self) -> int:
        """How many summaries are still to be read."""
        return len(self._waiting) + self._working

    def close(self) -> None:
        """Read no more."""
        with self._lock:
            self._waiting.clear()

    def of(self, run: str, workers: Sequence[WorkerFiles]) -> KnownRun:
        """As much as is known of a run without opening a trace of it."""
        worker = next((one for one in workers if one.spans), workers[0])
        span = max(worker.spans, key=_time_ns, default=None)
        ranks = members(workers)
        place = RunPlace(
            run,
            worker.worker,
            span.span if span else None,
            len(ranks) or 1,
            _time_ns(span) / 1e9 if span else None,
        )
        last = _kept(SPAN, files_of(worker, span), _LastLine) if span else None
        by_name = {one.worker: one for one in workers}
        spans = [(by_name[one.worker], one.span) for one in ranks]
        together = [file for one, name in spans for file in files_of(one, _span(one, name))]
        return KnownRun(
            place,
            last.line if last else self._compiled(worker),
            _kept(JOB, together, JobLine) if last and ranks else None,
        )

    def _compiled(self, worker: WorkerFiles) -> CompileLine | None:
        """What its summaries tell; None while they are still to be read. What a log tells, if it was read before."""
        if not worker.summaries:
            return _kept(COMPILE, worker.compile_files, CompileLine)
        key = rows.key_of(COMPILE, worker.summaries)
        if key not in self._read:
            line = rows.kept(key, CompileLine)
            with self._lock:
                if key not in self._read:  # nobody else asked meanwhile
                    self._read[key] = line
                    if line is None:
                        self._waiting.append((key, worker))
                        self._begin()
        return self._read[key]

    def _begin(self) -> None:
        if not self._working:
            self._working = True
            threading.Thread(target=self._work, name="tb-torchcompile-summaries", daemon=True).start()

    def _work(self) -> None:
        while (one := self._next()) is not None:
            key, worker = one
            try:
                data, _ = read_compile_data(replace(worker, log=None))
                if data is not None:
                    self._read[key] = line = compile_line(data)
                    remember_compiled(worker.summaries, line)
            except Exception as error:  # whoever opens the run is told
                _log.debug("a summary of %s could not be read", worker.worker, exc_info=error)

    def _next(self) -> tuple[str, WorkerFiles] | None:
        with self._lock:
            self._working = bool(self._waiting)
            return self._waiting.pop(0) if self._waiting else None


def files_of(worker: WorkerFiles, span: SpanFile) -> tuple[File, ...]:
    """All that a span is read from: its trace, and the compile data of its worker."""
    return (span.file, *worker.compile_files)


def _span(worker: WorkerFiles, name: str) -> SpanFile:
    return next(span for span in worker.spans if span.span == name)


def _time_ns(span: SpanFile) -> int:
    """When it was recorded: copying a logdir changes the files' times."""
    return span_time_ns(span.span) or span.file.mtime_ns


def _kept(kind: str, files: Sequence[File], line: type[Line]) -> Line | None:
    return rows.kept(rows.key_of(kind, files), line)
