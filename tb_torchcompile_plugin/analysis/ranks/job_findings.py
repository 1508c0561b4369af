"""What should be changed first about a job: ranks that the others wait for, or communication that nothing overlaps?

All ranks are replayed together without what the late ranks did beyond their peers.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from tb_torchcompile_plugin.analysis import formatting, thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause, split_code
from tb_torchcompile_plugin.analysis.causes.communication import SmallCollectives
from tb_torchcompile_plugin.analysis.causes.eager import GraphBreaks
from tb_torchcompile_plugin.analysis.causes.host import Copies, DriverAllocations, Guards, Synchronise
from tb_torchcompile_plugin.analysis.causes.registry import PRICED
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.causes.training import FusedOptimizer, ReducedOnce
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Predicted
from tb_torchcompile_plugin.analysis.ranks import outliers, why_late
from tb_torchcompile_plugin.analysis.ranks.job_rows import late_ranks
from tb_torchcompile_plugin.analysis.ranks.outliers import Outlier, OutlierKind, is_worth_reporting
from tb_torchcompile_plugin.analysis.runtime.ledger import ledger
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAMES
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks, stages
from tb_torchcompile_plugin.job.chain import Slow, SlowLink, shared_by
from tb_torchcompile_plugin.job.instances import calls, instances, waits
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps, late_by_rank
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.sweep import CircularWaitError
from tb_torchcompile_plugin.profile.columns import us

OF_COLLECTIVES = (ReducedOnce.id, SmallCollectives.id)  # they measure the lengths of collectives
# Causes whose fixes say better what a late rank does than the slices in which it does it.
_EXPLANATORY = (Synchronise, Copies, DriverAllocations, FusedOptimizer, GraphBreaks, Guards)

# Shares, chosen by eye on the recordings.
_AS_MUCH = 0.8  # of the gain if the rank came as early as its peers: from there on a fix is its cause
_DIRECT = 0.5  # of its lateness, from which on the time that others wait for a rank shows what it costs
_WAITING = 0.5  # of the time of a rank's collectives: from there on they are mostly waiting


class JobCause(Cause):
    """A cause that only the ranks of a job together show."""

    panel = "ranks"
    limits = ("gain_percent",)

    def detect_in_job(self, job: Job) -> Iterator[Finding]:
        """Yield what all ranks show."""
        return iter(())

    def with_gain(
        self,
        job: Job,
        title: str,
        next_step: str,
        predicted: Predicted,
        evidence: Mapping[str, float],
        where: list[str],
        row: str | None,
    ) -> Finding:
        """Return a finding whose fix is predicted."""
        gains: Evidence = {"gain_us_per_step": predicted.gain_us, "share_percent": predicted.gain_percent}
        return self.finding(
            title,
            next_step,
            gains | {**evidence},
            saves_us=predicted.gain_us * compared_steps(job),
            predicted=predicted,
            where=where,
            row=row,
        )


class UnevenStages(JobCause):
    """One stage of a pipeline computes longest in two thirds of the steps, and 1.1 times the mean.

    Ranks pass work on by send and recv, and a step gains with even stages. No rank is then called late: the cause is
    how the model was split. Several sends or recvs in one group are not matched; a group of one, as pipelines use, is.
    """

    id = "uneven_stages"

    def detect_in_job(self, job: Job) -> Iterator[Finding]:
        pipeline = job.of(stages)
        predicted = outliers.if_even(job, pipeline) if pipeline else None
        if pipeline is None or predicted is None or predicted.gain_percent < thresholds.gain_percent:
            return
        rank = job.numbers[pipeline.longest]
        user_us, mean_us = float(pipeline.compute_ns[pipeline.longest]) / 1000, pipeline.mean_ns / 1000
        own, mean = formatting.duration(user_us), formatting.duration(mean_us)
        title = (
            f"Rank {rank} has the longest stage of the pipeline: it computes for {own} per step, compared with "
            f"{mean} on average. With even stages, a step takes {_after(predicted)}"
        )
        next_step = (
            "Move layers from this stage to the others: split the model by measured time instead of the number of "
            "layers, or give each rank several smaller stages (ScheduleInterleaved1F1B)"
        )
        evidence = {"compute_us_per_step": user_us, "mean_compute_us_per_step": mean_us}
        yield self.with_gain(job, title, next_step, predicted, evidence, [f"rank {rank}"], f"ranks:{rank}")


class OutlierCause(JobCause, ABC):
    """Ranks or a link that are slow, alone or together."""

    superseded_by = ("uneven_stages",)
    kind: ClassVar[OutlierKind]

    def detect_in_job(self, job: Job) -> Iterator[Finding]:
        for outlier in job.of(outliers.reported):
            if outlier.kind == self.kind and outlier.predicted:
                yield self.of_outlier(job, outlier, outlier.predicted)

    @abstractmethod
    def of_outlier(self, job: Job, outlier: Outlier, predicted: Predicted) -> Finding:
        """Report ranks that are late, alone or together, or a slow link."""


class Straggler(OutlierCause):
    """A rank causes two thirds of the lateness at its collectives, and a step gains if it is as early as its peers.

    Ranks that are late by the same cause, each at least half as late as the latest, are one finding; it names the
    process group or pipeline stage that they share. With traces, unaccounted time has its position. If the slowest
    rank compiles meanwhile, the finding names the function and line, the guard that failed, whether no other rank
    compiled it, and the cache that it missed and other ranks hit. Autotuning meanwhile has its own time.
    """

    id = "late_rank"
    kind: ClassVar[OutlierKind] = "rank"

    def of_outlier(self, job: Job, outlier: Outlier, predicted: Predicted) -> Finding:
        """Name the slowest of the ranks ("Rank 37 is the straggler: …") and what it does."""
        what = outlier.what
        assert isinstance(what, Slow)
        index, count, why = what.rank_indices[0], len(what.rank_indices), outlier.why
        rank, hosts, steps = job.numbers[index], outliers.hosts_in_words(what.hosts), compared_steps(job)
        longer_us, waited = what.ns / 1000 / steps, outliers.waited_us(job, what.rank_indices)
        evidence: Evidence = {"ranks": count, "longer_us_per_step": longer_us, "waited_us_per_step": waited}
        words = _late_in_words(job, what, longer_us, waited)
        does, next_step, line, compiled = "", why_late.SEE_TIMELINE, None, None
        if why:
            evidence |= {"excess_us": why.excess_us, "last": why.instances}
            causes = why_late.main_causes(why)
            main = causes[0]
            subject = "It" if count == 1 else f"Rank {rank}"
            if count > 1 and not what.hosts and why_late.distinctive_reasons(why):
                subject = f"All are late for the same reason. Rank {rank}"
            does = f"{subject} {' and '.join(why_late.reason_words(cause, steps) for cause in causes)}"
            next_step, line = why_late.advice(main), main.where
            if main.cause in why_late.COMPILING:
                compiled = why_late.compiled_before(job, index, outlier.lates)
        if compiled:
            does += why_late.compiled_words(compiled, rank)
            evidence |= {"compile_s": compiled.seconds, "compilations": compiled.times}
            next_step = compiled.guard.advice if compiled.guard else next_step
            line = line or compiled.where
        if what.hosts:
            next_step = (
                f"Check {hosts or 'these hosts'} for throttled GPUs (nvidia-smi -q -d PERFORMANCE,CLOCK; AMD: "
                "rocm-smi), other processes and slower disks. To compare, run the job without them"
            )
        does += _position(job, outlier)
        where = what.hosts[: outliers.MAX_HOSTS] or [outliers.name_in_words(job, what)]
        where = [*where, line] if line else where
        if own := _own_cause(job, outlier, predicted.gain_percent):
            text = PRICED[own.kind].filled(own)
            does, next_step = text.title, split_code(text.next_step)[0]
            line = formatting.at_line(own.file, own.line)
            where = [*where, line] if len(where) == 1 else where
        title = ". ".join(filter(None, (words, does, _without(outlier, predicted))))
        return self.with_gain(job, title, next_step, predicted, evidence, where, f"ranks:{rank}")


def _late_in_words(job: Job, what: Slow, longer_us: float, waited_us: float) -> str:
    """Return who is late, and how long the others wait: "Rank 37 is the straggler: the others wait … for it"."""
    rank, count = job.numbers[what.rank_indices[0]], len(what.rank_indices)
    # In a job of many groups most ranks wait for one that waits for this one.
    time = f" {formatting.duration(waited_us)} per step" if waited_us >= _DIRECT * longer_us else ""
    if count == 1 and time:
        return f"Rank {rank} is the straggler: the others wait{time} for it"
    late = f"{formatting.duration(longer_us)} late per step, and the others wait{time} for"
    if count == 1:
        return f"Rank {rank} is the straggler: it arrives {late} it"
    # "host node0002: 16, 17, 18", "stage 1 of the pipeline: 4, 5" or "3, 7, 11"
    hosts = outliers.hosts_in_words(what.hosts)
    shared = (
        f"host{'s' if len(what.hosts) > 1 else ''} {hosts}" if hosts else shared_by(job, what.rank_indices)
    )
    members = ": ".join(filter(None, (shared, outliers.ranks_in_words(job, what))))
    return f"{count} of {len(job.digests)} ranks ({members}) arrive up to {late} them"


class SlowHost(Straggler):
    """The ranks that are late are all ranks of their hosts.

    Or, by the digests of more than 8 ranks, a host is an [outlier](../concepts/runs.md#outliers-of-many-ranks). A step
    gains (by digests, at the lower end of the range) after the findings that hide it are fixed. Ranks that are slower
    at everything and share no host, stage or process group need 33 %.
    """

    id = "slow_host"
    kind = "host"


class SlowTransfer(OutlierCause):
    """By the digests of more than 8 ranks, a link is an [outlier](../concepts/runs.md#outliers-of-many-ranks).

    A step gains (at the lower end of the range) after the findings that hide it are fixed.
    """

    id = "slow_link"
    kind = "link"

    def of_outlier(self, job: Job, outlier: Outlier, predicted: Predicted) -> Finding:
        """Report such as "All reduce of 2 groups between a and b (ranks …) moves 2.28 GB/s, compared with …"."""
        link = outlier.what
        assert isinstance(link, SlowLink)
        operation = link.kind.operation.replace("_", " ").capitalize()
        name = link.kind.group.name if link.kind.group else ""
        groups = f"group {name}" if link.groups == 1 and name else formatting.plural(link.groups, "group")
        hosts, ranks = outliers.hosts_in_words(link.hosts), f"ranks {outliers.ranks_in_words(job, link)}"
        between = f" between {hosts}" if hosts else ""
        size, times = link.kind.message_bytes, (link.ns, link.usual_ns)
        if size > 0:
            own, usual = (f"{formatting.significant(size / max(ns, 1))} GB/s" for ns in times)
        else:
            own, usual = (formatting.duration(us(ns)) for ns in times)
        speed = f"{'moves' if size > 0 else 'takes'} {own}, compared with {usual} elsewhere"
        next_step = (
            f"Check what connects {hosts or 'these ranks'}. NCCL_DEBUG=INFO shows which links are used, and nccl-tests "
            "how fast they are. ibstat and nvidia-smi nvlink --status (AMD: amd-smi xgmi) show which are down or slower"
        )
        evidence: Evidence = {"ranks": len(link.rank_indices), "transfer_us": us(link.ns)}
        evidence["usual_transfer_us"] = us(link.usual_ns)
        title = f"{operation} of {groups}{between} ({ranks}) {speed}. {_without(outlier, predicted)}"
        return self.with_gain(job, title, next_step, predicted, evidence, link.hosts or [ranks], row=None)


class RanksTakeTurns(JobCause):
    """Several ranks are late, none of them at most of its collectives, and a step gains if all are early."""

    id = "ranks_take_turns"
    superseded_by = ("uneven_stages",)

    def detect_in_job(self, job: Job) -> Iterator[Finding]:
        indices = [index for index, rows in job.of(late_by_rank).items() if any(row.parts for row in rows)]
        if outliers.is_many(job) or job.of(outliers.outliers) or not indices:
            return
        predicted = outliers.if_early(job, indices)
        if predicted is None or not is_worth_reporting(job, predicted, is_uniform=False):
            return
        ranks = formatting.listed_numbers(sorted(job.numbers[index] for index in indices))
        causes = (cause for row in job.of(late_ranks) for cause in row.causes)
        main = max(causes, key=lambda cause: cause.excess_us)
        title = (
            f"Ranks take turns as the straggler ({ranks}), and the others wait. The worst one "
            f"{why_late.reason_words(main, compared_steps(job))}. Without the delays, a step takes {_after(predicted)}"
        )
        where, evidence = [main.where or ""], {"ranks": len(indices)}
        yield self.with_gain(job, title, why_late.advice(main), predicted, evidence, where, row=None)


class ExposedTransfers(JobCause):
    """Transfers that nothing overlaps take a share of a step.

    Neither waiting nor time that may be waiting (`exposed_unknown_us`) is included. Not reported if ranks are missing,
    or if more is unknown than known.
    """

    id = "communication"
    limits = ("communication_percent",)

    def detect_in_job(self, job: Job) -> Iterator[Finding]:
        steps = [steps for steps in job.of(job_steps) if steps is not None]
        certain_ns = sum(int((rank.exposed_transfer - rank.exposed_unknown).sum()) for rank in steps)
        if job.missing or certain_ns <= 0:
            return
        shares = [rank.exposed_transfer.sum() / max(rank.span.sum(), 1) for rank in steps]
        share = 100 * float(np.mean(shares))
        if share < thresholds.communication_percent:
            return
        mean_us = float(np.mean([rank.exposed_transfer.mean() for rank in steps])) / 1000
        time, percent = formatting.duration(mean_us), formatting.percent(share)
        yield self.finding(
            f"Communication that is not overlapped takes {time} per step, {percent} of the step",
            "Overlap communication with the backward pass: use smaller DDP buckets (bucket_cap_mb) or FSDP "
            "prefetching. Or send less: "
            "bfloat16 gradients (torch.distributed.algorithms.ddp_comm_hooks), or gradient accumulation",
            {"exposed_transfer_us_per_step": mean_us, "share_percent": share},
            predicted=outliers.if_overlapped(job),
        )


CAUSES = (UnevenStages(), Straggler(), SlowHost(), SlowTransfer(), RanksTakeTurns(), ExposedTransfers())
BY_ID = {cause.id: cause for cause in CAUSES}


def job_findings(job: Job) -> list[Finding]:
    """Return the findings, largest gain first; [] where no rank waits, or the job cannot be replayed."""
    if isinstance(job, TracedJob) and not (job.of(has_models) and not job.of(waits_in_a_circle)):
        return []
    rows: list[Finding] = []
    for cause in CAUSES:
        if not {row.rule for row in rows}.intersection(cause.superseded_by):
            rows += cause.detect_in_job(job)
    return sorted(rows, key=lambda row: -(row.predicted.gain_percent if row.predicted else 0.0))


def waits_in_a_circle(job: TracedJob) -> bool:
    """Return whether the models of its ranks (which have models) wait for each other in a circle."""
    try:
        job.of(job_clocks)
    except CircularWaitError:
        return True
    return False


def is_symptom(job: Job, rank: int, row: Finding) -> bool:
    """Return whether a finding of a rank only follows from the job's: by its rule, and by its line where it has one."""
    line = job.of(_symptoms).get(rank, {}).get(row.rule)
    return line is not None and (not line or not row.where or line in row.where)


def _symptoms(job: Job) -> dict[int, dict[str, str]]:
    """Return by rank the rules to hide, with the line that their findings have; "" for any line."""
    if isinstance(job, TracedJob) and not job.of(has_models):
        return {}
    is_late = any(isinstance(BY_ID[row.rule], Straggler) for row in job.of(job_findings))
    groups = [outlier.what.rank_indices for outlier in job.of(outliers.reported)] if is_late else []
    late_numbers = {job.numbers[index] for indices in groups for index in indices}
    of_all = {"communication": ""} if len(job.of(instances)) else {}
    hidden = {rank: dict(of_all) for rank in job.numbers}
    for rank in job.of(waiting_ranks):
        hidden[rank] |= dict.fromkeys(OF_COLLECTIVES, "")
    for row in job.of(late_ranks):
        if row.rank in late_numbers:
            main = why_late.main_cause(row)
            rules = (main.cause, *(cause.id for cause in why_late.kind_of(main).hides))
            hidden[row.rank] |= dict.fromkeys(rules, main.where or "")
    return hidden


def waiting_ranks(job: Job) -> list[int]:
    """Return the ranks whose collectives mostly wait: their lengths do not show what they move."""
    call_table, times = job.of(calls), job.of(waits)
    waited = np.bincount(call_table.rank_index, np.maximum(times.wait, 0), len(job.digests))
    took = np.bincount(call_table.rank_index, call_table.dur, len(job.digests))
    return [rank for rank, share in zip(job.numbers, waited / np.maximum(took, 1)) if share > _WAITING]


def _without(outlier: Outlier, predicted: Predicted) -> str:
    before = formatting.joined_names(outlier.before[:MAX_NAMES])
    return f"Without the delay{f' and that of {before}' if before else ''}, a step takes {_after(predicted)}"


def _after(predicted: Predicted) -> str:
    return formatting.about(predicted.after_us, predicted.low_us, predicted.high_us)


def _position(job: Job, outlier: Outlier) -> str:
    """Return " before `X`" if most of the unaccounted time of a late rank is there; "" without traces."""
    main = why_late.main_cause(outlier.why) if outlier.why else None
    if not isinstance(job, TracedJob) or main is None or main.cause != "nothing" or main.where:
        return ""
    time_us = defaultdict[str, float](float)
    for index, sign in ((outlier.what.rank_indices[0], 1), (outlier.lates[0].peer, -1)):
        for row in job.ranks[index].profile.of(ledger).rows:
            if row.kind == "unaccounted":
                _, before, name = row.site.rpartition("before ")
                time_us[name if before else ""] += sign * row.time_us
    name, most = max(time_us.items(), key=lambda item: item[1], default=("", 0.0))
    return f" before `{name}`" if name and 2 * most >= sum(time_us.values()) else ""


def _own_cause(job: Job, outlier: Outlier, gain_percent: float) -> WhatIf | None:
    """Return a fix of the late rank that brings as much, and that its peers do not need; None without traces.

    It says better what the rank does than the slices in which it does it.
    """
    if not isinstance(job, TracedJob) or outlier.why is None:
        return None
    if why_late.kind_of(why_late.main_cause(outlier.why)).explains:
        return None
    fixes, peer_fixes = (
        {(fix.kind, fix.name): fix for fix in job.ranks[index].profile.of(predicted_fixes)}
        for index in (outlier.what.rank_indices[0], outlier.lates[0].peer)
    )
    for key, fix in fixes.items():
        gain = fix.predicted.gain_percent
        is_shared = key in peer_fixes and peer_fixes[key].predicted.gain_percent > gain / 2
        if isinstance(PRICED[fix.kind], _EXPLANATORY) and gain >= _AS_MUCH * gain_percent and not is_shared:
            return fix
    return None
