"""What do the panel, the report and pandas show of a job as a whole, and what should be changed on one of its ranks?

A rank is judged as a span on its own, except that waiting for another rank cannot be overlapped: only transfers can,
and the rank that is waited for is named.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.communication import overlap_collectives
from tb_torchcompile_plugin.analysis.causes.findings import Findings, findings, sort_findings
from tb_torchcompile_plugin.analysis.causes.overview import first_change, headline_with_compile, step_sentence
from tb_torchcompile_plugin.analysis.causes.scenario import PossibleFixes, Scenario, scenario_with, span_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import predict_fix, why_nothing
from tb_torchcompile_plugin.analysis.formatting import duration, listed_numbers, percent, plural
from tb_torchcompile_plugin.analysis.ranks import job_rows as rows
from tb_torchcompile_plugin.analysis.ranks.job_findings import (
    OF_COLLECTIVES,
    is_symptom,
    job_findings,
    waiting_ranks,
    waits_in_a_circle,
)
from tb_torchcompile_plugin.analysis.ranks.outliers import is_many, late_indices, outliers
from tb_torchcompile_plugin.job.as_early import has_models
from tb_torchcompile_plugin.job.instances import blame, calls, clocks, instances, rows_of_calls, waits
from tb_torchcompile_plugin.job.job import Job, OneRank, TracedJob
from tb_torchcompile_plugin.job.steps import job_step_us, job_steps
from tb_torchcompile_plugin.profile.columns import indices_in
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue


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


# Of more than _MAX_RANKS ranks tables are cut to what fits a page; the map has all ranks.
_MAX_RANKS, _MAX_WAITS, _MAX_COLLECTIVES, _MAX_CAUSES = 64, 256, 64, 8
_MAX_LATEST = 10  # ranks that others wait for most, shown before the first ones
_MAX_SETS = 8  # of ranks that are listed
_MIN_UNKNOWN_PERCENT = 1.0  # of a step, from which it is worth a sentence (chosen by eye)


def job_report(job: Job, whole: bool = False) -> rows.JobReport:
    """Return who waits for whom, why, and how fast collectives are; of many ranks some, unless the whole is wanted."""
    residual, late = job.of(clocks).residual_ns_p95, job.of(rows.late_ranks)
    shown: Sequence[int] = range(len(job.digests))
    if whole or len(shown) <= _MAX_RANKS:
        waits, collectives = rows.wait_rows(job), rows.collective_rows(job)
    else:
        shown, waits = _shown(job), rows.wait_rows(job, _MAX_WAITS)
        collectives = rows.collective_rows(job, _MAX_COLLECTIVES)
        collectives = [
            replace(row, ranks=row.ranks[:_MAX_RANKS], most_waiting=row.most_waiting[:_MAX_RANKS])
            for row in collectives
        ]
        late = [replace(row, causes=row.causes[:_MAX_CAUSES]) for row in late]
    steps = rows.step_rows(job, set(shown))
    return rows.JobReport(
        headline=_headline(job),
        basis=_basis(job),
        ranks=len(job.digests),
        step_us=job.of(job_step_us),
        missing_ranks=job.missing,
        world_size=job.world_size,
        clock_residual_us_p95=None if residual is None else residual / 1000,
        by_rank=[job.of(rows.rank_rows)[index] for index in shown],
        waits=waits,
        collectives=collectives,
        steps=steps,
        late=late,
        findings=job.of(job_findings),
        warnings=[*job.unread.values(), *(notice for digest in job.digests for notice in digest.notices)],
        traced=isinstance(job, TracedJob),
        map=job.of(rows.job_map, "late_us" if is_many(job) else "exposed_wait_us"),
        left_out=rows.LeftOut(
            by_rank=len(job.digests) - len(shown),
            waits=len(job.of(blame).ns) - len(waits),
            collectives=len(np.unique(job.of(rows.collective_codes))) - len(collectives),
            steps=sum(len(rank.step) for rank in job.of(job_steps) if rank) - len(steps),
        ),
    )


def _shown(job: Job) -> list[int]:
    """Return the indices of the ranks to show: outliers, those that the others wait for most, the first ones."""
    slowest = late_indices(job.of(outliers))
    latest = np.argsort(-job.of(blame).caused_by(len(job.digests)), kind="stable")[:_MAX_LATEST].tolist()
    return list(dict.fromkeys([*slowest[: _MAX_RANKS // 2], *latest, *range(_MAX_RANKS)]))[:_MAX_RANKS]


def _headline(job: Job) -> str:
    """Return the first finding; without one, how much the ranks wait."""
    first = next(iter(job.of(job_findings)), None)
    if first:
        return f"{first.title}."
    ranks = job.of(rows.rank_rows)
    count = plural(len(ranks), "rank")
    if not len(job.of(instances)):
        return f"{count} were recorded, but no collective that two of them share."
    step_us = job.of(job_step_us)
    step = f"A step of the {count} takes {duration(step_us)}. " if step_us is not None else ""
    unknown_ns, span_ns, unknown = _unknown(job)
    waited = sum(row.wait_us for row in ranks) * 1000
    limit = thresholds.communication_percent * span_ns / 100
    if unknown_ns >= max(limit, waited, 1):
        return f"{step}{unknown}."
    if not waited:
        return f"{step}No rank waits for another."
    row = max(ranks, key=lambda row: row.wait_us)
    quiet = "Ranks wait little for each other. " if waited + unknown_ns < limit else ""
    return f"{step}{quiet}Rank {row.rank} waits most: {duration(row.wait_us)} in the whole recording."


def _unknown(job: Job) -> tuple[int, int, str]:
    """Return the ns in which collectives run alone and either wait or transfer, the ns of all steps, and a sentence."""
    steps = [steps for steps in job.of(job_steps) if steps is not None]
    unknown = sum(int(rank.exposed_unknown.sum()) for rank in steps)
    time = duration(unknown / max(sum(len(rank.step) for rank in steps), 1) / 1000)
    words = f"Collectives run alone for {time} per step, and whether they wait or transfer is unknown"
    return unknown, sum(int(rank.span.sum()) for rank in steps), words


def _basis(job: Job) -> str:
    """Say which ranks were recorded, what could be matched, and how good the common clock is."""
    of_call = job.of(instances).of_call
    matched, unmatched = int((of_call >= 0).sum()), int((of_call < 0).sum())
    calls = (
        f"{plural(matched, 'call')} of collectives {'was' if matched == 1 else 'were'} matched across ranks"
    )
    left = f" {unmatched:,} could not be matched, so their waits are unknown." if unmatched else ""
    lines = [_recorded_ranks(job), f"{calls}.{left}"]
    if damaged := [digest.rank for digest in job.digests if digest.notices]:
        ranks = f"rank{'s' if len(damaged) > 1 else ''} {listed_numbers(damaged)}"
        lines.append(f"Part of the trace of {ranks} is missing, so its calls are not matched.")
    unknown_ns, span_ns, unknown = _unknown(job)
    if unknown_ns and unknown_ns * 100 >= _MIN_UNKNOWN_PERCENT * span_ns:
        lines.append(f"{unknown}, so waits are a lower bound.")
    lines += _clock_words(job)
    if isinstance(job, TracedJob) and job.of(has_models) and job.of(waits_in_a_circle):
        lines.append(
            "Gains are not predicted because, in the model of the steps, ranks wait for each other in a circle."
        )
    return " ".join(lines)


def _recorded_ranks(job: Job) -> str:
    ranks, missing = plural(len(job.digests), "rank"), job.missing
    if not missing:
        return f"All {ranks} of the job were recorded." if job.world_size else f"{ranks} were recorded."
    of = f" of {job.world_size}" if job.world_size else ""
    return (
        f"{ranks}{of} were recorded. {plural(len(missing), 'rank is', 'ranks are')} missing "
        f"({listed_numbers(missing)}), so waits are a lower bound."
    )


def _clock_words(job: Job) -> list[str]:
    """Say how good the common clock is, and which ranks share none."""
    clock, lines = job.of(clocks), []
    apart = [np.flatnonzero(clock.shared == code) for code in np.unique(clock.shared)]
    if clock.residual_ns_p95 is not None:
        among = " among ranks that share collectives" if len(apart) > 1 else ""
        residual = duration(clock.residual_ns_p95 / 1000)
        lines.append(f"The clocks of the ranks agree to {residual} (95th percentile){among}.")
    if len(apart) > 1:
        sets = [listed_numbers([job.numbers[index] for index in indices]) for indices in apart[:_MAX_SETS]]
        more = f" and {plural(len(apart) - _MAX_SETS, 'more')}" if len(apart) > _MAX_SETS else ""
        ranks = "the ranks" if clock.residual_ns_p95 is None else f"ranks {' and '.join(sets)}{more}"
        lines.append(f"The offset between the clocks of {ranks} is unknown.")
    return lines
