"""The runs that a gate compares: of a logdir, a trace, or a baseline file."""

import os

from tb_torchcompile_plugin.analysis.compare.gate_metrics import (
    MeasuredRun,
    RunSource,
    is_baseline,
    load,
    measure_run,
)
from tb_torchcompile_plugin.api.catalog import newest_span, only_run
from tb_torchcompile_plugin.api.session import check, open_logdir


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
    run, worker, span = newest_span(only_run(session.runs(), only), path)
    name = " ".join(filter(None, (os.path.basename(path.rstrip("/")), "" if run == "." else run)))
    job = session.job(run, span) if span else None
    ranks = session.ranks(run)
    if job:
        profiles = [rank.profile for rank in job.ranks]
        return RunSource(
            name, profiles, [profile.data for profile in profiles if profile.data], job, len(profiles)
        )
    if not span and len(ranks) > 1:
        return RunSource(name, [], [rank.data for rank in ranks], None, len(ranks))
    side = session.side(run, worker, span)
    return RunSource(name, [side.profile] if side.profile else [], [side.data] if side.data else [], None, 1)
