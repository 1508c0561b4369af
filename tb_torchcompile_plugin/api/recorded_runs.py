"""The runs that a gate compares: of a logdir, a trace, or a baseline file."""

import os

from tb_torchcompile_plugin.analysis.compare.baseline import is_baseline, load
from tb_torchcompile_plugin.analysis.compare.measures import MeasuredRun, RunSource, measure_run
from tb_torchcompile_plugin.analysis.compare.sides import Side, make_side
from tb_torchcompile_plugin.api.catalog import Runs, newest_span, only_run
from tb_torchcompile_plugin.api.joined import no_job
from tb_torchcompile_plugin.api.session import Session, check, open_logdir
from tb_torchcompile_plugin.job.job import digest_files, job_of_digests


def recorded_runs(path: str, run: str = "") -> list[MeasuredRun]:
    """Return the runs at a path: the newest span of a logdir with all ranks of its job, or those of a baseline file.

    run: of a logdir with several. Raises UserError where nothing can be read, and WrongArgument.
    """
    if is_baseline(path):
        check(path)
        return load(path)
    return [measure_run(_recording(path, run))]


def _recording(path: str, only: str) -> RunSource:
    session = open_logdir(path)
    runs = only_run(session.runs(), only)
    digested = _digests_alone(session, runs)
    run, worker, span = (digested, "", "") if digested else newest_span(runs, path)
    name = " ".join(filter(None, (os.path.basename(path.rstrip("/")), "" if run == "." else run)))
    compiled = session.ranks(run)
    if digested:
        job = job_of_digests(digest_files(session.catalog.workers(run)))
        if job is None:
            raise no_job(run, [])
        return RunSource(name, [Side(None, compiled.get(rank)) for rank in job.numbers], job)
    if span and (traced := session.job(run, span)):
        return RunSource(name, [make_side(rank.profile) for rank in traced.ranks], traced)
    if not span and len(compiled) > 1:
        return RunSource(name, [Side(None, data) for data in compiled.values()])
    return RunSource(name, [session.side(run, worker, span)])


def _digests_alone(session: Session, runs: Runs) -> str:
    """Return the newest run whose job is known by digests alone, where no run has a trace; "" otherwise."""
    if any(worker.spans for run in runs.runs for worker in run.workers):
        return ""
    files = {run.run: digest_files(session.catalog.workers(run.run)) for run in runs.runs if run.ranks > 1}
    # Spans are named by the time at which they were written.
    newest = {name: max(file.span for file in digests) for name, digests in files.items() if digests}
    return max(newest, key=lambda name: newest[name], default="")
