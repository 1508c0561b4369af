"""What should be changed first about a job: the rank that all others wait for, or communication that nothing overlaps?

All ranks are replayed together without what the late rank did beyond its peers.
"""

from collections import Counter

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import step_after
from tb_torchcompile_plugin.analysis.causes.registry import words_of
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Predicted, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, listed_numbers, percent
from tb_torchcompile_plugin.analysis.ranks import late as why_late
from tb_torchcompile_plugin.analysis.ranks import outliers
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, late_ranks
from tb_torchcompile_plugin.analysis.ranks.outliers import gain_fields, is_worth_reporting, waited_us
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks, stages
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps, late
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.sweep import CircularWaitError
from tb_torchcompile_plugin.job.waits import waits

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
_ONE_RANK = 2 / 3  # of all lateness: from there on one rank is to blame, below it ranks take turns
_AS_MUCH = 0.8  # of the gain if the rank came as early as its peers: from there on a fix is its cause
_WAITING = 0.5  # of the time of a rank's collectives: from there on they are mostly waiting


def job_findings(job: Job) -> list[Finding]:
    """Return the findings, largest gain first; [] where no rank waits, or the job cannot be replayed."""
    if isinstance(job, TracedJob) and not (job.of(has_models) and not job.of(waits_in_a_circle)):
        return []
    rows = [
        *(_uneven_stages(job) or job.of(outliers.outlier_findings) or _late(job)),
        *_exposed_transfers(job),
    ]
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
    late_rows = {row.row for row in job.of(job_findings) if row.rule == "late_rank"}
    of_all = {"communication": ""} if len(job.of(instances)) else {}
    hidden = {rank: dict(of_all) for rank in job.numbers}
    for rank in job.of(waiting_ranks):
        hidden[rank] |= dict.fromkeys(OF_COLLECTIVES, "")
    for row in job.of(late_ranks):
        if f"ranks:{row.rank}" in late_rows:
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
    own_us, mean_us = pipeline.compute_ns[pipeline.longest] / 1000, pipeline.mean_ns / 1000
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
    lateness: Counter[int] = Counter()
    for row in job.of(late):
        if row.parts:
            lateness[row.rank_index] += row.lateness
    if not lateness:
        return []
    first, most = lateness.most_common(1)[0]
    indices = [first] if most >= _ONE_RANK * lateness.total() else list(lateness)
    predicted = outliers.if_early(job, indices)
    is_uniform = len(indices) == 1 and not why_late.distinctive_reasons(_late_rank(job, first))
    if predicted is None or not is_worth_reporting(job, predicted, is_uniform):
        return []
    return [_one_late(job, first, predicted) if len(indices) == 1 else _rotating(job, indices, predicted)]


def _late_rank(job: Job, index: int) -> LateRank:
    return next(row for row in job.of(late_ranks) if row.rank == job.numbers[index])


def _one_late(job: Job, index: int, predicted: Predicted) -> Finding:
    rank, row = job.numbers[index], _late_rank(job, index)
    main = why_late.main_cause(row)
    compiled = job.of(why_late.late_compile, index) if main.cause in why_late.COMPILING else None
    waited = waited_us(job, [index])
    own = None if main.cause in why_late.EXPLANATORY else job.of(_own_cause, index, predicted.gain_percent)
    line = (
        main.where or (compiled.where if compiled else None) or (own and at_line(own.file, own.line)) or None
    )
    words = f"it {why_late.main_reason_words(row, compared_steps(job))}"
    if own:
        words = words_of(own).title[:1].lower() + words_of(own).title[1:]
    evidence: Evidence = {"waited_us_per_step": waited, "excess_us": row.excess_us, "last": row.instances}
    if compiled:
        words += why_late.compiled_words(compiled, rank)
        evidence |= {"compile_s": compiled.seconds, "compilations": compiled.times}
    advised = compiled.guard.advice if compiled and compiled.guard else why_late.advice(main)
    return Finding(
        rule="late_rank",
        title=f"Rank {rank} comes last, and the others wait {duration(waited)} a step for it: {words}; "
        f"{step_after(predicted, 'as early as its peers,')}",
        row=f"ranks:{rank}",
        next_step=words_of(own).next_step if own else advised,
        where=[f"rank {rank}", *([line] if line else [])],
        **gain_fields(job, predicted, **evidence),
    )


def _own_cause(job: Job, index: int, gain_percent: float) -> WhatIf | None:
    """Return a fix of the late rank that brings as much, and that its peers do not need; None without traces.

    It says better what the rank does than the slices in which it does it.
    """
    if not isinstance(job, TracedJob):
        return None
    fixes, peer_fixes = (
        {(fix.kind, fix.name): fix for fix in rank.profile.of(predicted_fixes)}
        for rank in (job.ranks[index], job.ranks[index - 1])
    )
    for key, fix in fixes.items():
        gain = fix.predicted.gain_percent
        is_shared = key in peer_fixes and peer_fixes[key].predicted.gain_percent > gain / 2
        if fix.kind in _EXPLANATORY and gain >= _AS_MUCH * gain_percent and not is_shared:
            return fix
    return None


def _rotating(job: Job, indices: list[int], predicted: Predicted) -> Finding:
    ranks = sorted(job.numbers[index] for index in indices)
    causes = (cause for row in job.of(late_ranks) for cause in row.causes)
    main = max(causes, key=lambda cause: cause.excess_us)
    words = why_late.reason_words(main, compared_steps(job))
    return Finding(
        rule="ranks_take_turns",
        title=f"Ranks take turns at coming last ({listed_numbers(ranks)}), and the others wait: "
        f"in the main one {words}; if all came at once, a step would take "
        f"{duration(predicted.after_us)} instead of {duration(predicted.step_us)}",
        row=None,
        next_step=why_late.advice(main),
        where=[main.where] if main.where else [],
        **gain_fields(job, predicted, ranks=len(ranks)),
    )


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
