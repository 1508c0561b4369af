"""The line of each run: as it was when it was read, else what its summary tells, which is read in the background.
A report, which has just read all of it, says so itself.

No trace is opened for it, and no log: one look at a logdir of thousands of runs takes part of a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.compare.all_runs import (
    BEING_READ,
    COMPILE,
    JOB,
    LOG_UNREAD,
    NO_COMPILE_DATA,
    SPAN,
    CompileLine,
    JobLine,
    KnownRun,
    RunPlace,
    SpanLine,
    compile_line,
    remember_compiled,
)
from tb_torchcompile_plugin.job.job import members
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile, WorkerFiles, span_time_ns
from tb_torchcompile_plugin.reader.cache import rows
from tb_torchcompile_plugin.reader.compile_data import makers, read_compile_data

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
        self._unread: set[str] = set()  # what waits, and what is being read
        self._lock = threading.Lock()
        self._working = False

    @property
    def reading(self) -> int:
        """How many summaries are still to be read."""
        return len(self._unread)

    def close(self) -> None:
        """Read no more."""
        with self._lock:
            self._unread.difference_update(key for key, _ in self._waiting)
            self._waiting.clear()

    def of(self, run: str, workers: Sequence[WorkerFiles]) -> KnownRun:
        """As much as is known of a run without opening a trace of it."""
        place, worker, span = place_of(run, workers)
        ranks = members(workers)
        untraced = [one for one in workers if not one.spans]
        last = _kept(SPAN, files_of(worker, span, untraced), _LastLine) if span else None
        compiled, why_not = (None, "") if last else self._compiled(worker)
        by_name = {one.worker: one for one in workers}
        spans = [(by_name[one.worker], one.span) for one in ranks]
        together = [file for one, name in spans for file in files_of(one, _span(one, name), untraced)]
        return KnownRun(
            place,
            last.line if last else compiled,
            _kept(JOB, together, JobLine) if last and ranks else None,
            why_not,
        )

    def _compiled(self, worker: WorkerFiles) -> tuple[CompileLine | None, str]:
        """What its summaries tell, or what a log tells, if it was read before; else None, and why."""
        if worker.summaries:
            line = self._summarized(worker)
            reading = rows.key_of(COMPILE, worker.summaries) in self._unread
            return line, "" if line else BEING_READ if reading else NO_COMPILE_DATA
        line = _kept(COMPILE, worker.compile_files, CompileLine)
        return line, "" if line else LOG_UNREAD if worker.compile_files else NO_COMPILE_DATA

    def _summarized(self, worker: WorkerFiles) -> CompileLine | None:
        """None while they are still to be read, and where they cannot be."""
        key = rows.key_of(COMPILE, worker.summaries)
        if key not in self._read:
            line = rows.kept(key, CompileLine)
            with self._lock:
                if key not in self._read:  # nobody else asked meanwhile
                    self._read[key] = line
                    if line is None:
                        self._waiting.append((key, worker))
                        self._unread.add(key)
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
            self._unread.discard(key)

    def _next(self) -> tuple[str, WorkerFiles] | None:
        with self._lock:
            self._working = bool(self._waiting)
            return self._waiting.pop(0) if self._waiting else None


def place_of(run: str, workers: Sequence[WorkerFiles]) -> tuple[RunPlace, WorkerFiles, SpanFile | None]:
    """The span that stands for a run, None where it has none, with its worker."""
    worker = next((one for one in workers if one.spans), workers[0])
    span = max(worker.spans, key=_time_ns, default=None)
    ranks = len(members(workers)) or 1
    recorded_s = _time_ns(span) / 1e9 if span else None
    return RunPlace(run, worker.worker, span.span if span else None, ranks, recorded_s), worker, span


def files_of(worker: WorkerFiles, span: SpanFile, workers: Sequence[WorkerFiles]) -> tuple[File, ...]:
    """All that a span is read from: its trace, the compile data of its worker, and of those of `workers` that may have
    compiled what it runs."""
    theirs = (file for one in makers(worker, workers) for file in one.compile_files)
    return (span.file, *worker.compile_files, *theirs)


def _span(worker: WorkerFiles, name: str) -> SpanFile:
    return next(span for span in worker.spans if span.span == name)


def _time_ns(span: SpanFile) -> int:
    """When it was recorded: copying a logdir changes the files' times."""
    return span_time_ns(span.span) or span.file.mtime_ns


def _kept(kind: str, files: Sequence[File], line: type[Line]) -> Line | None:
    return rows.kept(rows.key_of(kind, files), line)
