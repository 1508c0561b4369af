"""What should be changed on one rank of a job, and what would a change bring?

As for a span on its own, except that waiting for another rank cannot be overlapped: only transfers can, and the rank
that is waited for is named.
"""

from collections.abc import Sequence

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.communication import overlap_collectives
from tb_torchcompile_plugin.analysis.causes.findings import Findings, findings
from tb_torchcompile_plugin.analysis.causes.overview import first_change, headline_with_compile, step_sentence
from tb_torchcompile_plugin.analysis.causes.ranking import sort_findings
from tb_torchcompile_plugin.analysis.causes.scenario import PossibleFixes, Scenario, scenario_with, span_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import predict_fix, why_nothing
from tb_torchcompile_plugin.analysis.formatting import percent
from tb_torchcompile_plugin.analysis.ranks.job_findings import (
    OF_COLLECTIVES,
    is_symptom,
    job_findings,
    waiting_ranks,
)
from tb_torchcompile_plugin.job.instances import calls, instances, rows_of_calls
from tb_torchcompile_plugin.job.job import OneRank
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.waits import blame, waits
from tb_torchcompile_plugin.profile.columns import indices_in
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue


class RankFindings(Findings, frozen=True):
    """The findings of one rank of a job, with those of the job first and without what only follows from them."""

    headline: str  # the rank's own sentence, as its overview shows it
    step: str  # the part of it about a step


def rank_what_if(about: OneRank, picked: Sequence[str] = ()) -> Scenario:
    """Return the step of one rank with these fixes (ids) made together, and all possible fixes."""
    scenario = scenario_with(about.profile, about.of(rank_offer), picked)
    words = _waiting_words(about)
    headline = f"{scenario.headline} This rank {words}." if words else scenario.headline
    return msgspec.structs.replace(scenario, headline=headline)


def rank_offer(about: OneRank) -> PossibleFixes:
    """Return the fixes of a rank: transfers can be overlapped, and nothing that may be waiting is removed."""
    profile = about.profile
    own = profile.of(span_fixes)
    if not own.fixes or profile.of(why_nothing) or not len(about.job.of(instances)):
        return own
    removed = {"communication", *(OF_COLLECTIVES if about.rank in about.job.of(waiting_ranks) else ())}
    ns = about.job.of(waits).transferred[about.job.of(calls).of_rank(about.rank_index)]
    work = indices_in(profile.of(gpu_queue).row, about.of(rows_of_calls)[ns > 0])
    added = list(overlap_collectives(profile, work[work >= 0], ns[ns > 0][work >= 0]))
    rows = [predict_fix(profile, fix) for fix in added]
    rows = [row for row in rows if row.predicted.after_us < row.predicted.step_us]
    rows += [row for row in own.rows if row.kind not in removed]
    rows.sort(key=lambda row: row.predicted.after_us)
    return PossibleFixes((*(fix for fix in own.fixes if fix.kind not in removed), *added), tuple(rows))


def rank_findings(about: OneRank) -> RankFindings:
    """Return what to change on this rank first."""
    job, profile = about.job, about.profile
    own = profile.of(findings)
    rest = [row for row in own.findings if not is_symptom(job, about.rank, row)]
    first, words = first_change(rest), _waiting_words(about)
    step = step_sentence(profile, f"This rank {words}" if words else "", first.title if first else "")
    return RankFindings(
        sort_findings([*job.of(job_findings), *rest]), own.rules, headline_with_compile(profile, step), step
    )


def _waiting_words(about: OneRank) -> str:
    """Return "waits for rank 1 for 98.2 % of its steps", or "" where its waits do not matter."""
    job = about.job
    steps, blamed = job.of(job_steps)[about.rank_index], job.of(blame)
    most = blamed.of(about.rank_index)
    if steps is None or not len(most):
        return ""
    share = 100 * int(steps.exposed_wait.sum()) / max(int(steps.span.sum()), 1)
    if share < thresholds.communication_percent:
        return ""
    return f"waits for rank {job.numbers[blamed.awaited[most[0]]]} for {percent(share)} of its steps"
