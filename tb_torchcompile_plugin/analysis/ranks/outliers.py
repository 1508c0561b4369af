"""Which of many ranks, hosts and links are slow, and what would a step of the job take without them?

Where traces were read all ranks are replayed; by digests alone as a chain, with wider bounds. Several outliers may be
slow at once, and the slowest hides the others: each is predicted with those before it fixed.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import formatting, thresholds
from tb_torchcompile_plugin.analysis.causes.cause import step_after
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Predicted, prediction, severity_of
from tb_torchcompile_plugin.analysis.ranks import late as why_late
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, OutlierKind, OutlierRow, late_rows
from tb_torchcompile_plugin.analysis.ranks.rank_differences import compiled_differently
from tb_torchcompile_plugin.job import as_early, chain
from tb_torchcompile_plugin.job.chain import Slow, SlowLink
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import Late, compared_steps, late
from tb_torchcompile_plugin.job.overlap import hideable_share
from tb_torchcompile_plugin.job.steps import job_step_us, job_steps, waited_in_steps
from tb_torchcompile_plugin.profile.columns import Floats
from tb_torchcompile_plugin.profile.intervals import us
from tb_torchcompile_plugin.profile.model.gpu_queue import OVERLAP_GAIN

# Chosen by eye on the recordings, except for the ratio.
FEW_RANKS = 8  # up to so many, each rank is shown; of more, the outliers
_UNIFORM_PERCENT = 33.0  # gain from which a host that is slower at everything is a finding
_MAX_GAIN_RATIO = 1.1  # of the replayed gain to the chain's: the most that replaying the same jobs gave
_MAX_OUTLIERS = 10  # of each kind, that are compared with each other
_MAX_HOSTS = 4  # that one sentence names
_MAX_RANKS = 64  # that a row lists


class Outlier(NamedTuple):
    """A slow rank or host, or a slow link."""

    what: Slow | SlowLink
    why: LateRank | None  # what its slowest rank does; None where unknown
    predicted: Predicted | None  # with those before it fixed, too; None where no step is known
    first: bool  # whether nothing is before it


class _Candidate(NamedTuple):
    what: Slow | SlowLink
    why: list[Late]
    explained: float  # which share of it is known to be its own


class _Description(NamedTuple):
    """An outlier in words."""

    kind: OutlierKind
    name: str
    words: str
    where: list[str]
    next_step: str
    longer_us: float  # per step, compared with its peers
    evidence: Evidence


def now_ns(job: Job) -> float:
    """Return the step of the job, 0 where it has none."""
    return 1000 * (job.of(job_step_us) or 0.0)


def _replayed_ns(
    job: TracedJob,
    changes: Mapping[int, as_early.Change] = MappingProxyType({}),
    transfers: Floats | float = 1.0,
) -> float:
    """Return the step of the job replayed without what profiling added, with some changes of its ranks."""
    cost = job.of(as_early.overhead_per_event_ns)
    return as_early.step_of_job_ns(as_early.job_clocks(job, changes, transfers, cost))


def if_early(job: Job, indices: list[int]) -> Predicted | None:
    """Predict a step with these ranks as early as their peers; None where no step is known."""
    lates = job.of(late)
    if isinstance(job, TracedJob):
        more = any(blamed.cause == "more_work" for row in lates for blamed in row.parts)
        variants = [True, False] if more else [True]
        return _replayed(job, *(as_early.changes_without_excess(job, indices, shared) for shared in variants))
    share = chain.saved_share(job, indices)
    return _shorter(
        job.of(now_ns), share, chain.explained([row for row in lates if row.rank_index in indices])
    )


def _shorter(now: float, share: float, known: float) -> Predicted | None:
    """Predict a step (ns) that is shorter by a share, at least by its known part; None if nothing would be left."""
    if not now or share >= 1:
        return None
    shares = (share, share * known, share * _MAX_GAIN_RATIO)
    # a step that takes no time at all would be no prediction
    return prediction(now, *(now * (1 - min(value, 0.999)) for value in shares))


def if_even(job: Job, stages: as_early.Stages) -> Predicted | None:
    """Predict a step with even stages; by digests, the longest one's excess is gone or all shrinks in proportion."""
    if isinstance(job, TracedJob):
        return _replayed(job, as_early.even_stages(job, stages))
    now, longest = job.of(now_ns), float(stages.compute_ns[stages.longest])
    if not now:
        return None
    return prediction(now, max(now - (longest - stages.mean_ns), 1.0), now * stages.mean_ns / longest)


