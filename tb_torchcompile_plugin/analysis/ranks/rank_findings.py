"""The findings of one rank of a job: what the job tells comes first, and what only follows from it is left out."""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.findings.findings import Findings, findings, ranked
from tb_torchcompile_plugin.analysis.overview.headline import step_sentence, verdict_of
from tb_torchcompile_plugin.analysis.overview.overview import with_compile
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings, without_symptoms
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import Job


class RankFindings(Findings, frozen=True):
    """headline: the rank's own sentence, as its overview has it, without what only follows from the job's findings."""

    headline: str


def rank_findings(job: Job, rank: int) -> RankFindings:
    """Of a rank that is here. Raises NotFound."""
    one = next((one for one in job.ranks if one.rank == rank), None)
    if one is None:
        raise NotFound(f"no trace of rank {rank} can be read", next_step="Ask for one that `job` lists")
    own = one.profile.of(findings)
    rest = without_symptoms(job, rank, own.findings)
    said = with_compile(one.profile, step_sentence(one.profile, verdict_of(rest)))
    return RankFindings(ranked([*job.of(job_findings), *rest]), own.rules, said)
