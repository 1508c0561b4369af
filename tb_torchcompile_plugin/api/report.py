"""A logdir or a file read to its end: what the command line prints and `load` makes tables of."""

import logging
from collections.abc import Iterator, Sequence
from inspect import get_annotations
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.causes.break_costs import span_with_costs
from tb_torchcompile_plugin.analysis.causes.doctor import NOT_READ, OUTCOMES, Diagnosis, doctor
from tb_torchcompile_plugin.analysis.causes.findings import (
    merge_findings,
    sort_findings,
    span_findings,
    unreported,
)
from tb_torchcompile_plugin.analysis.causes.overview import Overview
from tb_torchcompile_plugin.analysis.causes.payback import Payback
from tb_torchcompile_plugin.analysis.causes.scenario import Scenario
from tb_torchcompile_plugin.analysis.compare import all_runs
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import DynamicShapeReport
from tb_torchcompile_plugin.analysis.compile.recompiles import RecompileReport
from tb_torchcompile_plugin.analysis.compile.startup import StartUp, startup
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.ranks.collectives import Collective, rank_collectives
from tb_torchcompile_plugin.analysis.ranks.job_findings import is_symptom
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report, rank_findings, rank_what_if
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.ranks.rank_differences import RankDifferences, rank_differences
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import CudaGraphReport
from tb_torchcompile_plugin.analysis.runtime.eager import EagerTime
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import GpuUtilization
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.ledger import LedgerRow
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.operators import Operator
from tb_torchcompile_plugin.analysis.runtime.source import ProgramLine
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile, Span, compile_report
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepReport
from tb_torchcompile_plugin.api.catalog import SCHEMA_VERSION, Ids, only_run, runs_in
from tb_torchcompile_plugin.api.joined import job_of, unexpected, why_not
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.api.run_lines import span_of_run
from tb_torchcompile_plugin.api.session import Session, open_logdir
from tb_torchcompile_plugin.api.starts import findings_with_start, starts_or_none
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.job import job as jobs
from tb_torchcompile_plugin.logdir.discovery import WorkerFiles
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.cache.copies import read
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.kineto import Advance

_log = logging.getLogger(__name__)
_LINES = 200  # of the program in the report of a span


class SpanReport(Span, frozen=True):
    """A span as the command line reports it: also what only one panel asks for, each under the name of its route.

    The sentences of those whose rows alone are kept are among `headlines`. your_code: of very many lines the hottest.
    """

    overview: Overview
    eager: EagerTime
    operators: list[Operator]
    kernels: list[Kernel]
    your_code: list[ProgramLine]
    gpu_utilization: GpuUtilization
    cuda_graphs: CudaGraphReport
    recompiles: RecompileReport
    dynamic_shapes: DynamicShapeReport
    step: StepReport
    ledger: list[LedgerRow]
    collectives: list[Collective]
    what_if: Scenario
    payback: Payback


class UnreadSpan(msgspec.Struct, frozen=True):
    """A span whose trace could not be read; `warnings` contain the reason."""

    span: str
    trace_file: str
    size_bytes: int
    warnings: list[Notice]


class SpanRead(msgspec.Struct, frozen=True):
    """All that a report holds of a span: its part, what should be changed, and its line among all runs."""

    report: SpanReport
    findings: list[Finding]
    line: all_runs.SpanLine


class Worker(msgspec.Struct, frozen=True):
    """A worker of a run."""

    worker: str
    rank: int | None
    spans: list[SpanReport | UnreadSpan]
    compile: Compile | None
    startup: StartUp | None
    warnings: list[Notice]


class Run(msgspec.Struct, frozen=True):
    """A run. job: the ranks together, null where fewer than two have a trace that can be read."""

    run: str
    workers: list[Worker]
    ranks: RankDifferences
    job: JobReport | None
    doctor: list[Diagnosis]