def if_overlapped(job: Job) -> Predicted | None:
    """Predict a step whose transfers overlap compute; by digests, as far as there is compute that nothing overlaps."""
    if isinstance(job, TracedJob):
        hidden_share = job.of(hideable_share)
        transfers = [1 - part * hidden_share for part in (OVERLAP_GAIN, 1.0, 0.0)]
        return _after(job, *(_replayed_ns(job, transfers=part) for part in transfers))
    now, steps = job.of(now_ns), [steps for steps in job.of(job_steps) if steps is not None]
    if not now or not steps:
        return None
    hidden = np.median([np.minimum(rank.exposed_transfer, rank.compute).mean() for rank in steps])
    return prediction(now, *(now - part * min(float(hidden), now - 1) for part in (OVERLAP_GAIN, 1.0, 0.0)))


def _replayed(job: TracedJob, *changes: Mapping[int, as_early.Change]) -> Predicted:
    """Predict by the first change; the others give the bounds."""
    return _after(job, *(_replayed_ns(job, change) for change in changes))


def _after(job: TracedJob, *replayed_ns: float) -> Predicted:
    """Predict from the step of the job by how much shorter the replayed one gets."""
    now, before = job.of(now_ns), job.of(_replayed_ns)
    return prediction(now, *(now * min(ns / before, 1.0) for ns in replayed_ns))


def is_worth_reporting(job: Job, predicted: Predicted, is_uniform: bool) -> bool:
    """Return whether a fix brings enough (by digests, at least); more for a rank that is slower at everything."""
    least = predicted.gain_percent
    if not isinstance(job, TracedJob):
        least = 100 * (1 - predicted.high_us / predicted.step_us)
    return least >= thresholds.gain_percent and (not is_uniform or predicted.gain_percent >= _UNIFORM_PERCENT)


def waited_us(job: Job, indices: list[int]) -> float:
    """Return how long another rank waits for these in the steps that all ranks have, per step, unprofiled."""
    inside = job.of(waited_in_steps)
    caused = int(inside.caused_by[indices].sum())
    others = max(len(job.digests) - len(indices), 1)
    slowdown = (
        as_early.step_of_job_ns(job.of(as_early.job_clocks)) / job.of(_replayed_ns)
        if isinstance(job, TracedJob)
        else 1.0
    )
    return caused / 1000 / (inside.steps or compared_steps(job)) / others / slowdown


def gain_fields(job: Job, predicted: Predicted, **numbers: float) -> dict[str, Any]:
    """Return the fields that all predicted findings about a job share; numbers are further evidence."""
    gain = predicted.step_us - predicted.after_us
    return {
        "severity": severity_of(predicted.gain_percent),
        "evidence": {"gain_us_per_step": gain, "share_percent": predicted.gain_percent, **numbers},
        "saves_us": gain * compared_steps(job),
        "panel": "ranks",
        "predicted": predicted,
    }


def is_many(job: Job) -> bool:
    """Return whether to look for outliers: several may be to blame, and no trace shows more."""
    return len(job.digests) > FEW_RANKS and not isinstance(job, TracedJob)


