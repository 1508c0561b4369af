"""The answer about a job as a whole: what panel, report and pandas show of it."""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.ranks import job_rows as rows
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings, waits_in_a_circle
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport
from tb_torchcompile_plugin.analysis.ranks.overlap_rows import overlap_headline, overlap_rows, overlap_us
from tb_torchcompile_plugin.analysis.words import duration, plural
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.coupled import has_models
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.steps import job_steps

_WAITS = 64 * 64  # pairs of ranks: a picture of 64 is whole
_OVERLAPPED = 100  # kernels
_NAMED = 8  # missing ranks that are listed


def job_report(job: Job) -> JobReport:
    """Who waits for whom, why, and how fast collectives are."""
    residual, of_call = job.of(clocks).residual_ns_p95, job.of(instances).of_call
    return JobReport(
        headline=_headline(job),
        basis=_basis(job),
        ranks=len(job.ranks),
        missing_ranks=job.missing,
        world_size=job.world_size,
        clock_residual_us_p95=None if residual is None else residual / 1000,
        matched=int((of_call >= 0).sum()),
        unmatched=int((of_call < 0).sum()),
        by_rank=job.of(rows.by_rank),
        waits=job.of(rows.wait_rows)[:_WAITS],
        waits_left_out_us=sum((row.wait_us for row in job.of(rows.wait_rows)[_WAITS:]), 0.0),
        collectives=job.of(rows.collective_rows),
        steps=job.of(rows.step_rows),
        late=job.of(rows.late_ranks),
        overlap_us=job.of(overlap_us),
        overlap_headline=job.of(overlap_headline),
        overlap=job.of(overlap_rows)[:_OVERLAPPED],
        findings=job.of(job_findings),
        warnings=list(job.unread.values()),
    )


def _headline(job: Job) -> str:
    """The first finding; where there is none, how much the ranks wait."""
    first = next(iter(job.of(job_findings)), None)
    if first:
        return f"{first.title}."
    ranks = job.of(rows.by_rank)
    if not job.of(instances).members:
        return (
            f"{plural(len(ranks), 'rank')}, and no collective that two of them have in common was recorded."
        )
    steps = [row.step_us for row in ranks if row.step_us is not None]
    step = f"A step of the {plural(len(ranks), 'rank')} takes {duration(max(steps))}. " if steps else ""
    waited = max(ranks, key=lambda row: row.wait_us)
    most = f"rank {waited.rank} waits most, {duration(waited.wait_us)} in all that was recorded"
    return f"{step}{_nobody(job, most)}"


def _nobody(job: Job, most: str) -> str:
    """Where no finding tells of a late rank: whether that is because nobody waits to speak of."""
    spans = sum(int(one.span.sum()) for one in job.of(job_steps) if one is not None)
    waited = sum(row.wait_us for row in job.of(rows.by_rank)) * 1000
    quiet = waited * 100 < thresholds.communication_percent * spans
    return f"No rank keeps the others waiting: {most}." if quiet else f"{most[0].upper()}{most[1:]}."


def _basis(job: Job) -> str:
    """Who is here, what could be matched, and how good the common clock is."""
    residual, of_call = job.of(clocks).residual_ns_p95, job.of(instances).of_call
    matched, unmatched = int((of_call >= 0).sum()), int((of_call < 0).sum())
    left = f"{unmatched:,} could not be: their waits are not known" if unmatched else "none is left over"
    lines = [_who(job), f"{plural(matched, 'call')} of collectives matched, {left}."]
    if residual is not None:
        lines.append(f"The clocks of the ranks agree to {duration(residual / 1000)} (95th percentile).")
    if job.of(has_models) and job.of(waits_in_a_circle):
        lines.append(
            "What mending brings is not predicted: by the model of their steps ranks wait for each other in a circle."
        )
    return " ".join(lines)


def _who(job: Job) -> str:
    here, missing = plural(len(job.ranks), "rank"), job.missing
    if not missing:
        return f"All {here} of the job are here." if job.world_size else f"{here.capitalize()} are here."
    of = f" of {job.world_size}" if job.world_size else ""
    numbers = ", ".join(map(str, missing[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
    return (
        f"{here.capitalize()}{of} are here; {plural(len(missing), 'rank')} missing ({numbers}): "
        "what the others waited for them is not known, and waits are a lower bound."
    )