class RunFinding(Finding, frozen=True, kw_only=True):
    """A finding with where it holds; `span` is null for what compile data alone shows.

    What several spans of a run have in common is one finding, of the span that gains most.
    """

    run: str
    worker: str
    span: str | None
    times: int = 1  # how many spans have it
    ranks: list[int] = msgspec.field(default_factory=list)  # that have it, where it is of ranks


class Report(msgspec.Struct, frozen=True):
    """The answer of `tb-torchcompile report --json`. all_runs: each in a line, from what was read for the report."""

    runs: list[Run]
    all_runs: list[all_runs.RunRow]
    findings: list[RunFinding]
    warnings: list[Notice]
    schema_version: int = SCHEMA_VERSION


class ReportFilter(NamedTuple):
    """What a report is about."""

    run: str = ""  # this one alone; "" for all
    rank: int | None = None  # of a job of many ranks, whose traces are not read, that of this rank is
    whole: bool = False  # all rows of such a job


ALL_RUNS = ReportFilter()


def read_report(logdir: str, progress: Advance | None = None, wanted: ReportFilter = ALL_RUNS) -> Report:
    """Report what is below a folder, or one file. Raises UserError where there is no such path, and WrongArgument."""
    return whole_report(open_logdir(logdir), progress, wanted)


def whole_report(
    session: Session, progress: Advance | None = None, wanted: ReportFilter = ALL_RUNS
) -> Report:
    """Report all runs, or one. What cannot be read becomes a warning. Raises WrongArgument."""
    listing = session.catalog.look()
    names = {run.run for run in only_run(runs_in(listing), wanted.run).runs}
    readers = [
        _RunReader(session, listed.run, workers, progress)
        for listed, workers in listing.runs
        if listed.run in names
    ]
    runs = [reader.read(wanted) for reader in readers]
    return Report(
        runs=runs,
        all_runs=all_runs.all_runs([reader.line() for reader in readers if reader.workers], "").rows,
        findings=_once_each(merge_findings(sort_findings(reader.findings) for reader in readers), runs),
        warnings=listing.notices,
    )


def _once_each(rows: list[RunFinding], runs: list[Run]) -> list[RunFinding]:
    """Return each finding once, with the ranks that have it."""
    rank_of = {(run.run, worker.worker): worker.rank for run in runs for worker in run.workers}
    groups = grouped(rows, lambda row: (row.run, row.rule, row.fix or row.title, tuple(row.where)))
    merged = []
    for first, *others in groups.values():
        ranks = {rank_of.get((row.run, row.worker)) for row in (first, *others)}
        numbers = sorted(rank for rank in ranks if rank is not None)
        merged.append(replace(first, times=1 + len(others), ranks=numbers))
    return merged


