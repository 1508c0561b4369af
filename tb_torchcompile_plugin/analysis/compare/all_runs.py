"""All runs of a logdir beside one another, and against one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes.findings import Findings, findings
from tb_torchcompile_plugin.analysis.causes.overview import Overview, first_change, overview
from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.compile.graph_breaks import (
    graph_break_costs,
    graph_break_sites,
    reported_sites,
)
from tb_torchcompile_plugin.analysis.finding import Finding, Severity
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import coverage
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpus
from tb_torchcompile_plugin.analysis.runtime.span_report import Compile, compile_report
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepTimes, noise_us, step_times
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.profile.model.clock import step_clock
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_ns
from tb_torchcompile_plugin.reader.cache import rows
from tb_torchcompile_plugin.reader.compile_data import CompileData

# A span, and what its worker compiled, in one line each: all that is remembered of them once they were
# read.


_FINDINGS = 8


class CompileLine(msgspec.Struct, frozen=True):
    """compile_s and graph_breaks (sites) None where nothing tells; compilations and recompiles without compile data.
    finding: what to change first, None where nothing asks for a change; severity: its own."""

    compile_s: float | None
    compilations: int | None
    graph_breaks: int | None
    recompiles: int | None
    finding: str | None
    severity: Severity | None


class SpanLine(CompileLine, frozen=True):
    """step_us: the mean step by the clock that sets the pace; times: of the steps that the profiler marked, by the same
    clock, None without any. gpu_busy_percent: of the device that is busy least. compiled_percent: of GPU time, of the
    host's where no GPU worked."""

    step_us: float | None
    times: StepTimes | None
    gpu_busy_percent: float | None
    compiled_percent: float | None


class LastOverview(msgspec.Struct, frozen=True):
    """What was seen first of a span when it was last read."""

    line: SpanLine
    overview: Overview
    findings: list[Finding]


def compile_line(data: CompileData) -> CompileLine:
    """Of a worker, without any trace."""
    first = first_change(data.of(findings).findings)
    return CompileLine(
        data.of(ct.total_s),
        ct.count_compilations(data.summary.compilations),
        len(data.of(reported_sites)),
        len(data.summary.recompiles),
        first.title if first else None,
        first.severity if first else None,
    )


def span_line(profile: Profile) -> SpanLine:
    """Of a span, with what its worker compiled."""
    data, first = profile.data, first_change(profile.of(findings).findings)
    clock, covered = profile.of(step_clock), profile.of(coverage)
    busy = [row.busy_percent for row in profile.of(gpus) if row.busy_percent is not None]
    return SpanLine(
        compile_s=data.of(ct.total_s) if data else None,
        compilations=ct.count_compilations(data.summary.compilations) if data else None,
        graph_breaks=_breaks(profile),
        recompiles=len(data.summary.recompiles) if data else None,
        finding=first.title if first else None,
        severity=first.severity if first else None,
        step_us=clock.step / 1000 if clock else None,
        times=step_times((profile.of(step_ns) / 1000).tolist()),
        gpu_busy_percent=min(busy, default=None),
        compiled_percent=covered.host_percent if covered.gpu_percent is None else covered.gpu_percent,
    )


def last_overview(profile: Profile) -> LastOverview:
    """What is to be remembered of a span."""
    return LastOverview(
        profile.of(span_line), profile.of(overview), profile.of(findings).findings[:_FINDINGS]
    )


def _breaks(profile: Profile) -> int | None:
    known = profile.data is not None or profile.of(graph_break_costs) is not None
    return len(profile.of(graph_break_sites)) if known else None


# What is remembered of what was read, for the next time that somebody looks at the logdir.


# With the version of what they hold: rows of another one do not count.
SPAN, JOB, COMPILE = "span-1", "job-1", "compile-1"


class JobLine(msgspec.Struct, frozen=True):
    """What all ranks of a job should change first, None where nothing asks for a change."""

    finding: str | None
    severity: Severity | None


class Remembered(msgspec.Struct, frozen=True):
    """last: None where the span was never read, or has changed since."""

    last: LastOverview | None


def remembered(files: tuple[File, ...]) -> Remembered:
    """Of a span, by all that it is read from."""
    return Remembered(rows.kept(rows.key_of(SPAN, files), LastOverview))


def overview_remembered(profile: Profile) -> Overview:
    """The overview, which is written down."""
    profile.of(_keep_overview)
    return profile.of(overview)


def findings_remembered(about: Profile | CompileData) -> Findings:
    """The findings, which every panel asks for: so what was read is written down, whichever it was opened at."""
    known = about.of(findings)
    if isinstance(about, Profile):
        about.begin(_keep_overview)  # behind them: nobody waits for it
    return known


def _keep_overview(profile: Profile) -> None:
    if profile.files:
        rows.keep(rows.key_of(SPAN, profile.files), profile.of(last_overview))


def job_remembered(job: Job) -> JobReport:
    """The report about a job, whose first finding is written down."""
    if isinstance(job, TracedJob) and all(rank.profile.files for rank in job.ranks):
        rows.keep(
            rows.key_of(JOB, [file for rank in job.ranks for file in rank.profile.files]), job.of(job_line)
        )
    return job.of(job_report)


