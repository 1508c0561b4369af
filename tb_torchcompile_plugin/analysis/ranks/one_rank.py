"""What if this were mended on one rank of a job? As of a span on its own, but that waiting for another rank is nothing
to overlap: what transfers is, and the rank that is waited for is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tb_torchcompile_plugin.analysis.causes.findings import Findings, findings, ranked
from tb_torchcompile_plugin.analysis.causes.fix import Fix
from tb_torchcompile_plugin.analysis.causes.gpu_fixes import overlapped
from tb_torchcompile_plugin.analysis.causes.overview import step_sentence, verdict_of, with_compile
from tb_torchcompile_plugin.analysis.causes.scenario import Offer, Scenario, offered, own_offer, priced_fix
from tb_torchcompile_plugin.analysis.causes.what_if import why_nothing
from tb_torchcompile_plugin.analysis.ranks.collectives import waiting_words
from tb_torchcompile_plugin.analysis.ranks.job_findings import (
    OF_COLLECTIVES,
    job_findings,
    waiting_ranks,
    without_symptoms,
)
from tb_torchcompile_plugin.job.instances import calls, instances, rows_of_calls
from tb_torchcompile_plugin.job.job import OneRank
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import places_in
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue

_OVERLAP = "communication"


def rank_what_if(about: OneRank, picked: Sequence[str] = ()) -> Scenario:
    """picked: ids of fixes that are made together."""
    made = offered(about.profile, about.of(rank_offer), picked)
    said = waiting_words(about.job, about.place)
    return msgspec.structs.replace(made, headline=f"{made.headline} This rank {said}.") if said else made


def rank_offer(about: OneRank) -> Offer:
    """Without fixes that would take out what may be waiting; with what is known to transfer."""
    profile = about.profile
    own = profile.of(own_offer)
    if not own.fixes or profile.of(why_nothing) or not len(about.job.of(instances)):
        return own
    gone = {_OVERLAP, *(OF_COLLECTIVES if about.rank in about.job.of(waiting_ranks) else ())}
    more = list(_transfers(about))
    rows = [priced_fix(profile, fix) for fix in more]
    rows = [row for row in rows if row.predicted.after_us < row.predicted.step_us]
    rows += [row for row in own.rows if row.kind not in gone]
    rows.sort(key=lambda row: row.predicted.after_us)
    return Offer((*(fix for fix in own.fixes if fix.kind not in gone), *more), tuple(rows))


def _transfers(about: OneRank) -> Iterator[Fix]:
    """As if what is known to transfer ran beside everything else."""
    ns = about.job.of(waits).transferred[about.job.of(calls).of_rank(about.place)]
    work = places_in(about.profile.of(gpu_queue).row, about.of(rows_of_calls)[ns > 0])
    return overlapped(about.profile, work[work >= 0], ns[ns > 0][work >= 0])


# The findings of one rank of a job: what the job tells comes first, and what only follows from it is left
# out.


class RankFindings(Findings, frozen=True):
    """headline: the rank's own sentence, as its overview has it, without what only follows from the job's findings;
    step: the part of it about a step. Both tell for whom it waits."""

    headline: str
    step: str


def rank_findings(about: OneRank) -> RankFindings:
    """What to change there first."""
    job, profile = about.job, about.profile
    own = profile.of(findings)
    rest = without_symptoms(job, about.rank, own.findings)
    step = step_sentence(profile, _verdict(waiting_words(job, about.place), verdict_of(rest)))
    return RankFindings(ranked([*job.of(job_findings), *rest]), own.rules, with_compile(profile, step), step)


def _verdict(waits: str, own: str) -> str:
    """ " → waits for rank 1 for 98.2 % of its steps", before what is the rank's own."""
    return f" → {waits}{own.replace(' → ', '; ', 1)}" if waits else own