class _RunReader:
    """Reads a run, one span after the other, and keeps what several parts of its report are made of."""

    def __init__(
        self, session: Session, run: str, workers: Sequence[WorkerFiles], progress: Advance | None
    ) -> None:
        self._session, self._run, self.workers, self._progress = session, run, workers, progress
        self.findings: list[RunFinding] = []  # without what only shows that a rank waits for another one
        self._profiles: dict[jobs.Member, Profile | Notice | None] = {}  # of the spans of its job
        # by worker and span, and under None of what the worker compiled
        self._lines: dict[tuple[str, str | None], all_runs.CompileLine] = {}
        self._job_line: all_runs.FirstFinding | None = None
        self._diagnoses: dict[Diagnosis, list[str]] = {}  # with the workers that recorded each

    def read(self, wanted: ReportFilter) -> Run:
        """Report everything; a job by its digests if traces should not be read."""
        return self._digested(wanted) or self._traced()

    def line(self) -> all_runs.KnownRun:
        """Return its line as it was just read: the same whether or not it was read before."""
        place, worker, _ = span_of_run(self._run, self.workers)
        of_span = self._lines.get((worker.worker, place.span)) if place.span else None
        line = of_span or self._lines.get((worker.worker, None))
        job = self._job_line if of_span else None
        return all_runs.KnownRun(place, line, job, "" if line else all_runs.NO_COMPILE_DATA)

    def _digested(self, wanted: ReportFilter) -> Run | None:
        """Report a job by its digests, and the requested rank by its trace."""
        if not jobs.prefers_digests(self.workers):
            return None
        if (job := jobs.job_of_digests(jobs.digest_files(self.workers))) is None:
            return None
        together = job.of(job_report, wanted.whole)
        selected = {digest.worker for digest in job.digests if digest.rank == wanted.rank}
        rows = [self._worker(worker) for worker in self.workers if worker.worker in selected]
        self.findings += _located(together.findings, self._run, "", None)
        unfolded = [replace(row, rank=wanted.rank) for row in rows]
        return Run(self._run, unfolded, RankDifferences((), [], []), together, self._doctor())

    def _traced(self) -> Run:
        self._profiles = dict.fromkeys(jobs.members(self.workers))
        rows = [self._worker(worker) for worker in self.workers]
        together: JobReport | None = None
        try:
            if job := job_of(self._profiles):
                together, self._job_line = job.of(job_report), job.of(all_runs.job_line)
                self._session.lines.keep_job(job)
                rows = [_as_rank(row, job) for row in rows]
                self.findings = _without_symptoms(self.findings, job)
        except Exception as error:  # a mistake of ours, which costs the job and not its ranks
            _log.warning("the ranks of %s could not be joined", self._run, exc_info=error)
        if together:
            self.findings += _located(together.findings, self._run, "", None)
        ranks = rank_differences(self._session.ranks(self._run))
        return Run(self._run, rows, ranks, together, self._doctor())

    def _doctor(self) -> list[Diagnosis]:
        """Return equal rows of several workers as one, failures first."""
        rows = [replace(row, workers=", ".join(workers)) for row, workers in self._diagnoses.items()]
        return sorted(rows, key=lambda row: OUTCOMES.index(row.outcome)) or [NOT_READ]

    def _worker(self, worker: WorkerFiles) -> Worker:
        try:
            data, notices = self._session.with_packages(self._run, worker)
            compiled = data.of(compile_report) if data else None
        except Exception as error:
            data, compiled, notices = None, None, [unexpected(worker.compile_files[0], error)]
        start = starts_or_none(self._session, self._run, worker.worker) if data else None
        of_spans: list[Finding] = []
        if data:
            self._lines[worker.worker, None] = data.of(all_runs.compile_line)
        spans: list[SpanReport | UnreadSpan] = []
        for span in worker.spans:
            ids = self._run, worker.worker, span.span
            member = jobs.Member(-1 if worker.rank is None else worker.rank, worker.worker, span.span)
            about: Profile | Notice | None
            try:
                read, about = self._span(ids, data)
            except Exception as error:
                about = why_not(span.file, error)
                spans.append(UnreadSpan(span.span, span.file.name, span.file.size, [about]))
            else:
                spans.append(read.report)
                of_spans += read.findings
                self.findings += _located(read.findings, *ids)
                self._lines[worker.worker, span.span] = read.line
            if member in self._profiles:
                self._profiles[member] = about
        for row in doctor(data, of_spans):
            self._diagnoses.setdefault(row, []).append(worker.worker)
        compiled_findings = unreported(findings_with_start(data, start), of_spans) if data else []
        self.findings += _located(compiled_findings, self._run, worker.worker, None)
        return Worker(
            worker=worker.worker,
            rank=worker.rank,
            spans=spans,
            compile=compiled,
            startup=start.of(startup) if start else None,
            warnings=[] if compiled else notices,
        )

    def _span(self, ids: Ids, data: CompileData | None) -> tuple[SpanRead, Profile | None]:
        """Report one span. The answer about one that is of no job is kept, and needs no trace again."""
        found = self._session.catalog.span(ids)
        is_alone = not self._profiles
        if is_alone and (stored := self._session.answers.get("report", SpanRead, found.source)):
            return stored, None
        trace = read(found.span.file, self._progress, self._progress)
        profile = self._session.opened(found, trace, data)
        line = profile.of(all_runs.span_line)
        report = SpanRead(span_answers(profile), profile.of(span_findings), line)
        if is_alone and trace.is_whole():
            self._session.answers.get("report", SpanRead, found.source, lambda: report)
        return report, profile


