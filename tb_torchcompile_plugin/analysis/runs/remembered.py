"""What is remembered of what was read, for the next time that somebody looks at the logdir."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tb_torchcompile_plugin.analysis.findings.finding import Severity
from tb_torchcompile_plugin.analysis.findings.findings import Findings, findings
from tb_torchcompile_plugin.analysis.overview.halves import Compile, compile_report
from tb_torchcompile_plugin.analysis.overview.headline import first_change
from tb_torchcompile_plugin.analysis.overview.overview import Overview, overview
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.runs.rows import CompileLine, LastOverview, compile_line, last_overview
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache import rows
from tb_torchcompile_plugin.reader.compile_data import CompileData

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
