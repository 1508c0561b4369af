"""All runs of a logdir in a line each, compared with one of them, and what is kept of a span, a job and a worker."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.overview import first_change
from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles
from tb_torchcompile_plugin.analysis.finding import Finding, Severity
from tb_torchcompile_plugin.analysis.formatting import HIDDEN, column_head, joined_names, plural
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import coverage
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, is_other_program
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import steady_times
from tb_torchcompile_plugin.analysis.statistics import StepTimes, step_time_difference
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData

_SEVERITIES: dict[Severity, str] = {"critical": "a critical finding", "warning": "a warning"}


class FirstFinding(msgspec.Struct, frozen=True):
    """What should be changed first; null where nothing asks for a change."""

    finding: str | None
    severity: Severity | None


class CompileLine(FirstFinding, frozen=True):
    """What a worker compiled, in one line. Unknown is null."""

    compile_s: float | None
    compilations: int | None
    graph_breaks: int | None
    recompiles: int | None


class SpanLine(CompileLine, frozen=True):
    """A span in one line, with what its worker compiled.

    step_us: the mean step by the slower of the clocks of host and GPU. times: of the steps that the profiler marked, by
    the same clock, null without any. gpu_busy_percent: of a step, on the device that is busy least.
    compiled_percent: of GPU time, or of the host's time where no GPU worked.
    """

    step_us: float | None
    times: StepTimes | None
    gpu_busy_percent: float | None
    compiled_percent: float | None


def compile_line(about: Profile | CompileData) -> CompileLine:
    """Return the line of a worker, without what only a trace shows."""
    data = about.data if isinstance(about, Profile) else about
    return CompileLine(
        **msgspec.structs.asdict(_first(about.of(findings).findings)),
        compile_s=data.of(ct.total_s) if data else None,
        compilations=data.of(ct.count_compilations) if data else None,
        graph_breaks=about.of(count_sites),
        recompiles=data.of(count_recompiles) if data else None,
    )


def _first(rows: list[Finding]) -> FirstFinding:
    first = first_change(rows)
    return FirstFinding(finding=first.title if first else None, severity=first.severity if first else None)


def span_line(profile: Profile) -> SpanLine:
    """Return the line of a span, with what its worker compiled."""
    step, covered, use = profile.of(step_time), profile.of(coverage), profile.of(utilization)
    busy = [row.busy_percent for row in use.means if row.busy_percent is not None] if use else []
    return SpanLine(
        **msgspec.structs.asdict(compile_line(profile)),
        step_us=step.step_us if step.steps else None,
        times=profile.of(steady_times),
        gpu_busy_percent=min(busy, default=None),
        compiled_percent=covered.host_percent if covered.gpu_percent is None else covered.gpu_percent,
    )


def job_line(job: Job) -> FirstFinding:
    """Return what is kept of a job: what all of its ranks should change first."""
    return _first(job.of(job_report).findings)


class RunPlace(NamedTuple):
    """The span that stands for a run: the newest one of its first worker with a trace."""

    run: str
    worker: str
    span: str | None
    ranks: int
    recorded_s: float | None  # Unix time


NO_COMPILE_DATA = "There is no readable compile summary or log"
WAITING = "Not read yet. It is being read in the background"
_NO_TRACE = "There is no trace"
_UNREAD = "The trace has not been read yet"
_NO_STEPS = "No steps were marked: profile with a schedule"
_NO_GPU = "Nothing ran on a GPU, or records of it are missing"


class WhyUnknown(msgspec.Struct, frozen=True):
    """Why a value of a run is null; "" where none is."""

    step: str  # what the marked steps show
    gpu: str  # what the GPU did
    trace: str  # what only a trace shows
    compile: str  # what was compiled


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in one line, by one of its spans."""

    run: str
    step_us: Annotated[float | None, column_head("Step time")]
    # the sample standard deviation of the steps
    deviation_us: Annotated[float | None, column_head("±", hidden=True)]
    # of the step time, compared with the pinned run; null where that is of another program
    change_percent: Annotated[float | None, column_head("Change")]
    within_noise: Annotated[bool | None, column_head("Within noise")]  # whether that may be chance
    finding: Annotated[str | None, column_head("First finding", grow=True, wrap=True)]
    compile_s: Annotated[float | None, column_head("Compile time")]
    graph_breaks: Annotated[int | None, column_head("Breaks")]
    recompiles: int | None
    gpu_busy_percent: Annotated[float | None, column_head("GPU busy")]
    compiled_percent: Annotated[float | None, column_head("Compiled", hidden=True)]
    compilations: Annotated[int | None, HIDDEN]
    recorded_s: Annotated[float | None, column_head(hidden=True, unix=True)]
    ranks: Annotated[int, HIDDEN]
    compiling: Annotated[str, HIDDEN]  # what its processes compile now, in words; "" for nothing
    worker: Annotated[str, HIDDEN]
    span: Annotated[str | None, HIDDEN]
    severity: Annotated[Severity | None, HIDDEN]
    read: Annotated[bool, HIDDEN]  # whether the trace was read; otherwise what only a trace shows is null
    times: StepTimes | None
    why_unknown: WhyUnknown