def _as_rank(worker: Worker, job: jobs.TracedJob) -> Worker:
    """Replace what the job knows better of its rank: whether it waits, in collectives, headline and what-ifs."""
    rank = next((rank for rank in job.ranks if rank.worker == worker.worker), None)
    if rank is None or rank.profile.span is None:
        return worker
    about = job.of(jobs.one_rank, rank.rank)
    found = about.of(rank_findings)
    spans: list[SpanReport | UnreadSpan] = []
    for span in worker.spans:
        if isinstance(span, SpanReport) and span.span == rank.profile.span.span:
            overview = replace(span.overview, headline=found.headline, step=found.step)
            collectives, what_if = about.of(rank_collectives).rows, about.of(rank_what_if)
            span = replace(span, collectives=collectives, overview=overview, what_if=what_if)
        spans.append(span)
    return replace(worker, spans=spans)


def _without_symptoms(rows: list[RunFinding], job: jobs.TracedJob) -> list[RunFinding]:
    ranks = {(rank.worker, rank.profile.span.span): rank.rank for rank in job.ranks if rank.profile.span}
    of_rank = [ranks.get((row.worker, row.span or "")) for row in rows]
    return [row for row, rank in zip(rows, of_rank) if rank is None or not is_symptom(job, rank, row)]


def span_answers(profile: Profile) -> SpanReport:
    """Return the report of one span: a field of `SpanReport` is what its route answers, or the rows of that."""
    fields = msgspec.structs.asdict(profile.of(span_with_costs))
    answers: dict[str, Any] = {name: profile.of(ROUTES[name].ask) for name in get_annotations(SpanReport)}
    headlines = {name: answers[name].headline for name in ("kernels", "operators", "your_code")}
    if (used := profile.of(memory)).recorded:
        headlines["memory"] = used.headline
    rows = {name: getattr(answer, "rows", answer) for name, answer in answers.items()}
    rows["your_code"] = rows["your_code"][:_LINES]
    return SpanReport(**fields | rows | {"headlines": fields["headlines"] | headlines})


def _located(rows: list[Finding], run: str, worker: str, span: str | None) -> list[RunFinding]:
    return [RunFinding(**msgspec.structs.asdict(row), run=run, worker=worker, span=span) for row in rows]


def all_warnings(report: Report) -> Iterator[Notice]:
    """Yield the warnings of the logdir, then of each worker and span."""
    yield from report.warnings
    for run in report.runs:
        if run.job and not run.job.traced:
            yield from run.job.warnings
        for worker in run.workers:
            yield from worker.warnings
            yield from worker.compile.warnings if worker.compile else ()
            for span in worker.spans:
                yield from span.warnings


def why_nothing(logdir: str, report: Report) -> UserError | None:
    """Return why there is nothing in a report; None where something was read."""
    workers = [worker for run in report.runs for worker in run.workers]
    if any(run.job for run in report.runs) or any(
        worker.compile or any(isinstance(span, Span) for span in worker.spans) for worker in workers
    ):
        return None
    warnings = list(all_warnings(report))
    if len(warnings) == 1:
        return UserError.of(warnings[0])
    if warnings:
        return UserError(f"{logdir}: nothing could be read: see the warnings above")
    return UserError(
        f"{logdir}: no trace, compile summary or TORCH_TRACE log found. "
        "Write one with tb_torchcompile_plugin.tensorboard_trace_handler"
    )
