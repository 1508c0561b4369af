"""Findings about a job of several ranks: the rank that all others wait for, or communication that nothing overlaps.

They are predictions, too: all ranks are replayed together without what the late one did beyond its peers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.rule import Finding, severity_of
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, late_ranks
from tb_torchcompile_plugin.analysis.ranks.late_compile import compiled_words, late_compile
from tb_torchcompile_plugin.analysis.ranks.late_words import advice, does, main_cause, telling
from tb_torchcompile_plugin.analysis.what_if.what_if import Predicted, prediction
from tb_torchcompile_plugin.analysis.what_if.words import instead
from tb_torchcompile_plugin.analysis.words import duration, percent
from tb_torchcompile_plugin.job.as_early import as_early
from tb_torchcompile_plugin.job.coupled import (
    Change,
    has_models,
    job_clocks,
    pace_ns,
    recording_cost_ns,
)
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import late
from tb_torchcompile_plugin.job.stages import even_stages, stages
from tb_torchcompile_plugin.job.steps import RankSteps, job_steps
from tb_torchcompile_plugin.job.sweep import CircularWaitError
from tb_torchcompile_plugin.job.waits import blame
from tb_torchcompile_plugin.profile.model.host_lane import host_lane

_FIXED = 2 / 3  # of the lateness: from there on one rank is to blame, below it rotates
_UNIFORM_PERCENT = 33.0  # gain from which on a host that is slower at everything is worth a sentence
_NAMED = 8  # ranks that a title lists


def job_findings(job: Job) -> list[Finding]:
    """Largest gain first; [] where no rank waits, and where the job cannot be replayed."""
    if not job.of(has_models) or job.of(waits_in_a_circle):
        return []
    rows = [*(_stages(job) or _late(job)), *_exposed(job)]
    return sorted(rows, key=lambda row: -(row.predicted.gain_percent if row.predicted else 0.0))


def waits_in_a_circle(job: Job) -> bool:
    """Whether the models of its ranks, that have models, cannot be walked together."""
    try:
        job.of(job_clocks)
    except CircularWaitError:
        return True
    return False


def symptoms(job: Job) -> dict[int, set[str]]:
    """By rank the rules whose findings only show what those of the job tell: they are not told again."""
    if not job.of(has_models):
        return {}
    blamed = {row.row for row in job.of(job_findings) if row.rule == "late_rank"}
    hidden = {rank: {"communication"} if job.of(instances).members else set() for rank in job.numbers}
    for row in job.of(late_ranks):
        if f"ranks:{row.rank}" in blamed:
            hidden[row.rank] |= _rules_of(row)
    return hidden


def _rules_of(row: LateRank) -> set[str]:
    cause = main_cause(row).cause
    same = {"garbage": ("garbage_collection",), "compile": ("recompiles", "compile_in_steps")}
    return {cause, *same.get(cause, ())}


def _predicted(job: Job, changes: Mapping[int, Change], *transfers: float) -> Predicted:
    """As the job runs unrecorded, where that was noted."""
    cost, now = job.of(recording_cost_ns), job.of(_now_ns)
    after = [pace_ns(job_clocks(job, changes, share, cost)) for share in transfers or (1.0,)]
    return prediction(now, *(min(ns, now) for ns in after))


def _now_ns(job: Job) -> float:
    return pace_ns(job_clocks(job, slice_ns=job.of(recording_cost_ns)))


def _late(job: Job) -> list[Finding]:
    lateness: Counter[int] = Counter()
    for one in job.of(late):
        if one.parts:
            lateness[one.place] += one.lateness
    if not lateness:
        return []
    (first, most), total = lateness.most_common(1)[0], sum(lateness.values())
    places = [first] if most >= _FIXED * total else list(lateness)
    predicted = _predicted(job, as_early(job, places))
    uniform = len(places) == 1 and not telling(_late_rank(job, first))
    if predicted.gain_percent < (_UNIFORM_PERCENT if uniform else thresholds.gain_percent):
        return []
    return [_one_late(job, first, predicted) if len(places) == 1 else _rotating(job, places, predicted)]


def _one_late(job: Job, place: int, predicted: Predicted) -> Finding:
    rank, steps = job.ranks[place].rank, _steps(job)
    row = _late_rank(job, place)
    main = main_cause(row)
    compiled = job.of(late_compile, place) if main.cause == "compile" else None
    line = main.where or (compiled.where if compiled else None)
    marked = max((len(one.step) for one in _known_steps(job)), default=steps)
    waited = int(job.of(blame)[:, place].sum()) / 1000 / marked / max(len(job.ranks) - 1, 1)
    return Finding(
        rule="late_rank",
        severity=severity_of(predicted.gain_percent),
        title=f"Rank {rank} comes last, and the others wait {duration(waited)} a step for it: it {does(main, steps)}"
        f"{compiled_words(compiled) if compiled else ''}; as early as its peers, a step takes {instead(predicted)}",
        evidence=_gain(predicted)
        | {"waited_us_per_step": waited, "excess_us": row.excess_us, "last": row.instances}
        | ({"compile_s": compiled.seconds, "compilations": compiled.times} if compiled else {}),
        saves_us=(predicted.step_us - predicted.after_us) * steps,
        panel="ranks",
        row=f"ranks:{rank}",
        next_step=compiled.guard.advice if compiled and compiled.guard else advice(main),
        predicted=predicted,
        where=[f"rank {rank}", *([line] if line else [])],
    )


def _stages(job: Job) -> list[Finding]:
    """Of a pipeline: the stage that sets the pace by its place in the model, not by what its rank does beyond its
    peers."""
    known = job.of(stages)
    if known is None:
        return []
    predicted = _predicted(job, even_stages(job, known))
    if predicted.gain_percent < thresholds.gain_percent:
        return []
    rank, steps = job.ranks[known.longest].rank, _steps(job)
    own_us, mean_us = known.compute_ns[known.longest] / 1000, known.mean_ns / 1000
    return [
        Finding(
            rule="uneven_stages",
            severity=severity_of(predicted.gain_percent),
            title=f"Rank {rank} holds the longest stage of the pipeline: it computes {duration(own_us)} at each step, "
            f"a stage in the mean {duration(mean_us)}; with even stages a step takes {instead(predicted)}",
            evidence=_gain(predicted) | {"compute_us_per_step": own_us, "mean_compute_us_per_step": mean_us},
            saves_us=(predicted.step_us - predicted.after_us) * steps,
            panel="ranks",
            row=f"ranks:{rank}",
            next_step="Move layers from this stage to the others: split the model by measured time and not by the "
            "number of layers, or give each rank several smaller stages (ScheduleInterleaved1F1B)",
            predicted=predicted,
            where=[f"rank {rank}"],
        )
    ]


def _late_rank(job: Job, place: int) -> LateRank:
    return next(row for row in job.of(late_ranks) if row.rank == job.ranks[place].rank)


def _rotating(job: Job, places: list[int], predicted: Predicted) -> Finding:
    steps, ranks = _steps(job), sorted(job.ranks[place].rank for place in places)
    main = max(
        (cause for row in job.of(late_ranks) for cause in row.causes), key=lambda cause: cause.excess_us
    )
    more = " …" if len(ranks) > _NAMED else ""
    return Finding(
        rule="ranks_take_turns",
        severity=severity_of(predicted.gain_percent),
        title=f"Ranks take turns at coming last ({', '.join(map(str, ranks[:_NAMED]))}{more}), and the others wait: "
        f"in the main one {does(main, steps)}; if all came at once, a step would take {instead(predicted)}",
        evidence=_gain(predicted) | {"ranks": len(ranks)},
        saves_us=(predicted.step_us - predicted.after_us) * steps,
        panel="ranks",
        row=None,
        next_step=advice(main),
        predicted=predicted,
        where=[main.where] if main.where else [],
    )


def _gain(predicted: Predicted) -> dict[str, float | int]:
    gain = predicted.step_us - predicted.after_us
    return {"gain_us_per_step": gain, "share_percent": predicted.gain_percent}


def _exposed(job: Job) -> list[Finding]:
    """Transfers that nothing overlaps: waiting is not in them."""
    steps = _known_steps(job)
    if not steps:
        return []
    share = float(np.mean([one.exposed_transfer.sum() / max(one.span.sum(), 1) for one in steps])) * 100
    if share < thresholds.communication_percent:
        return []
    mean_us = float(np.mean([one.exposed_transfer.mean() for one in steps])) / 1000
    predicted = _predicted(job, {}, 0.5, 0.0, 1.0)
    return [
        Finding(
            rule="communication",
            severity=severity_of(predicted.gain_percent),
            title=f"Transfers that nothing overlaps take {duration(mean_us)} a step, {percent(share)} of it",
            evidence={"exposed_transfer_us_per_step": mean_us, "share_percent": share},
            saves_us=None,
            panel="ranks",
            row=None,
            next_step="Let them overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching; or send "
            "less: bfloat16 gradients (torch.distributed.algorithms.ddp_comm_hooks), several batches a step",
            predicted=predicted,
        )
    ]


def _known_steps(job: Job) -> list[RankSteps]:
    """Of the ranks that launched GPU work."""
    return [steps for steps in job.of(job_steps) if steps is not None]


def _steps(job: Job) -> int:
    """How many are compared, marked or not."""
    return max(one.profile.of(host_lane).steps for one in job.ranks)
