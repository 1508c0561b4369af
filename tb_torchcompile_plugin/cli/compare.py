"""`tb-torchcompile compare A B`: two spans side by side. Each of A and B is a folder or one trace file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from tb_torchcompile_plugin.analysis.compare.jobs import Jobs, JobsCompared, compare_jobs
from tb_torchcompile_plugin.analysis.compare.sides import Sides
from tb_torchcompile_plugin.analysis.compare.verdict import FullReport, full_report
from tb_torchcompile_plugin.api.catalog import Runs, SpanRef, only_run
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.text_compare import print_comparison
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.discovery import span_time_ns

Ids = tuple[str, str, str]  # run, worker, span; "" for the compile data of a worker alone


class WithJobs(FullReport, frozen=True):
    """With the jobs that the two spans are of; None where one of them is of none."""

    jobs: JobsCompared | None


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any. Raises UserError where one
    holds no trace, and NoSuchRun."""
    sessions = Session([("", a[0])]), Session([("", b[0])])
    newest = [
        newest_span(only_run(session.runs(), run), logdir) for session, (logdir, run) in zip(sessions, (a, b))
    ]
    comparison = full_report(Sides(*(session.side(*ids) for session, ids in zip(sessions, newest))))
    jobs = [session.job(run, span) for session, (run, _, span) in zip(sessions, newest)]
    compared = compare_jobs(Jobs(*(job for job in jobs if job))) if all(jobs) else None
    if as_json:
        whole = WithJobs(**msgspec.structs.asdict(comparison), jobs=compared)
        sys.stdout.write(msgspec.json.encode(whole).decode() + "\n")
    else:
        print_comparison(comparison, compared)


def newest_span(runs: Runs, logdir: str) -> Ids:
    """The newest span of the first worker that has one, in the run that was written last, as the tab chooses it.

    Where there is no trace, what a worker compiled. Raises UserError where there is neither.
    """
    spans = list(_spans(runs))
    if not spans:
        return _compiled(runs, logdir)
    newest_run = max(spans, key=lambda one: _time(one[0]))[1][0]
    in_run = [one for one in spans if one[1][0] == newest_run]
    worker = in_run[0][1][1]
    return max((one for one in in_run if one[1][1] == worker), key=lambda one: _time(one[0]))[1]


def _spans(runs: Runs) -> Iterator[tuple[SpanRef, Ids]]:
    for run in runs.runs:
        for worker in run.workers:
            for span in worker.spans:
                yield span, (run.run, worker.worker, span.span)


def _compiled(runs: Runs, logdir: str) -> Ids:
    for run in runs.runs:
        for worker in run.workers:
            if worker.has_compile:
                return run.run, worker.worker, ""
    raise UserError(
        "there is no trace in it", file=logdir, next_step="Name a folder with one, or a trace file"
    )


def _time(span: SpanRef) -> float:
    """Unix seconds: a span is named by its time; copying a logdir changes the files' times."""
    time_ns = span_time_ns(span.span)
    return span.modified_s if time_ns is None else time_ns / 1e9
