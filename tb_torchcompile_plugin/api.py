"""The analyses by name: what the TensorBoard plugin and the command line both call.

A `Session` knows a logdir, reads what it is asked for, and remembers it until the file changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from typing import TypeVar

from tb_torchcompile_plugin import report as answer
from tb_torchcompile_plugin.compile_answers import CompileAnswers
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.logdir import File, Run, Span, Worker, discover
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_compile_data
from tb_torchcompile_plugin.reader.kineto import Progress, Trace
from tb_torchcompile_plugin.reader.store import open_trace
from tb_torchcompile_plugin.reader.workers import join_logs

Key = TypeVar("Key")
Value = TypeVar("Value")

_POOL = 2  # traces read at the same time; more would only fight for the same cores
_KEPT = 32  # answers remembered


class NoCompileData(NotFound):
    """The worker has neither a summary nor a log."""

    code = "no_compile_data"


@dataclass
class _Reading:
    """A trace on its way."""

    progress: Progress
    future: Future[answer.Span] | None = None


@dataclass
class _Found:
    runs: list[Run] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


class Session(CompileAnswers):
    """The answers for one logdir (or several, each under a name of its own). Safe to call from many threads."""

    def __init__(self, logdirs: Sequence[tuple[str, str]]) -> None:
        """logdirs: (run prefix, path) pairs; the prefix is "" for a plain `--logdir`."""
        self._logdirs = list(logdirs)
        self._lock = threading.Lock()
        self._found: _Found | None = None
        self._pool = ThreadPoolExecutor(_POOL, thread_name_prefix="tb-torchcompile-reader")
        self._readings: dict[tuple[File, tuple[File, ...]], _Reading] = {}
        self._compile_data: dict[tuple[File, ...], tuple[CompileData | None, list[Notice]]] = {}
        self._joined: dict[tuple[File, ...], list[Worker]] = {}

    def close(self) -> None:
        """Drop what is queued; a file that is being read is read to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def runs(self) -> answer.Runs:
        """What the logdir holds now. Lists folders and looks at first bytes; parses nothing."""
        found = self._discover()
        return answer.Runs(
            plugin_version=plugin_version(),
            runs=[answer.run_ref(run.run, self._workers(run)) for run in found.runs],
            warnings=found.notices,
        )

    def compile(self, run: str, worker: str) -> answer.Compile:
        """The compile side of a worker. Raises NotFound, and NoCompileData where none could be read."""
        return answer.compile_report(self.compile_data(run, worker))

    def compile_data(self, run: str, worker: str) -> CompileData:
        data, notices = self._compile_data_of(self._worker(run, worker))
        if data is None:
            raise _no_compile_data(worker, notices)
        return data

    def span(self, run: str, worker: str, span: str) -> answer.Span:
        """The run side of a span, joined to the compile side. Reads the trace if need be; raises UserError."""
        read: answer.Span = self._reading(run, worker, span).result()
        return read

    def poll_span(self, run: str, worker: str, span: str) -> answer.Span | Progress:
        """Like `span`, but does not wait: while the trace is being read, answers how far that is."""
        future = self._reading(run, worker, span)
        if not future.done():
            with self._lock:
                return next(
                    reading.progress for reading in self._readings.values() if reading.future is future
                )
        read: answer.Span = future.result()
        return read

    def report(self, progress: Callable[[Progress], None] | None = None) -> answer.Report:
        """Everything, as `tb-torchcompile report --json` prints it. What cannot be read becomes a warning."""
        found = self._discover()
        runs = [
            answer.Run(run.run, [self._worker_report(worker, progress) for worker in self._workers(run)])
            for run in found.runs
        ]
        return answer.Report(runs=runs, warnings=found.notices)

    def _discover(self) -> _Found:
        found = _Found()
        for prefix, path in self._logdirs:
            runs, notices = discover(path, prefix)
            found.runs += runs
            found.notices += notices
        with self._lock:
            self._found = found
        return found

    def _workers(self, run: Run) -> list[Worker]:
        """Joined once for a set of files, again when one of them changes."""
        spans = [span.file for worker in run.workers.values() for span in worker.spans]
        files = (*spans, *(file for worker in run.workers.values() for file in worker.summaries), *run.logs)
        if files not in self._joined:
            joined = join_logs(run)
            with self._lock:
                _remember(self._joined, files, joined)
        return self._joined[files]

    def _worker(self, run: str, worker: str) -> Worker:
        """By id; looks at the logdir again when an id is unknown, since files come and go."""
        for found in (self._found, self._discover()):
            for known in found.runs if found else ():
                if known.run == run:
                    for candidate in self._workers(known):
                        if candidate.worker == worker:
                            return candidate
        raise NotFound(
            f"there is no worker {worker!r} in run {run!r}",
            next_step="Reload: the files may have been removed",
        )

    def _span(self, worker: Worker, span: str) -> Span:
        for candidate in worker.spans:
            if candidate.span == span:
                return candidate
        raise NotFound(
            f"worker {worker.worker!r} has no span {span!r}",
            next_step="Reload: the file may have been removed",
        )

    def _compile_data_of(self, worker: Worker) -> tuple[CompileData | None, list[Notice]]:
        files = (*worker.summaries, *([worker.log] if worker.log else []))
        if files not in self._compile_data:
            found = read_compile_data(worker)
            with self._lock:
                _remember(self._compile_data, files, found)
        return self._compile_data[files]

    def _reading(self, run: str, worker_name: str, span_name: str) -> Future[answer.Span]:
        worker = self._worker(run, worker_name)
        span = self._span(worker, span_name)
        key = (span.file, (*worker.summaries, *([worker.log] if worker.log else [])))
        with self._lock:
            reading = self._readings.get(key)
            if reading is None or reading.future is None:
                reading = _Reading(Progress(span.file.name, 0, span.file.size, 0, None))
                _remember(self._readings, key, reading)
                reading.future = self._pool.submit(self._read_span, worker, span, reading)
            return reading.future

    def _read_span(self, worker: Worker, span: Span, reading: _Reading) -> answer.Span:
        def advance(progress: Progress) -> None:
            reading.progress = progress

        data, _ = self._compile_data_of(worker)
        return answer.span_report(span, _read(span, advance), data)

    def _worker_report(self, worker: Worker, progress: Callable[[Progress], None] | None) -> answer.Worker:
        data, notices = self._compile_data_of(worker)
        spans: list[answer.Span | answer.UnreadSpan] = []
        for span in worker.spans:
            try:
                spans.append(answer.span_report(span, _read(span, progress), data))
            except UserError as error:
                spans.append(answer.unread_span(span, error.notice))
        return answer.Worker(
            worker=worker.worker,
            rank=worker.rank,
            spans=spans,
            compile=answer.compile_report(data) if data else None,
            warnings=[] if data else notices,
        )


def _read(span: Span, progress: Callable[[Progress], None] | None) -> Trace:
    return open_trace(span.file.path, progress=progress)


def plugin_version() -> str | None:
    try:
        return metadata.version("tb-torchcompile-plugin")
    except metadata.PackageNotFoundError:
        return None


def _no_compile_data(worker: str, notices: list[Notice]) -> NoCompileData:
    if notices:
        return NoCompileData(notices[0].problem, file=notices[0].file, next_step=notices[0].next_step)
    return NoCompileData(
        f"worker {worker!r} has no compile data",
        next_step="Use tb_torchcompile_plugin.tensorboard_trace_handler, or set TORCH_TRACE to the logdir",
    )


def _remember(cache: dict[Key, Value], key: Key, value: Value) -> None:
    """Keep the newest answers only."""
    cache[key] = value
    while len(cache) > _KEPT:
        del cache[next(iter(cache))]
