"""Find rows that contain a word, and what a report begins with."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers.bounded import AnswerLimits, Bounded, Commands, bounded
from tb_torchcompile_plugin.api.answers.sections import Table, address, tables
from tb_torchcompile_plugin.api.answers.show import Shown, shown
from tb_torchcompile_plugin.api.catalog import Listing
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import WrongArgument
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Advance

_AROUND = 60  # characters of a text, on each side of the word


class Match(msgspec.Struct, frozen=True):
    """A row, and the text around the word."""

    id: str
    text: str


class Matches(msgspec.Struct, frozen=True):
    """The first rows of all tables that contain a word."""

    total: int  # of all tables
    matches: list[Match]


def search(report: reports.Report, word: str) -> Matches:
    """Find the rows that contain a word, ignoring case, findings first. Raises WrongArgument without a word."""
    if not word.strip():
        raise WrongArgument(
            "the search text is empty", next_step="Search for a kernel, an operator, a file or a word"
        )
    matches = [match for table in tables(report) for match in _matches(table, word.lower())]
    return Matches(len(matches), matches)


def _matches(table: Table, word: str) -> Iterator[Match]:
    for id, row in zip(table.ids, table.rows):
        for text in _texts(msgspec.to_builtins(row)):
            if (at := text.lower().find(word)) >= 0:
                yield Match(id, text[max(0, at - _AROUND) : at + len(word) + _AROUND])
                break


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


class FirstAnswer(NamedTuple):
    """The first part of a report: the step time, the first finding, and its run."""

    headline: str  # about what the first finding is about
    run: reports.Run | None
    job: JobReport | None
    worker: reports.Worker | None
    span: reports.SpanReport | None
    first: reports.RunFinding | None  # None without findings that ask for a change

    @property
    def compiled(self) -> Compile | None:
        """What its worker compiled."""
        return self.worker.compile if self.worker else None


def first_answer(report: reports.Report) -> FirstAnswer:
    """Return the run of the first finding, or of the newest span."""
    first = next((row for row in report.findings if row.advised), None)
    run = next((run for run in report.runs if first is None or run.run == first.run), None)
    if run is None:
        return FirstAnswer("", None, None, None, None, first)
    # the worker and the span of the finding; otherwise the first worker with a span that was read, and its newest span
    named = [worker for worker in run.workers if first and worker.worker == first.worker]
    read = [
        worker for worker in run.workers if any(isinstance(span, reports.SpanReport) for span in worker.spans)
    ]
    worker = next(iter((*named, *read, *run.workers)), None)
    spans = [span for span in (worker.spans if worker else ()) if isinstance(span, reports.SpanReport)]
    of_finding = [span for span in spans if first and span.span == first.span]
    span = next(iter((*of_finding, *reversed(spans))), None)
    return FirstAnswer(_headline(run, worker, span), run, run.job, worker, span, first)


def _headline(run: reports.Run, worker: reports.Worker | None, span: reports.SpanReport | None) -> str:
    if run.job:
        return run.job.headline
    if span:
        return span.overview.headline
    return worker.compile.headlines["overview"] if worker and worker.compile else ""


def bounded_report(report: reports.Report, ask: AnswerLimits, asking: Commands) -> Bounded:
    """Return the requested tables of a report, as far as they fit. Raises WrongArgument."""
    warnings = map(str, reports.all_warnings(report))
    return bounded(tables(report), ask, first_answer(report).headline, asking, warnings)


class Logdir:
    """A logdir for several requests. Thread-safe: one thread reads, the others wait for it."""

    def __init__(self, session: Session, progress: Advance | None = None) -> None:
        self.session = session
        self._progress = progress
        self._report = Memo(1)

    def report(self, run: str = "") -> reports.Report:
        """Return the report on this run, on all for "". Raises WrongArgument."""
        listing = self.session.look()
        only = [listed.run for listed, _ in listing.runs] == [run]  # which is the same as all of them
        wanted = reports.ReportFilter("" if only else run)
        read = partial(reports.whole_report, self.session, self._progress, wanted)
        return self._report.get(wanted, read, _files(listing, run), keep=lambda _: True)

    def show(self, id: str, asking: Commands) -> Shown:
        """Return the row of an id. Raises WrongArgument."""
        return shown(self.session, self.report(address(id).run), id, asking)


def _files(listing: Listing, run: str) -> tuple[File, ...]:
    """Return all files that a report is computed from."""
    workers = [worker for listed, workers in listing.runs if run in ("", listed.run) for worker in workers]
    return tuple(
        file
        for worker in workers
        for file in (*(span.file for span in worker.spans), *worker.compile_files, *worker.digests.values())
    )
