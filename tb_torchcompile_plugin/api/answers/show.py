"""One row by its id, with all that is known of it; the rows that contain a word; and what a report begins with."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, get_args
from urllib.parse import quote

import msgspec

from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreak, GraphBreakSite
from tb_torchcompile_plugin.analysis.finding import Finding, Panel
from tb_torchcompile_plugin.analysis.formatting import about, duration
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails, kernel_details
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers.bounded import AFTER, AnswerLimits, Bounded, Commands, bounded
from tb_torchcompile_plugin.api.answers.sections import Address, Table, address, tables
from tb_torchcompile_plugin.api.catalog import Listing
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import WrongArgument, quoted
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Advance

_PLUGIN = "torch_compile"
_UNQUOTED_IN_TAB = "!~*'()/:,"  # as the tab leaves it
_PANELS = frozenset(get_args(Panel))
# By panel, the sections that it shows under other names.
_SHOWS: dict[Panel, tuple[str, ...]] = {
    "compare": ("payback",),
    "compilations": ("compiled_regions", "cuda_graphs", "doctor", "exports", "problems"),
    "compile_time": ("autotune", "compile_functions", "startup"),
    "findings": ("what_if",),
    "graph_breaks": ("graph_break_sites", "reported_sites", "graph_break_costs", "break_chain", "eager"),
    "kernels": ("kernel_categories", "generated_kernels"),
    "recompiles": ("dynamic_shapes", "recompiled_frames"),
    "step": ("collectives", "gpu", "gpu_utilization", "ledger", "steps"),
}
_PANEL_OF = {section: panel for panel, sections in _SHOWS.items() for section in sections}
_TABLES = {
    **dict.fromkeys(("graph_break_sites", "reported_sites"), "graph_breaks"),
    **dict.fromkeys(("compilations", "compiled_regions"), "compilation"),
}
# How the tab names the rows of its tables, where that is known.
_KEYS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(
        ("kernels", "your_code", "graph_break_sites", "reported_sites", "compilations"), attrgetter("key")
    ),
    "steps": attrgetter("name"),
    "compiled_regions": lambda row: row.compilation or f"{row.compile_id},{row.epoch},forward",
    "recompiles": lambda row: f"{row.compile_id},{row.epoch}",
    "by_rank": lambda row: str(row.rank),
}


def fragment(place: Address, row: msgspec.Struct | None = None) -> str:
    """Return `#torch_compile&p.torch_compile.run=…`: the panel of a section, with the row open where the tab can."""
    panel, key = seen_at(place, row)
    parameters = {"run": place.run, "worker": place.worker, "span": place.span, "panel": panel, "row": key}
    parts = (
        f"p.{_PLUGIN}.{name}={quote(text, _UNQUOTED_IN_TAB)}" for name, text in parameters.items() if text
    )
    return "&".join((f"#{_PLUGIN}", *parts))


def seen_at(place: Address, row: msgspec.Struct | None) -> tuple[str, str]:
    """Return the panel of the tab and its row, "TABLE:KEY"; "" for the first panel, and for no row."""
    if place.section == "findings" and row is not None:
        return str(getattr(row, "panel", "")), str(getattr(row, "row", None) or "")
    name = place.section.partition(".")[0]
    panel, table = _PANEL_OF.get(name, name if name in _PANELS else ""), _TABLES.get(name, name)
    if not place.worker and panel != "compilations":
        return "ranks", f"ranks:{_KEYS[name](row)}" if name == "by_rank" and row is not None else ""
    key = _KEYS.get(place.section)
    return panel, f"{table}:{key(row)}" if key and row is not None else ""


_NEAR = 4  # ids that an error names; chosen by eye


class HowToVerify(msgspec.Struct, frozen=True):
    """How to see whether a fix brought what it should."""

    record: str  # what to do first
    compare: str  # what to ask then
    expect: str | None  # the predicted step, null where nothing predicts one
    what_if: str | None  # how the step is predicted, null where no model does


class Shown(msgspec.Struct, frozen=True):
    """A row with all its fields, and what else there is to ask."""

    id: str
    section: str
    row: Any  # the struct with all its fields
    kernel: KernelDetails | None  # launches, configurations and source of a kernel
    verify: HowToVerify | None  # of a finding
    tab: str  # what follows TensorBoard's address to see it there
    next: list[str]


def details_of(profile: Profile, row: Kernel) -> KernelDetails:
    """Return the launches, configurations and source of a kernel."""
    return kernel_details(profile, str(row.device), row.name, row.compile_id or "", row.graph_key or "")


def _row_of(tables: Sequence[Table], id: str) -> tuple[Table, msgspec.Struct]:
    section = address(id).section
    same = [table for table in tables if table.section == section]
    for table in same:
        if id in table.ids:
            return table, table.rows[table.ids.index(id)]
    ids = [other for table in same or tables for other in table.ids]
    # a likeness chosen by hand: ids of one section are alike in most characters
    near = difflib.get_close_matches(id, ids, _NEAR, 0.3) or ids[:_NEAR]
    raise WrongArgument(
        f"there is no row {quoted(id)}",
        next_step=f"Similar ids: {' '.join(near) or 'none, because nothing was read'}",
    )


def _located(table: Table, row: msgspec.Struct, asked: Address) -> Address:
    """Return the row's address, with the key as the tab knows it."""
    return asked._replace(section=table.section, key=getattr(row, "key", "") or asked.key)


