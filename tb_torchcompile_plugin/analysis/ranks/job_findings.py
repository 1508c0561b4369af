"""What should be changed first about a job: ranks that the others wait for, or communication that nothing overlaps?

All ranks are replayed together without what the late ranks did beyond their peers.
"""

from collections import defaultdict

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import step_after
from tb_torchcompile_plugin.analysis.causes.registry import words_of
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Finding, Predicted, severity_of
from tb_torchcompile_plugin.analysis.formatting import (
    about,
    at_line,
    duration,
    joined_names,
    listed_numbers,
    percent,
)
from tb_torchcompile_plugin.analysis.ranks import late as why_late
from tb_torchcompile_plugin.analysis.ranks import outliers
from tb_torchcompile_plugin.analysis.ranks.job_rows import late_ranks
from tb_torchcompile_plugin.analysis.ranks.outliers import Outlier, gain_fields, is_worth_reporting
from tb_torchcompile_plugin.analysis.runtime.ledger import ledger
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAMES
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks, stages
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps, late_by_rank
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.sweep import CircularWaitError
from tb_torchcompile_plugin.job.waits import waits

OF_LATE_RANKS = ("late_rank", "slow_host")
OF_COLLECTIVES = ("reduced_once", "small_collectives")
_EXPLANATORY: tuple[str, ...] = (
    "synchronise",
    "copies",
    "allocation",
    "fused_optimizer",
    "graph_breaks",
    "guards",
)
# Other names that the rules of one rank have for a cause of being late.
_RULES_OF_CAUSE = {
    "garbage": ("garbage_collection",),
    **dict.fromkeys(why_late.COMPILING, ("recompiles", "compile_in_steps", "autotune_in_steps")),
}

# Shares, chosen by eye on the recordings.
_AS_MUCH = 0.8  # of the gain if the rank came as early as its peers: from there on a fix is its cause
_WAITING = 0.5  # of the time of a rank's collectives: from there on they are mostly waiting


def job_findings(job: Job) -> list[Finding]:
    """Return the findings, largest gain first; [] where no rank waits, or the job cannot be replayed."""
    if isinstance(job, TracedJob) and not (job.of(has_models) and not job.of(waits_in_a_circle)):
        return []
    rows = [*(_uneven_stages(job) or _late(job) or _rotating(job)), *_exposed_transfers(job)]
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
    is_late = any(row.rule in OF_LATE_RANKS for row in job.of(job_findings))
    groups = [outlier.what.rank_indices for outlier in job.of(outliers.reported)] if is_late else []
    late_numbers = {job.numbers[index] for indices in groups for index in indices}
    of_all = {"communication": ""} if len(job.of(instances)) else {}
    hidden = {rank: dict(of_all) for rank in job.numbers}
    for rank in job.of(waiting_ranks):
        hidden[rank] |= dict.fromkeys(OF_COLLECTIVES, "")
    for row in job.of(late_ranks):
        if row.rank in late_numbers:
            main = why_late.main_cause(row)
            rules = (main.cause, *_RULES_OF_CAUSE.get(main.cause, ()))
            hidden[row.rank] |= dict.fromkeys(rules, main.where or "")
    return hidden


def waiting_ranks(job: Job) -> list[int]:
    """Return the ranks whose collectives mostly wait: their lengths do not show what they move."""
    call_table, times = job.of(calls), job.of(waits)
    waited = np.bincount(call_table.rank_index, np.maximum(times.wait, 0), len(job.digests))
    took = np.bincount(call_table.rank_index, call_table.dur, len(job.digests))
    return [rank for rank, share in zip(job.numbers, waited / np.maximum(took, 1)) if share > _WAITING]


def _uneven_stages(job: Job) -> list[Finding]:
    """Find the longest stage of a pipeline: it sets the pace by its place in the model, not by what its rank does."""
    pipeline = job.of(stages)
    if pipeline is None:
        return []
    predicted = outliers.if_even(job, pipeline)
    if predicted is None or predicted.gain_percent < thresholds.gain_percent:
        return []
    rank = job.numbers[pipeline.longest]
    own_us, mean_us = float(pipeline.compute_ns[pipeline.longest]) / 1000, pipeline.mean_ns / 1000
    finding = Finding(
        rule="uneven_stages",
        title=f"Rank {rank} holds the longest stage of the pipeline: it computes {duration(own_us)} at each step, "
        f"a stage in the mean {duration(mean_us)}; {step_after(predicted, 'with even stages')}",
        row=f"ranks:{rank}",
        next_step="Move layers from this stage to the others: split the model by measured time and not by the "
        "number of layers, or give each rank several smaller stages (ScheduleInterleaved1F1B)",
        where=[f"rank {rank}"],
        **gain_fields(job, predicted, compute_us_per_step=own_us, mean_compute_us_per_step=mean_us),
    )
    return [finding]


def _late(job: Job) -> list[Finding]:
    return [_outlier(job, row, row.predicted) for row in job.of(outliers.reported) if row.predicted]


