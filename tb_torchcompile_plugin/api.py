"""The analyses by name: what the TensorBoard plugin and the command line both call.

A `Session` knows a logdir, reads what it is asked for, and remembers it until the file changes.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata

import msgspec

from tb_torchcompile_plugin import report as answer
from tb_torchcompile_plugin.analysis.findings import Finding, ranked, span_findings
from tb_torchcompile_plugin.analysis.kernel_details import KernelDetails, kernel_details
from tb_torchcompile_plugin.analysis.memory import Memory, memory
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.rank_differences import Rank, RankDifferences, rank_differences
from tb_torchcompile_plugin.catalog import Catalog
from tb_torchcompile_plugin.compare_answers import CompareAnswers
from tb_torchcompile_plugin.compile_answers import CompileAnswers
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.findings_report import RunFinding, located, worker_findings
from tb_torchcompile_plugin.logdir import File, Span, Worker
from tb_torchcompile_plugin.newest import Newest
from tb_torchcompile_plugin.reader import copies
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_compile_data
from tb_torchcompile_plugin.reader.kineto import Progress as BytesRead
from tb_torchcompile_plugin.reader.kineto import Trace
from tb_torchcompile_plugin.reader.payloads import read_payload
from tb_torchcompile_plugin.reader.store import open_trace
from tb_torchcompile_plugin.readings import Progress, Reading, Readings
from tb_torchcompile_plugin.span_answers import Opened
from tb_torchcompile_plugin.timeline_answers import TimelineAnswers

Advance = Callable[[BytesRead], None]
_Ids = tuple[str, str, str]  # run, worker, span
_Found = tuple[CompileData | None, list[Notice]]

_KEPT = 32  # workers whose compile data is remembered
_log = logging.getLogger(__name__)


class NoCompileData(NotFound):
    """The worker has neither a summary nor a log."""

    code = "no_compile_data"


class Session(CompareAnswers, CompileAnswers, TimelineAnswers):
    """The answers for one logdir (or several, each under a name of its own). Safe to call from many threads."""

    def __init__(self, logdirs: Sequence[tuple[str, str]]) -> None:
        """logdirs: (run prefix, path) pairs; the prefix is "" for a plain `--logdir`."""
        self._catalog = Catalog(logdirs)
        self._readings: Readings[_Ids, Opened] = Readings()
        weakref.finalize(self, self._readings.close)  # also when the process ends
        self._compile_data: Newest[tuple[str, str], _Found] = Newest(_KEPT)

    def close(self) -> None:
        """Stop what is being read and drop what is queued."""
        self._readings.close()

    def runs(self) -> answer.Runs:
        """What the logdir holds now. Lists folders and looks at first bytes; parses nothing."""
        found = self._catalog.look()
        return answer.Runs(
            plugin_version=plugin_version(),
            runs=[answer.run_ref(run.run, workers) for run, workers in found.runs],
            warnings=found.notices,
        )

    def compile(self, run: str, worker: str) -> answer.Compile:
        """The compile side of a worker. Raises NotFound, and NoCompileData where none could be read."""
        return answer.compile_report(self.compile_data(run, worker))

    def compile_data(self, run: str, worker: str) -> CompileData:
        data, notices = self._compile_data_of(self._catalog.worker(run, worker))
        if data is None:
            raise _no_compile_data(worker, notices)
        return data

    def rank_differences(self, run: str) -> RankDifferences:
        """Which ranks of a run were compiled otherwise than the rest. Raises NotFound."""
        return rank_differences(list(self._ranks(self._catalog.workers(run))))

    def opened(self, run: str, worker: str, span: str) -> Opened:
        """A span with its trace and compile data. Reads the trace if need be; raises UserError."""
        ids = run, worker, span
        return self._answer(ids, self._reading(ids, to_the_end=True))

    def span(self, run: str, worker: str, span: str) -> answer.Span:
        """The run side of a span, joined to the compile side. Waits; raises UserError."""
        told = self.opened(run, worker, span).answer("span")
        assert isinstance(told, answer.Span)
        return told

    def poll(self, question: str, run: str, worker: str, span: str) -> msgspec.Struct | Progress:
        """The answer to one of `span_answers.QUESTIONS`; while the trace is being read, how far that is.

        A reading that is not polled any more stops after a while (see `readings`).
        """
        reading = self._reading((run, worker, span))
        opened = self._poll((run, worker, span), reading)
        if isinstance(opened, Progress):
            return opened
        return reading.progress if opened.is_making(question) else opened.answer(question)

    def poll_opened(self, run: str, worker: str, span: str) -> Opened | Progress:
        """Like `opened`, but does not wait."""
        ids = run, worker, span
        return self._poll(ids, self._reading(ids))

    def trace_of(self, run: str, worker: str, span: str) -> File:
        """The trace file of a span. Raises NotFound."""
        return self._catalog.span(run, worker, span)[1].file

    def poll_kernel(
        self, run: str, worker: str, span: str, *, device: str, name: str, compile_id: str, graph_key: str
    ) -> KernelDetails | Progress:
        """One kernel of a span with all its launches. Does not wait; raises NotFound where there is no such kernel."""
        opened = self.poll_opened(run, worker, span)
        if isinstance(opened, Progress):
            return opened
        return kernel_details(opened.profile, device, name, compile_id, graph_key)

    def poll_memory(self, run: str, worker: str, span: str, start: int, end: int) -> Memory | Progress:
        """The memory of a span in [start, end) ns from its first event. Does not wait."""
        opened = self.poll_opened(run, worker, span)
        return opened if isinstance(opened, Progress) else memory(opened.profile, start, end)

    def cancel_span(self, run: str, worker: str, span: str) -> None:
        """Whoever polled this span does not want it any more. Does nothing where it is not being read."""
        self._catalog.span(run, worker, span)  # raises NotFound
        self._readings.cancel((run, worker, span))

    def report(self, progress: Callable[[BytesRead], None] | None = None) -> answer.Report:
        """Everything, as `tb-torchcompile report --json` prints it. What cannot be read becomes a warning."""
        found = self._catalog.look()
        findings: list[RunFinding] = []
        runs = [
            answer.Run(
                run.run,
                [self._worker_report(run.run, worker, progress, findings) for worker in workers],
                rank_differences(list(self._ranks(workers))),
            )
            for run, workers in found.runs
        ]
        return answer.Report(runs=runs, findings=ranked(findings), warnings=found.notices)

    def _compile_data_of(self, worker: Worker) -> _Found:
        files = _compile_files(worker)
        folder = os.path.dirname(files[0].path) if files else ""
        return self._compile_data.get(
            (folder, worker.worker), files, partial(read_compile_data, worker), _all_was_read
        )

    def _ranks(self, workers: Sequence[Worker]) -> Iterator[Rank]:
        """Those with compile data, each once: of two workers with one rank the later name counts."""
        for worker in {worker.rank: worker for worker in workers if worker.rank is not None}.values():
            data, _ = self._compile_data_of(worker)
            if data is not None and worker.rank is not None:
                yield Rank(worker.rank, data.summary, partial(read_payload, data))

    def _reading(self, ids: _Ids, *, to_the_end: bool = False) -> Reading[Opened]:
        worker, span = self._catalog.span(*ids)
        made_of = (span.file, _compile_files(worker))

        def start() -> Reading[Opened]:
            progress = Progress(span.file.name, 0, span.file.size, 0, None)
            return Reading(progress, lambda reading: self._read_span(worker, span, reading))

        return self._readings.ask(ids, made_of, start, to_the_end=to_the_end)

    def _poll(self, ids: _Ids, reading: Reading[Opened]) -> Opened | Progress:
        return self._answer(ids, reading) if reading.future.done() else self._readings.progress(reading)

    def _answer(self, ids: _Ids, reading: Reading[Opened]) -> Opened:
        try:
            return reading.future.result()
        except Exception:  # told once: the cause may be gone when somebody asks again
            self._readings.forget(ids, reading)
            raise

    def _read_span(self, worker: Worker, span: Span, reading: Reading[Opened]) -> Opened:
        data, _ = self._compile_data_of(worker)
        trace = _read(span.file, reading.advance, partial(reading.advance, stage="fetching"), reading.stop)
        opened = Opened(span, Profile(replace(trace, notices=_will_retry(trace.notices)), data))
        opened.begin("span")  # nobody should wait for it in a request, nor anything else for it
        return opened

    def _worker_report(
        self,
        run: str,
        worker: Worker,
        progress: Callable[[BytesRead], None] | None,
        findings: list[RunFinding],
    ) -> answer.Worker:
        """Adds what it finds to `findings`."""
        data, compiled, notices = self._compile_side(worker)
        if data:
            findings += located(worker_findings(data.summary).findings, run, worker.worker, None)
        spans = []
        for span in worker.spans:
            told, found = _span_or_why_not(span, data, progress)
            spans.append(told)
            findings += located(found, run, worker.worker, span.span)
        return answer.Worker(
            worker=worker.worker, rank=worker.rank, spans=spans, compile=compiled, warnings=notices
        )

    def _compile_side(self, worker: Worker) -> tuple[CompileData | None, answer.Compile | None, list[Notice]]:
        """The compile data of a worker, what there is to say of it, and where there is nothing, why not."""
        try:
            data, notices = self._compile_data_of(worker)
            return (data, answer.compile_report(data), []) if data else (None, None, notices)
        except Exception as error:
            return None, None, [_unexpected(_compile_files(worker)[0], error)]


def _span_or_why_not(
    span: Span, data: CompileData | None, progress: Advance | None
) -> tuple[answer.SpanReport | answer.UnreadSpan, list[Finding]]:
    try:
        profile = Profile(_read(span.file, progress, progress), data)
        return answer.full_span_report(span, profile), span_findings(profile)
    except UserError as error:
        return answer.unread_span(span, error.notice), []
    except Exception as error:
        return answer.unread_span(span, _unexpected(span.file, error)), []


def _unexpected(file: File, error: Exception) -> Notice:
    """A mistake of ours, which costs one file and not all of them."""
    _log.debug("%s could not be read", file.name, exc_info=error)
    return Notice(
        file.path,
        f"cannot be read ({type(error).__name__})",
        "Everything else in the logdir is shown",
        "This is a defect of tb-torchcompile-plugin: please report it, with the file if you can",
    )


def _all_was_read(found: _Found) -> bool:
    """Else a file was not read: the next time it may be."""
    return all(notice.kept for notice in found[1])


def _read(
    file: File,
    progress: Advance | None,
    fetching: Advance | None,
    cancelled: Callable[[], bool] | None = None,
) -> Trace:
    """The trace in a file, which its progress and notices name, however far away it is."""

    def advance(moved: BytesRead) -> None:
        if progress is not None:
            progress(replace(moved, file=file.path))

    with copies.local(file, fetching, cancelled) as path:
        trace = open_trace(path, progress=advance, cancelled=cancelled)
    return replace(trace, notices=copies.named(trace.notices, path, file))


def _will_retry(notices: list[Notice]) -> list[Notice]:
    """In the tab a trace without its end is no loss yet: it may still be written, and is read again then."""
    step = "It is read again when it changes: reload. If nobody writes it any more, copy or record it again"
    return [
        replace(notice, problem=f"incomplete: {notice.problem}", next_step=step)
        if "is cut off" in notice.problem
        else notice
        for notice in notices
    ]


def _compile_files(worker: Worker) -> tuple[File, ...]:
    return (*worker.summaries, *([worker.log] if worker.log else []))


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