def outliers(job: Job) -> list[Outlier]:
    """Return the outliers of many ranks without traces, most gain first."""
    if not is_many(job):
        return []
    slowest: list[Slow | SlowLink] = [*job.of(chain.slow)[:_MAX_OUTLIERS]]
    slowest += job.of(chain.slow_links)[:_MAX_OUTLIERS]
    candidates = []
    for what in slowest:
        why = job.of(chain.why_slow, what.rank_indices[0]) if isinstance(what, Slow) else []
        candidates.append(_Candidate(what, why, chain.explained(why) if isinstance(what, Slow) else 1.0))
    candidates.sort(key=lambda candidate: -_saved(job, [candidate]))
    saved, now, rows = 0.0, job.of(now_ns), []
    for number, candidate in enumerate(candidates[:_MAX_OUTLIERS]):
        more = max(_saved(job, candidates[: number + 1]), saved)
        share = (more - saved) / max(1 - saved, 1e-9)
        predicted = _shorter(now * (1 - saved), share, candidate.explained)
        why_row = next(iter(late_rows(job, candidate.why)), None)
        rows.append(Outlier(candidate.what, why_row, predicted, number == 0))
        saved = more
    return rows


def _saved(job: Job, candidates: Sequence[_Candidate]) -> float:
    """Return by which share a step is shorter without these."""
    shares: dict[int, float] = {}
    links: list[SlowLink] = []
    for candidate in candidates:
        if isinstance(candidate.what, SlowLink):
            links.append(candidate.what)
        else:
            shares |= dict.fromkeys(candidate.what.rank_indices, candidate.explained)
    return chain.saved_without(job, shares, links)


def outlier_findings(job: Job) -> list[Finding]:
    """Return the outliers whose fix brings enough, most first."""
    findings = []
    for outlier in job.of(outliers):
        # A single rank may be slower at everything by chance; several of a host are not.
        is_alone = isinstance(outlier.what, Slow) and outlier.what.host is None
        is_uniform = is_alone and not (outlier.why and why_late.distinctive_reasons(outlier.why))
        if outlier.predicted and is_worth_reporting(job, outlier.predicted, is_uniform):
            findings.append(_finding(job, outlier, outlier.predicted))
    return findings


def _finding(job: Job, outlier: Outlier, predicted: Predicted) -> Finding:
    description = _described(job, outlier)
    is_link = description.kind == "link"
    fixed = "as fast as elsewhere," if is_link else "as early as its peers,"
    hidden = "" if outlier.first else ", once what hides it is mended"
    return Finding(
        rule={"link": "slow_link", "host": "slow_host"}.get(description.kind, "late_rank"),
        title=f"{description.words}; {step_after(predicted, fixed)}{hidden}",
        row=None if is_link else f"ranks:{job.numbers[outlier.what.rank_indices[0]]}",
        next_step=description.next_step,
        where=description.where,
        **gain_fields(job, predicted, ranks=len(outlier.what.rank_indices), **description.evidence),
    )


def outlier_rows(job: Job) -> list[OutlierRow]:
    """Return the outliers of many ranks, large gain or not, most first; then ranks that compiled something else."""
    if not is_many(job):
        return []
    rows = []
    for outlier in job.of(outliers):
        row, predicted = _described(job, outlier), outlier.predicted
        gain_us = predicted.step_us - predicted.after_us if predicted else None
        ranks = sorted(job.numbers[index] for index in outlier.what.rank_indices)
        shown = ranks[:_MAX_RANKS]
        rows.append(OutlierRow(row.kind, row.name, shown, len(ranks), row.words, row.longer_us, gain_us))
    rows.sort(key=lambda row: -(row.gain_us or 0.0))
    for different in job.of(compiled_differently):
        ranks = [job.numbers[index] for index in different.rank_indices]
        name = _hosts(chain.hosts_of(job, different.rank_indices))
        name = name or f"rank{'s' if len(ranks) > 1 else ''} {formatting.listed_numbers(ranks)}"
        words = f"{name[:1].upper()}{name[1:]} compiled otherwise: {different.words}"
        rows.append(OutlierRow("compiled", name, ranks[:_MAX_RANKS], len(ranks), words, None, None))
    return rows


def _described(job: Job, outlier: Outlier) -> _Description:
    if isinstance(outlier.what, SlowLink):
        return _described_link(job, outlier.what)
    return _described_ranks(job, outlier.what, outlier.why)