def job_line(job: Job) -> JobLine:
    """Of a job, what is to be remembered of it."""
    first = first_change(job.of(job_report).findings)
    return JobLine(first.title if first else None, first.severity if first else None)


def compile_remembered(data: CompileData) -> Compile:
    """The compile side of a worker; where it is from a log, its line is written down."""
    if data.log and data.source == "torch_trace":
        remember_compiled([data.log], data.of(compile_line))
    return data.of(compile_report)


def remember_compiled(files: Sequence[File], line: CompileLine) -> None:
    """What a worker compiled, by its summaries or its log."""
    rows.keep(rows.key_of(COMPILE, files), line)


class RunPlace(NamedTuple):
    """The span of a run that stands for it: the newest one of its first worker with a trace. recorded_s: Unix time."""

    run: str
    worker: str
    span: str | None
    ranks: int
    recorded_s: float | None


NO_COMPILE_DATA = "No compile summary or log that can be read"
BEING_READ = "Its compile summary is being read"
LOG_UNREAD = "Its log is not read yet: open the run to read it"
_NO_TRACE = "There is no trace"
_UNREAD = "The trace is not read yet: open the run to read it"
_NO_STEPS = "No steps were marked: profile with a schedule"
_NO_GPU = "Nothing ran on a GPU"


class WhyUnknown(msgspec.Struct, frozen=True):
    """Why what is None of a run is not known, "" where it is: what only a trace tells, and what was compiled."""

    step: str
    gpu: str
    trace: str
    compile: str


class RunRow(SpanLine, frozen=True):
    """A run, by one of its spans. read: whether the trace was read before; what only a trace tells is None else.
    change_percent: of the step against the pinned run's; within_noise: whether that may be chance."""

    run: str
    worker: str
    span: str | None
    ranks: int
    recorded_s: float | None
    read: bool
    change_percent: float | None
    within_noise: bool
    why_unknown: WhyUnknown


class AllRuns(msgspec.Struct, frozen=True):
    """reading: of how many runs the summary is still to be read; ask again. pin: the run that others are held
    against, "" without one."""

    headline: str
    rows: list[RunRow]
    reading: int
    pin: str


class KnownRun(NamedTuple):
    """A run, and as much as is known of it without opening a trace. why_not: why there is no line."""

    place: RunPlace
    line: CompileLine | None
    job: JobLine | None
    why_not: str = ""


def all_runs(known: Sequence[KnownRun], reading: int, pin: str) -> AllRuns:
    """In their order. pin: the run that the others are held against; "" for none."""
    base = next((one.line for one in known if one.place.run == pin), None)
    rows = [_row(one, base if isinstance(base, SpanLine) else None) for one in known]
    return AllRuns(_headline(rows, reading), rows, reading, pin)


def _row(one: KnownRun, base: SpanLine | None) -> RunRow:
    line = one.line if isinstance(one.line, SpanLine) else None
    fields: dict[str, Any] = dict.fromkeys(SpanLine.__struct_fields__)
    for known in (one.line, one.job if one.job and one.job.finding else None):
        fields |= {name: getattr(known, name) for name in known.__struct_fields__} if known else {}
    compared = base is not None and line is not None and line is not base
    return RunRow(
        **fields,
        **one.place._asdict(),
        read=line is not None,
        change_percent=_change(base, line) if base and line and compared else None,
        within_noise=_noise(base, line) if base and line and compared else False,
        why_unknown=_why_unknown(one, line),
    )


def _why_unknown(one: KnownRun, line: SpanLine | None) -> WhyUnknown:
    trace = "" if line else _NO_TRACE if one.place.span is None else _UNREAD
    return WhyUnknown(
        step=trace or (_NO_STEPS if line and line.step_us is None else ""),
        gpu=trace or (_NO_GPU if line and line.gpu_busy_percent is None else ""),
        trace=trace,
        compile=one.why_not or (NO_COMPILE_DATA if one.line and one.line.compilations is None else ""),
    )


def _change(base: SpanLine, line: SpanLine) -> float | None:
    return None if line.step_us is None or not base.step_us else 100 * (line.step_us / base.step_us - 1)


def _noise(base: SpanLine, line: SpanLine) -> bool:
    """Whether the means lie no further apart than by chance."""
    apart = noise_us(base.times, line.times) if base.times and line.times else None
    return apart is not None and abs((line.step_us or 0) - (base.step_us or 0)) <= apart


def _headline(rows: Sequence[RunRow], reading: int) -> str:
    """ "13 runs. 9 were read before; 4 are not read yet. Summaries of 2 runs are being read." """
    unread = sum(not row.read and row.span is not None for row in rows)
    said = f"{plural(len(rows), 'run')}."
    if unread:
        said += f" {plural(unread, 'trace is', 'traces are')} not read yet: open a run to read it."
    return said + (f" {plural(reading, 'summary is', 'summaries are')} being read." if reading else "")
