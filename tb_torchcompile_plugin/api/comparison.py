"""Two spans compared, with the jobs that they are of: what the terminal and agents are answered."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.compare.jobs import Jobs, JobsCompared, compare_jobs
from tb_torchcompile_plugin.analysis.compare.pairs import Sides
from tb_torchcompile_plugin.analysis.compare.verdict import FullReport, full_report
from tb_torchcompile_plugin.api.newest import Ids
from tb_torchcompile_plugin.api.session import Session


class WithJobs(FullReport, frozen=True):
    """With the jobs that the two spans are of; None where one of them is of none."""

    jobs: JobsCompared | None


def comparison(*sides: tuple[Session, Ids]) -> WithJobs:
    """Of two spans, each in its session. Raises UserError."""
    report = full_report(Sides(*(session.side(*ids) for session, ids in sides)))
    jobs = [session.job(run, span) for session, (run, _, span) in sides]
    compared = compare_jobs(Jobs(*(job for job in jobs if job))) if all(jobs) else None
    return WithJobs(**msgspec.structs.asdict(report), jobs=compared)
