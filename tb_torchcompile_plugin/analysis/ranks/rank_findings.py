"""The findings of one rank of a job: what the job tells comes first, and what only follows from it is left out."""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.findings.findings import Findings, findings, ranked
from tb_torchcompile_plugin.analysis.overview.headline import step_sentence, verdict_of
from tb_torchcompile_plugin.analysis.overview.overview import with_compile
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings, without_symptoms
from tb_torchcompile_plugin.analysis.ranks.rank_waits import waiting_words
from tb_torchcompile_plugin.job.job import OneRank


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
