"""Findings about a job of several ranks: the rank that all others wait for, or communication that nothing overlaps.

They are predictions, too: all ranks are replayed together without what the late one did beyond its peers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.findings import AnyFinding
from tb_torchcompile_plugin.analysis.causes.fix import FixKind
from tb_torchcompile_plugin.analysis.causes.fix_words import instead, next_step, sentence
from tb_torchcompile_plugin.analysis.causes.fix_words import place as place_of_fix
from tb_torchcompile_plugin.analysis.causes.scenario import priced
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Finding, Predicted, severity_of
from tb_torchcompile_plugin.analysis.formatting import duration, listed, percent
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, late_ranks
from tb_torchcompile_plugin.analysis.ranks.late import (
    COMPILING,
    SAY_WHAT,
    advice,
    all_does,
    compiled_words,
    does,
    late_compile,
    main_cause,
    telling,
)
from tb_torchcompile_plugin.analysis.ranks.outliers import (
    gain_of,
    if_early,
    if_even,
    if_overlapped,
    outlier_findings,
    waited_us,
    worth_telling,
)
from tb_torchcompile_plugin.job.as_early import has_models, job_clocks
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps, late
from tb_torchcompile_plugin.job.stages import stages
from tb_torchcompile_plugin.job.steps import RankSteps, job_steps
from tb_torchcompile_plugin.job.sweep import CircularWaitError
from tb_torchcompile_plugin.job.waits import waits

_FIXED = 2 / 3  # of the lateness: from there on one rank is to blame, below it rotates
OF_COLLECTIVES = ("reduced_once", "small_collectives")
_TELLING: tuple[FixKind, ...] = (
    "synchronise",
    "copies",
    "allocation",
    "fused_optimizer",
    "graph_breaks",
    "guards",
)
_COMPILES = ("recompiles", "compile_in_steps", "autotune_in_steps")
_AS_MUCH = 0.8  # of what the rank brings that comes as early as its peers
_WAITING = 0.5  # of the time of a rank's collectives, from which on they are mostly waiting


def job_findings(job: Job) -> list[Finding]:
    """Largest gain first; [] where no rank waits, and where the job cannot be replayed."""
    if isinstance(job, TracedJob) and not (job.of(has_models) and not job.of(waits_in_a_circle)):
        return []
    rows = [*(_stages(job) or job.of(outlier_findings) or _late(job)), *_exposed(job)]
    return sorted(rows, key=lambda row: -(row.predicted.gain_percent if row.predicted else 0.0))


def waits_in_a_circle(job: TracedJob) -> bool:
    """Whether the models of its ranks, that have models, cannot be walked together."""
    try:
        job.of(job_clocks)
    except CircularWaitError:
        return True
    return False


def without_symptoms(job: Job, rank: int, rows: Iterable[AnyFinding]) -> list[AnyFinding]:
    """The findings of a rank but for those that only show what the job's tell: they are not told again."""
    return [row for row in rows if not is_symptom(job, rank, row)]


def is_symptom(job: Job, rank: int, row: Finding) -> bool:
    """Whether a finding of a rank only shows what the job's tell: by its rule, and by its line where it has one."""
    line = job.of(_symptoms).get(rank, {}).get(row.rule)
    return line is not None and (not line or not row.where or line in row.where)


def _symptoms(job: Job) -> dict[int, dict[str, str]]:
    """By rank the rules that are hidden, with the line that their findings have; "" for any."""
    if isinstance(job, TracedJob) and not job.of(has_models):
        return {}
    blamed = {row.row for row in job.of(job_findings) if row.rule == "late_rank"}
    together = len(job.of(instances)) > 0
    hidden: dict[int, dict[str, str]] = {
        rank: {"communication": ""} if together else {} for rank in job.numbers
    }
    for rank in job.of(waiting_ranks):
        hidden[rank] |= dict.fromkeys(OF_COLLECTIVES, "")
    for row in job.of(late_ranks):
        if f"ranks:{row.rank}" in blamed:
            hidden[row.rank] |= dict.fromkeys(_rules_of(row), main_cause(row).where or "")
    return hidden


def waiting_ranks(job: Job) -> list[int]:
    """Ranks whose collectives mostly wait for another one: how long they take tells nothing of what they move."""
    calls_, known = job.of(calls), job.of(waits)
    waited = np.bincount(calls_.place, np.maximum(known.wait, 0), len(job.digests))
    took = np.bincount(calls_.place, calls_.dur, len(job.digests))
    return [one.rank for one, share in zip(job.digests, waited / np.maximum(took, 1)) if share > _WAITING]


def _rules_of(row: LateRank) -> set[str]:
    cause = main_cause(row).cause
    same = {"garbage": ("garbage_collection",)} | dict.fromkeys(COMPILING, _COMPILES)
    return {cause, *same.get(cause, ())}


def _late(job: Job) -> list[Finding]:
    lateness: Counter[int] = Counter()
    for one in job.of(late):
        if one.parts:
            lateness[one.place] += one.lateness
    if not lateness:
        return []
    (first, most), total = lateness.most_common(1)[0], sum(lateness.values())
    places = [first] if most >= _FIXED * total else list(lateness)
    predicted = if_early(job, places)
    uniform = len(places) == 1 and not telling(_late_rank(job, first))
    if predicted is None or not worth_telling(job, predicted, uniform):
        return []
    return [_one_late(job, first, predicted) if len(places) == 1 else _rotating(job, places, predicted)]