def _verify(place: Address, row: Finding, asking: Commands, several: bool) -> HowToVerify:
    """Return how to verify a fix. several: whether the run is one of several of its logdir."""
    expect = None
    if (step := row.predicted) is not None:
        after = about(step.after_us, step.low_us, step.high_us)
        expect = f"a step takes {after} instead of {duration(step.step_us)}"
    return HowToVerify(
        record=f"Record the fixed program as before, into {f'a run {AFTER} of the logdir' if several else AFTER}",
        compare=asking.compare(place.run, several),
        expect=expect,
        what_if=asking.what_if(place, row.fix) if row.fix and place.span else None,
    )


def _related(tables: Sequence[Table], place: Address, row: msgspec.Struct) -> Iterator[str]:
    """Yield the ids of the rows that a finding points to, or those of the costs of a graph break."""
    for table in tables:
        span = table.place.span
        if (table.place.run, table.place.worker) != (place.run, place.worker):
            continue
        for id, other in zip(table.ids, table.rows):
            if isinstance(row, reports.RunFinding):
                is_of_span = bool(row.row) and span in ("", place.span)
                if is_of_span and seen_at(_located(table, other, address(id)), other)[1] == row.row:
                    yield id
            elif isinstance(row, GraphBreak) and isinstance(other, GraphBreakSite):
                is_same = (other.file, other.line) == (row.file, row.line)
                if is_same and span:
                    yield id


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
        listing = self.session.catalog.look()
        only = [listed.run for listed, _ in listing.runs] == [run]  # which is the same as all of them
        wanted = reports.ReportFilter("" if only else run)
        read = partial(reports.whole_report, self.session, self._progress, wanted)
        return self._report.get(wanted, read, _files(listing, run), keep=lambda _: True)

    def show(self, id: str, asking: Commands) -> Shown:
        """Return the row of an id. Raises WrongArgument, with similar ids."""
        every = list(tables(self.report(address(id).run)))
        table, row = _row_of(every, id)
        place = _located(table, row, address(id))
        kernel = details_of(self.session.profile(*place[:3]), row) if isinstance(row, Kernel) else None
        several = len(self.session.runs().runs) > 1
        return Shown(
            id=id,
            section=table.section,
            row=row,
            kernel=kernel,
            verify=_verify(place, row, asking, several) if isinstance(row, Finding) else None,
            tab=fragment(place, row),
            next=[asking.show(related) for related in _related(every, place, row)],
        )


def _files(listing: Listing, run: str) -> tuple[File, ...]:
    """Return all files that a report is computed from."""
    workers = [worker for listed, workers in listing.runs if run in ("", listed.run) for worker in workers]
    return tuple(
        file
        for worker in workers
        for file in (*(span.file for span in worker.spans), *worker.compile_files, *worker.digests.values())
    )