def _outlier(job: Job, outlier: Outlier, predicted: Predicted) -> Finding:
    """Report ranks that are late, alone or together, or a slow link."""
    description, own = outliers.described(job, outlier), _own_cause(job, outlier, predicted.gain_percent)
    does, next_step, where = description.does, description.next_step, description.where
    does += _position(job, outlier)
    if own:
        does, next_step = words_of(own).title, words_of(own).next_step
        line = at_line(own.file, own.line)
        where = [*where, line] if line and len(where) == 1 else where
    and_of = f" and that of {joined_names(outlier.before[:MAX_NAMES])}" if outlier.before else ""
    after = about(predicted.after_us, predicted.low_us, predicted.high_us)
    sentences = (description.words, does, f"Without the delay{and_of}, a step takes {after}")
    is_link, ranks = description.kind == "link", outlier.what.rank_indices
    return Finding(
        rule="slow_link" if is_link else "slow_host" if description.kind == "host" else "late_rank",
        title=". ".join(filter(None, sentences)),
        row=None if is_link else f"ranks:{job.numbers[ranks[0]]}",
        next_step=next_step,
        where=where,
        **gain_fields(job, predicted, ranks=len(ranks), **description.evidence),
    )


def _position(job: Job, outlier: Outlier) -> str:
    """Return " before `X`" if most of the unaccounted time of a late rank is there; "" without traces."""
    main = why_late.main_cause(outlier.why) if outlier.why else None
    if not isinstance(job, TracedJob) or main is None or main.cause != "nothing" or main.where:
        return ""
    time_us = defaultdict[str, float](float)
    for row in job.ranks[outlier.what.rank_indices[0]].profile.of(ledger).rows:
        if row.kind == "unaccounted":
            _, before, name = row.site.rpartition("before ")
            time_us[name if before else ""] += row.time_us
    name, most = max(time_us.items(), key=lambda item: item[1], default=("", 0.0))
    return f" before `{name}`" if name and 2 * most >= sum(time_us.values()) else ""


def _own_cause(job: Job, outlier: Outlier, gain_percent: float) -> WhatIf | None:
    """Return a fix of the late rank that brings as much, and that its peers do not need; None without traces.

    It says better what the rank does than the slices in which it does it.
    """
    if not isinstance(job, TracedJob) or outlier.why is None:
        return None
    if why_late.main_cause(outlier.why).cause in why_late.EXPLANATORY:
        return None
    fixes, peer_fixes = (
        {(fix.kind, fix.name): fix for fix in job.ranks[index].profile.of(predicted_fixes)}
        for index in (outlier.what.rank_indices[0], outlier.lates[0].peer)
    )
    for key, fix in fixes.items():
        gain = fix.predicted.gain_percent
        is_shared = key in peer_fixes and peer_fixes[key].predicted.gain_percent > gain / 2
        if fix.kind in _EXPLANATORY and gain >= _AS_MUCH * gain_percent and not is_shared:
            return fix
    return None


def _rotating(job: Job) -> list[Finding]:
    """Report that several ranks are late, none of them at most of its collectives."""
    indices = [index for index, rows in job.of(late_by_rank).items() if any(row.parts for row in rows)]
    if outliers.is_many(job) or job.of(outliers.stragglers) or not indices:
        return []
    predicted = outliers.if_early(job, indices)
    if predicted is None or not is_worth_reporting(job, predicted, is_uniform=False):
        return []
    ranks = sorted(job.numbers[index] for index in indices)
    causes = (cause for row in job.of(late_ranks) for cause in row.causes)
    main = max(causes, key=lambda cause: cause.excess_us)
    words = why_late.reason_words(main, compared_steps(job))
    after = about(predicted.after_us, predicted.low_us, predicted.high_us)
    finding = Finding(
        rule="ranks_take_turns",
        title=f"Ranks take turns as the straggler ({listed_numbers(ranks)}), and the others wait. The main one "
        f"{words}. Without the delays, a step takes {after}",
        row=None,
        next_step=why_late.advice(main),
        where=[main.where] if main.where else [],
        **gain_fields(job, predicted, ranks=len(ranks)),
    )
    return [finding]


def _exposed_transfers(job: Job) -> list[Finding]:
    """Find transfers that nothing overlaps; unless more of that communication may be waiting than is transfer."""
    steps = [steps for steps in job.of(job_steps) if steps is not None]
    certain_ns = sum(int((rank.exposed_transfer - rank.exposed_unknown).sum()) for rank in steps)
    if job.missing or certain_ns <= 0:
        return []
    share = float(np.mean([rank.exposed_transfer.sum() / max(rank.span.sum(), 1) for rank in steps])) * 100
    if share < thresholds.communication_percent:
        return []
    mean_us = float(np.mean([rank.exposed_transfer.mean() for rank in steps])) / 1000
    predicted = outliers.if_overlapped(job)
    finding = Finding(
        rule="communication",
        severity=severity_of(predicted.gain_percent if predicted else None),
        title=f"Transfers that nothing overlaps take {duration(mean_us)} a step, {percent(share)} of the step",
        evidence={"exposed_transfer_us_per_step": mean_us, "share_percent": share},
        saves_us=None,
        panel="ranks",
        row=None,
        next_step="Let them overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching; or send "
        "less: bfloat16 gradients (torch.distributed.algorithms.ddp_comm_hooks), several batches a step",
        predicted=predicted,
    )
    return [finding]