class AllRuns(msgspec.Struct, frozen=True):
    """All runs of a logdir."""

    headline: str
    rows: Annotated[list[RunRow], column_head("Runs")]
    reading: int  # how many runs are still to be read: ask again
    pin: str  # the run that the others are compared with, "" without one


class KnownRun(NamedTuple):
    """A run, and what is known of it without opening a trace."""

    place: RunPlace
    line: CompileLine | None
    job: FirstFinding | None
    why_not: str = ""  # why no more is known
    program: ProgramFacts | None = None
    compiling: str = ""  # what its processes compile now

    @property
    def is_waiting(self) -> bool:
        """Whether it is still to be read."""
        return self.why_not == WAITING


def all_runs(runs: Sequence[KnownRun], pin: str, current: str = "") -> AllRuns:
    """Return all runs in their order.

    pin: the run to compare the others with; "" for none. current: what is being read.
    """
    base = next((run for run in runs if run.place.run == pin), None)
    rows = [_row(run, base) for run in runs]
    reading = sum(run.is_waiting for run in runs)
    sentences = [_headline(rows)]
    if base:
        sentences.append(f"Step times are compared with run {pin}.")
    if reading:
        sentences.append(f"Reading {plural(reading, 'more run')}, now {current}.")
    return AllRuns(" ".join(sentences), rows, reading, pin if base else "")


def _row(run: KnownRun, pinned: KnownRun | None) -> RunRow:
    line = run.line if isinstance(run.line, SpanLine) else None
    fields: dict[str, Any] = dict.fromkeys(SpanLine.__struct_fields__)
    for part in (run.line, run.job if run.job and run.job.finding else None):
        fields |= {name: getattr(part, name) for name in part.__struct_fields__} if part else {}
    base = pinned.line if pinned and not is_other_program(pinned.program, run.program) else None
    compared = None
    if isinstance(base, SpanLine) and line is not None and line is not base:
        compared = step_time_difference(base.times, line.times)
    before, after = (compared.baseline.mean_us, compared.candidate.mean_us) if compared else (0.0, 0.0)
    return RunRow(
        **fields,
        **run.place._asdict(),
        deviation_us=line.times.deviation_us if line and line.times else None,
        read=line is not None,
        compiling=run.compiling,
        change_percent=100 * (after / before - 1) if before else None,
        within_noise=bool(compared.within_noise) if compared else None,
        why_unknown=_why_unknown(run, line),
    )


def _why_unknown(run: KnownRun, line: SpanLine | None) -> WhyUnknown:
    trace = "" if line else _NO_TRACE if run.place.span is None else run.why_not or _UNREAD
    is_compiled = run.line is not None and run.line.compilations is not None
    return WhyUnknown(
        step=trace or (_NO_STEPS if line and line.step_us is None else ""),
        gpu=trace or (_NO_GPU if line and line.gpu_busy_percent is None else ""),
        trace=trace,
        compile="" if is_compiled else run.why_not or NO_COMPILE_DATA,
    )


def _headline(rows: Sequence[RunRow]) -> str:
    """Return "25 runs: 3 have a critical finding and 9 have a warning."."""
    found = Counter(row.severity for row in rows)
    counts = [(found[severity], words) for severity, words in _SEVERITIES.items() if found[severity]]
    have = joined_names(
        [f"{number:,} {'has' if number == 1 else 'have'} {words}" for number, words in counts]
    )
    return f"{plural(len(rows), 'run')}{': ' if have else ''}{have}."