def _described_ranks(job: Job, what: Slow, why: LateRank | None) -> _Description:
    """Describe a rank ("Rank 37 is late by 4.53 ms a step, …: it runs Python …"), or a host by its slowest rank."""
    rank, longer_us = job.numbers[what.rank_indices[0]], what.ns / 1000 / compared_steps(job)
    main, does = why_late.main_cause(why) if why else None, _does(job, what, why)
    line = [main.where] if main and main.where else []
    evidence: Evidence = {
        "longer_us_per_step": longer_us,
        "waited_us_per_step": waited_us(job, what.rank_indices),
    }
    if what.host is None:
        words = f"Rank {rank} is late by {formatting.duration(longer_us)} a step, and the others wait for it"
        words += f": it {does}" if does else ""
        next_step = why_late.advice(main) if main else why_late.SEE_TIMELINE
        return _Description(
            "rank", f"rank {rank}", words, [f"rank {rank}", *line], next_step, longer_us, evidence
        )
    ranks = f"with {formatting.plural(len(what.rank_indices), 'rank')} ({_ranks(job, what)})"
    words = f"Host {what.host} is late by {formatting.duration(longer_us)} a step, {ranks}, and the others wait for it"
    words += f": rank {rank} {does}" if does else ""
    next_step = (
        f"Look at {what.host}: whether its GPUs are throttled (nvidia-smi -q -d PERFORMANCE,CLOCK; AMD: rocm-smi), "
        "what else runs on it, whether its disks are slower; leave it out of the job to see what that brings"
    )
    return _Description("host", what.host, words, [what.host, *line], next_step, longer_us, evidence)


def _does(job: Job, what: Slow, why: LateRank | None) -> str:
    """Return what the slowest of its ranks does beyond its peers; "" where unknown."""
    if why is None:
        return ""
    index = what.rank_indices[0]
    compiles = why_late.main_cause(why).cause in why_late.COMPILING
    compiled = why_late.compiled_before(job, index, job.of(chain.why_slow, index)) if compiles else None
    words = why_late.compiled_words(compiled, job.numbers[index]) if compiled else ""
    return f"{why_late.main_reason_words(why, compared_steps(job))}{words}"


def _described_link(job: Job, link: SlowLink) -> _Description:
    """Describe a link: "All reduce of 2 groups between a and b (ranks …) moves 2.28 GB/s, 9.07 GB/s elsewhere"."""
    operation = link.kind.operation.replace("_", " ").capitalize()
    name = link.kind.group.name if link.kind.group else ""
    groups = f"group {name}" if link.groups == 1 and name else formatting.plural(link.groups, "group")
    hosts, ranks = _hosts(link.hosts), f"ranks {_ranks(job, link)}"
    between = f" between {hosts}" if hosts else ""
    if link.kind.message_bytes <= 0:
        speed = (
            f"takes {formatting.duration(us(link.ns))}, {formatting.duration(us(link.usual_ns))} elsewhere"
        )
    else:
        own, usual = (
            formatting.significant(link.kind.message_bytes / max(ns, 1)) for ns in (link.ns, link.usual_ns)
        )
        speed = f"moves {own} GB/s, {usual} GB/s elsewhere"
    return _Description(
        "link",
        hosts or ranks,
        f"{operation} of {groups}{between} ({ranks}) {speed}",
        link.hosts or [ranks],
        f"Look at what joins {hosts or 'these ranks'}: NCCL_DEBUG=INFO tells over which links it sends, nccl-tests how "
        "fast they are, ibstat and nvidia-smi nvlink --status (AMD: amd-smi xgmi) which are down or slower",
        link.excess_ns / 1000 / compared_steps(job),
        {"transfer_us": us(link.ns), "usual_transfer_us": us(link.usual_ns)},
    )


def _ranks(job: Job, what: Slow | SlowLink) -> str:
    return formatting.listed_numbers(sorted(job.numbers[index] for index in what.rank_indices))


def _hosts(names: list[str]) -> str:
    """Return "a, b and c"; "" for none or for more than a sentence can name."""
    return formatting.joined_names(names) if len(names) <= _MAX_HOSTS else ""