def _one_late(job: Job, place: int, predicted: Predicted) -> Finding:
    rank, steps = job.numbers[place], compared_steps(job)
    row = _late_rank(job, place)
    main = main_cause(row)
    compiled = job.of(late_compile, place) if main.cause in COMPILING else None
    waited = waited_us(job, [place])
    own = None if main.cause in SAY_WHAT else job.of(_own_cause, place, predicted.gain_percent)
    line = main.where or (compiled.where if compiled else None) or (own and place_of_fix(own)) or None
    does_what = _lower(sentence(own)) if own else f"it {all_does(row, steps)}"
    does_what += compiled_words(compiled, rank) if compiled else ""
    return Finding(
        rule="late_rank",
        severity=severity_of(predicted.gain_percent),
        title=f"Rank {rank} comes last, and the others wait {duration(waited)} a step for it: {does_what}; "
        f"as early as its peers, a step takes {instead(predicted)}",
        evidence=gain_of(predicted)
        | {"waited_us_per_step": waited, "excess_us": row.excess_us, "last": row.instances}
        | ({"compile_s": compiled.seconds, "compilations": compiled.times} if compiled else {}),
        saves_us=(predicted.step_us - predicted.after_us) * steps,
        panel="ranks",
        row=f"ranks:{rank}",
        next_step=next_step(own)
        if own
        else compiled.guard.advice
        if compiled and compiled.guard
        else advice(main),
        predicted=predicted,
        where=[f"rank {rank}", *([line] if line else [])],
    )


def _own_cause(job: Job, place: int, gain_percent: float) -> WhatIf | None:
    """What the late rank could mend that brings as much, and that its peers need not: a better word for what it does
    than the slices that it does it in. None where no trace tells."""
    if not isinstance(job, TracedJob):
        return None
    rows, peers = (
        {(row.kind, row.name): row for row in one.profile.of(priced)}
        for one in (job.ranks[place], job.ranks[place - 1])
    )
    for key, row in rows.items():
        gain = row.predicted.gain_percent
        shared = key in peers and peers[key].predicted.gain_percent > gain / 2
        if row.kind in _TELLING and gain >= _AS_MUCH * gain_percent and not shared:
            return row
    return None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _stages(job: Job) -> list[Finding]:
    """Of a pipeline: the stage that sets the pace by its place in the model, not by what its rank does beyond its
    peers."""
    known = job.of(stages)
    if known is None:
        return []
    predicted = if_even(job, known)
    if predicted is None or predicted.gain_percent < thresholds.gain_percent:
        return []
    rank, steps = job.numbers[known.longest], compared_steps(job)
    own_us, mean_us = known.compute_ns[known.longest] / 1000, known.mean_ns / 1000
    return [
        Finding(
            rule="uneven_stages",
            severity=severity_of(predicted.gain_percent),
            title=f"Rank {rank} holds the longest stage of the pipeline: it computes {duration(own_us)} at each step, "
            f"a stage in the mean {duration(mean_us)}; with even stages a step takes {instead(predicted)}",
            evidence=gain_of(predicted)
            | {"compute_us_per_step": own_us, "mean_compute_us_per_step": mean_us},
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
    return next(row for row in job.of(late_ranks) if row.rank == job.numbers[place])


def _rotating(job: Job, places: list[int], predicted: Predicted) -> Finding:
    steps, ranks = compared_steps(job), sorted(job.numbers[place] for place in places)
    main = max(
        (cause for row in job.of(late_ranks) for cause in row.causes), key=lambda cause: cause.excess_us
    )
    return Finding(
        rule="ranks_take_turns",
        severity=severity_of(predicted.gain_percent),
        title=f"Ranks take turns at coming last ({listed(ranks)}), and the others wait: "
        f"in the main one {does(main, steps)}; if all came at once, a step would take {instead(predicted)}",
        evidence=gain_of(predicted) | {"ranks": len(ranks)},
        saves_us=(predicted.step_us - predicted.after_us) * steps,
        panel="ranks",
        row=None,
        next_step=advice(main),
        predicted=predicted,
        where=[main.where] if main.where else [],
    )


def _exposed(job: Job) -> list[Finding]:
    """Transfers that nothing overlaps: waiting is not in them. Nothing is told where less of it is known than not."""
    steps = _known_steps(job)
    if job.missing or _mostly_unknown(steps):
        return []
    share = float(np.mean([one.exposed_transfer.sum() / max(one.span.sum(), 1) for one in steps])) * 100
    if share < thresholds.communication_percent:
        return []
    mean_us = float(np.mean([one.exposed_transfer.mean() for one in steps])) / 1000
    predicted = if_overlapped(job)
    return [
        Finding(
            rule="communication",
            severity=severity_of(predicted.gain_percent if predicted else None),
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


def _mostly_unknown(steps: list[RankSteps]) -> bool:
    """Whether more of what communicates alone may be waiting than is known to transfer, or nothing is."""
    return sum(int((one.exposed_transfer - one.exposed_unknown).sum()) for one in steps) <= 0


def _known_steps(job: Job) -> list[RankSteps]:
    """Of the ranks that launched GPU work."""
    return [steps for steps in job.of(job_steps) if steps is not None]
