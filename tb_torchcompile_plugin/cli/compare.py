"""`tb-torchcompile compare A B`: two spans side by side. Each of A and B is a folder or one trace file."""

from __future__ import annotations

import sys

import msgspec

from tb_torchcompile_plugin.analysis.compare.jobs import Jobs, JobsCompared, compare_jobs
from tb_torchcompile_plugin.analysis.compare.sides import Sides
from tb_torchcompile_plugin.analysis.compare.verdict import FullReport, full_report
from tb_torchcompile_plugin.api.catalog import only_run
from tb_torchcompile_plugin.api.newest import newest_span
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.text_compare import print_comparison


class WithJobs(FullReport, frozen=True):
    """With the jobs that the two spans are of; None where one of them is of none."""

    jobs: JobsCompared | None


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any. Raises UserError where one
    holds no trace, and NoSuchRun."""
    sessions = [Session([("", logdir)], ahead=False) for logdir, _ in (a, b)]
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
