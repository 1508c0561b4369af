"""The answer about a job as a whole: what panel, report and pandas show of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.formatting import duration, listed, plural
from tb_torchcompile_plugin.analysis.ranks import job_rows as rows
from tb_torchcompile_plugin.analysis.ranks.collectives import overlap_headline, overlap_rows, overlap_us
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings, waits_in_a_circle
from tb_torchcompile_plugin.analysis.ranks.job_rows import (
    CollectiveRow,
    JobReport,
    JobStep,
    LateRank,
    LeftOut,
    OutlierRow,
    RankRow,
    WaitRow,
    job_map,
)
from tb_torchcompile_plugin.analysis.ranks.outliers import is_many, outlier_rows, outliers
from tb_torchcompile_plugin.job.as_early import has_models
from tb_torchcompile_plugin.job.chain import Slow
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.steps import RankSteps, job_steps
from tb_torchcompile_plugin.job.waits import blame
from tb_torchcompile_plugin.profile.units import us

_RANKS = 64  # of more, that many are told: a picture of them is whole
_WAITS = _RANKS * _RANKS  # pairs of ranks, of few
_MANY = {"waits": 256, "collectives": 64, "outliers": 10, "causes": 8}  # rows of many ranks
_LATEST = 10  # ranks that others wait for most, before the first ones
_OVERLAPPED = 100  # kernels
_NAMED = 8  # sets of ranks that are listed
_UNKNOWN_PERCENT = 1.0  # of a step, from which on it is worth a word


def job_report(job: Job, whole: bool = False) -> JobReport:
    """Who waits for whom, why, and how fast collectives are. Of many ranks outliers and the first ones, unless
    the whole is asked for."""
    residual, of_call = job.of(clocks).residual_ns_p95, job.of(instances).of_call
    tables = _tables(job, whole or len(job.digests) <= _RANKS)
    pairs = len(job.of(blame).ns)
    return JobReport(
        headline=_headline(job),
        basis=_basis(job),
        ranks=len(job.digests),
        missing_ranks=job.missing,
        world_size=job.world_size,
        clock_residual_us_p95=None if residual is None else residual / 1000,
        matched=int((of_call >= 0).sum()),
        unmatched=int((of_call < 0).sum()),
        by_rank=tables.by_rank,
        waits=tables.waits,
        waits_left_out_us=us(np.sort(job.of(blame).ns)[: pairs - len(tables.waits)].sum()),
        collectives=tables.collectives,
        steps=tables.steps,
        late=tables.late,
        overlap_us=job.of(overlap_us) if isinstance(job, TracedJob) else None,
        overlap_headline=job.of(overlap_headline) if isinstance(job, TracedJob) else None,
        overlap=job.of(overlap_rows)[:_OVERLAPPED] if isinstance(job, TracedJob) else [],
        findings=job.of(job_findings),
        warnings=[
            *job.unread.values(),
            *(notice for one in _damaged(job) for notice in one.notices),
        ],
        traced=isinstance(job, TracedJob),
        outliers=tables.outliers,
        map=job.of(job_map, "late_us" if is_many(job) else "exposed_wait_us"),
        left_out=LeftOut(
            by_rank=len(job.digests) - len(tables.by_rank),
            waits=pairs - len(tables.waits),
            collectives=len(np.unique(job.of(rows.collective_codes))) - len(tables.collectives),
            steps=sum(len(one.step) for one in job.of(job_steps) if one is not None) - len(tables.steps),
            late=len(_late(job)) - len(tables.late),
            outliers=len(job.of(outlier_rows)) - len(tables.outliers),
        ),
    )


class _Tables(NamedTuple):
    by_rank: list[RankRow]
    waits: list[WaitRow]
    collectives: list[CollectiveRow]
    steps: list[JobStep]
    late: list[LateRank]
    outliers: list[OutlierRow]


def _tables(job: Job, whole: bool) -> _Tables:
    ranks = job.of(rows.by_rank)
    if whole:
        waits = rows.wait_rows(job, _WAITS if len(ranks) <= _RANKS else None)
        return _Tables(
            ranks, waits, rows.collective_rows(job), rows.step_rows(job), _late(job), job.of(outlier_rows)
        )
    shown = _shown(job)
    return _Tables(
        by_rank=[ranks[place] for place in shown],
        waits=rows.wait_rows(job, _MANY["waits"]),
        collectives=[
            replace(row, ranks=row.ranks[:_RANKS]) for row in rows.collective_rows(job, _MANY["collectives"])
        ],
        steps=rows.step_rows(job, set(shown)),
        late=[replace(row, causes=row.causes[: _MANY["causes"]]) for row in _late(job)],
        outliers=job.of(outlier_rows)[: _MANY["outliers"]],
    )


def _shown(job: Job) -> list[int]:
    """Places of ranks: outliers, those that the others wait for most, the first."""
    slowest = [place for one in job.of(outliers) if isinstance(one.what, Slow) for place in one.what.places]
    latest = np.argsort(-job.of(blame).caused_by(len(job.digests)), kind="stable")[:_LATEST].tolist()
    return list(dict.fromkeys([*slowest[: _RANKS // 2], *latest, *range(_RANKS)]))[:_RANKS]


def _late(job: Job) -> list[LateRank]:
    """Of outliers first."""
    slowest = [one.why for one in job.of(outliers) if one.why]
    known = {row.rank for row in slowest}
    return [*slowest, *(row for row in job.of(rows.late_ranks) if row.rank not in known)]


def _headline(job: Job) -> str:
    """The first finding; where there is none, how much the ranks wait."""
    first = next(iter(job.of(job_findings)), None)
    if first:
        return f"{first.title}."
    ranks = job.of(rows.by_rank)
    if not len(job.of(instances)):
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
    steps = [one for one in job.of(job_steps) if one is not None]
    unknown = sum(int(one.exposed_unknown.sum()) for one in steps)
    waited = sum(row.wait_us for row in job.of(rows.by_rank)) * 1000
    limit = thresholds.communication_percent * sum(int(one.span.sum()) for one in steps) / 100
    if unknown >= max(limit, waited, 1):
        return f"{_unknown_of(steps)}."
    quiet = waited + unknown < limit
    return f"No rank keeps the others waiting: {most}." if quiet else f"{most[0].upper()}{most[1:]}."


def _basis(job: Job) -> str:
    """Who is here, what could be matched, and how good the common clock is."""
    of_call = job.of(instances).of_call
    matched, unmatched = int((of_call >= 0).sum()), int((of_call < 0).sum())
    left = f"{unmatched:,} could not be: their waits are not known" if unmatched else "none is left over"
    lines = [_who(job), f"{plural(matched, 'call')} of collectives matched, {left}."]
    if damaged := [one.rank for one in _damaged(job)]:
        whose = f"rank{'s' if len(damaged) > 1 else ''} {listed(damaged)}"
        lines.append(f"A part of the trace of {whose} is missing: what it held is not matched.")
    lines += [*_unknown(job), *_clocks(job)]
    if isinstance(job, TracedJob) and job.of(has_models) and job.of(waits_in_a_circle):
        lines.append(
            "What mending brings is not predicted: by the model of their steps ranks wait for each other in a circle."
        )
    return " ".join(lines)


def _damaged(job: Job) -> list[RankDigest]:
    """Ranks of whose trace something is missing."""
    return [one for one in job.digests if one.notices]


def _unknown(job: Job) -> list[str]:
    """How much of a step communication may wait or transfer, where that is worth a word: waits are a lower bound."""
    steps = [one for one in job.of(job_steps) if one is not None]
    unknown = sum(int(one.exposed_unknown.sum()) for one in steps)
    if unknown * 100 < _UNKNOWN_PERCENT * sum(int(one.span.sum()) for one in steps) or not unknown:
        return []
    return [f"{_unknown_of(steps)}: what is told of waits is a lower bound."]


def _unknown_of(steps: list[RankSteps]) -> str:
    mean = sum(int(one.exposed_unknown.sum()) for one in steps) / sum(len(one.step) for one in steps)
    return (
        f"Of {duration(mean / 1000)} a step in which collectives run alone it is not known whether they wait "
        "or transfer"
    )


def _clocks(job: Job) -> list[str]:
    """How good the common clock is, and which ranks share none."""
    known, lines = job.of(clocks), []
    apart = [np.flatnonzero(known.shared == clock) for clock in np.unique(known.shared)]
    if known.residual_ns_p95 is not None:
        among = " among those that have collectives in common" if len(apart) > 1 else ""
        residual = duration(known.residual_ns_p95 / 1000)
        lines.append(f"The clocks of the ranks agree to {residual} (95th percentile){among}.")
    if len(apart) > 1:
        sets = [listed([job.numbers[place] for place in places]) for places in apart]
        which = "the ranks" if known.residual_ns_p95 is None else f"ranks {_joined(sets)}"
        lines.append(f"Nothing tells how far the clocks of {which} are apart.")
    return lines


def _joined(sets: list[str]) -> str:
    """ "0, 1 and 2, 3"."""
    more = f" and {plural(len(sets) - _NAMED, 'more')}" if len(sets) > _NAMED else ""
    return f"{' and '.join(sets[:_NAMED])}{more}"


def _who(job: Job) -> str:
    here, missing = plural(len(job.digests), "rank"), job.missing
    if not missing:
        return f"All {here} of the job are here." if job.world_size else f"{here.capitalize()} are here."
    of = f" of {job.world_size}" if job.world_size else ""
    return (
        f"{here.capitalize()}{of} are here; {plural(len(missing), 'rank')} missing ({listed(missing)}): "
        "what the others waited for them is not known, and waits are a lower bound."
    )
