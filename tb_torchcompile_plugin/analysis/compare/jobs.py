"""How do two jobs of as many ranks differ: the step, where each rank's time goes, who waits for whom, collectives?

All times are of an average step: sums over what was recorded are divided by the steps that were marked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis.compare.compare import step_time_sentence
from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Numbers, Pair, change_of, match, pair
from tb_torchcompile_plugin.analysis.compare.sides import why_no_verdict
from tb_torchcompile_plugin.analysis.formatting import HIDDEN, column_head, duration, listed_numbers, plural
from tb_torchcompile_plugin.analysis.ranks import job_rows
from tb_torchcompile_plugin.analysis.ranks.job_findings import BY_ID, RanksTakeTurns, Straggler, job_findings
from tb_torchcompile_plugin.analysis.ranks.why_late import main_cause, reason_words
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, program
from tb_torchcompile_plugin.analysis.statistics import (
    StepTimeDifference,
    StepTimes,
    step_time_difference,
    step_times,
)
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps
from tb_torchcompile_plugin.job.steps import (
    job_step_ns,
    job_step_us,
    job_steps,
    marked_steps,
    waited_in_steps,
)
from tb_torchcompile_plugin.profile.columns import us
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.collectives import Operation

_VERB_OF_PART = {
    "compute": "computes",
    "overlapped": "computes during communication",
    "exposed_transfer": "transfers without computing",
    "exposed_wait": "waits for other ranks",
    "exposed_unknown": "waits or transfers (which one is unknown)",
    "exposed_memory": "copies without computing",
    "idle": "is idle",
}


class RankCompared(Compared, frozen=True):
    """A rank in an average step on its GPU; the parts sum to `step_us`."""

    rank: int
    step_us: Pair
    exposed_wait_us: Annotated[Pair, column_head("Waits")]
    late_us: Annotated[Pair, column_head("Others waited")]  # for it, together
    compute_us: Annotated[Pair, HIDDEN]
    overlapped_us: Annotated[Pair, HIDDEN]
    exposed_transfer_us: Annotated[Pair, HIDDEN]
    exposed_unknown_us: Annotated[Pair, HIDDEN]
    exposed_memory_us: Annotated[Pair, HIDDEN]
    idle_us: Annotated[Pair, HIDDEN]
    wait_us: Annotated[Pair, column_head("Waits, including overlapped", hidden=True)]


class CollectiveCompared(Compared, frozen=True):
    """Collectives of one group, kind and size; times of a step, over all ranks."""

    op: Annotated[Operation, column_head("Collective")]
    group: str
    dtype: Annotated[str, column_head("Type")]
    message_bytes: Annotated[int | None, column_head("Size")]
    transfer_us: Pair
    wait_us: Pair
    busbw_gb_s: Annotated[Pair, column_head("Bus GB/s")]
    instances: Annotated[Pair, column_head("Times", hidden=True)]


class JobsCompared(msgspec.Struct, frozen=True):
    """Two jobs compared; the lists are empty where ranks cannot be compared, and the verdict has the reason."""

    verdict: str
    step_time: StepTimeDifference | None  # of the slowest rank in each step; None where a side has no steps
    ranks: list[RankCompared]
    collectives: list[CollectiveCompared]


@dataclass(frozen=True, eq=False)
class Jobs(Memoized):
    """The two jobs that questions are asked of."""

    baseline: Job
    candidate: Job


def compare_jobs(jobs: Jobs) -> JobsCompared:
    """Return two jobs rank by rank; only a verdict if both are one job, or have different numbers of ranks."""
    if why := _why_not(jobs):
        return JobsCompared(why, None, [], [])
    step_time = step_time_difference(jobs.baseline.of(job_times), jobs.candidate.of(job_times))
    # Both have the same ranks.
    ranks = match(RankCompared, ["rank"], [_rank_numbers(job) for job in (jobs.baseline, jobs.candidate)])
    return JobsCompared(" ".join(_verdict(jobs, step_time, ranks)), step_time, ranks, _collectives(jobs))


def _why_not(jobs: Jobs) -> str | None:
    if jobs.baseline is jobs.candidate:
        return "Both are ranks of one job: the panel Ranks compares them."
    sizes = [job.world_size or len(job.digests) for job in (jobs.baseline, jobs.candidate)]
    if sizes[0] != sizes[1]:
        return (
            f"The baseline has {plural(sizes[0], 'rank')}, the candidate {sizes[1]:,}. The work is divided "
            "differently, so ranks are not compared; the two spans are."
        )
    only = []
    for side, job, other in (
        ("baseline", jobs.baseline, jobs.candidate),
        ("candidate", jobs.candidate, jobs.baseline),
    ):
        if ranks := sorted({*job.numbers} - {*other.numbers}):
            traces = "trace of rank" if len(ranks) == 1 else "traces of ranks"
            only.append(f"{traces} {listed_numbers(ranks)} can be read in the {side} only")
    if only:
        return (
            f"The {', '.join(only)}. How long the others are waited for is unknown, so ranks are not "
            "compared; the two spans are."
        )
    return None


def job_times(job: Job) -> StepTimes | None:
    """Return the step of the job, and how much its steps vary while they are profiled; None without steps."""
    times, step_us = step_times([ns / 1000 for ns in job.of(job_step_ns)]), job.of(job_step_us)
    return times and msgspec.structs.replace(times, mean_us=step_us or times.mean_us)


def _rank_numbers(job: Job) -> Numbers:
    """Return by rank the µs of an average step, of those whose length is known; waits are of the shared ones."""
    inside, numbers = job.of(waited_in_steps), dict[tuple[int], dict[str, float | None]]()
    count = inside.steps or job.of(marked_steps)
    columns = (inside.waited.tolist(), inside.caused_by.tolist())
    for row, steps, waited, caused in zip(job.of(job_rows.rank_rows), job.of(job_steps), *columns):
        of_rank = numbers[(row.rank,)] = {
            "step_us": row.step_us,
            "wait_us": us(waited) / count,
            "late_us": us(caused) / count,
        }
        if steps is not None:
            for part in _VERB_OF_PART:
                ns = getattr(steps, part)[: len(steps.counted)].tolist()
                of_rank[f"{part}_us"] = float(sum(ns)) / len(ns) / 1000 if ns else None
    return numbers


def _collectives(jobs: Jobs) -> list[CollectiveCompared]:
    numbers = [_collective_numbers(job) for job in (jobs.baseline, jobs.candidate)]
    rows = match(CollectiveCompared, ["group", "op", "dtype", "message_bytes"], numbers, missing=None)
    return sorted(rows, key=lambda row: -max(row.transfer_us.baseline or 0, row.transfer_us.candidate or 0))


def _collective_numbers(job: Job) -> Numbers:
    steps = job.of(marked_steps)
    return {
        (row.group, row.op, row.dtype, row.message_bytes, *row.ranks): {
            "transfer_us": row.transfer_us / steps,
            "wait_us": row.wait_us / steps,
            "busbw_gb_s": row.busbw_gb_s,
            "instances": row.instances / steps,
        }
        for row in job.of(job_rows.collective_rows)
    }


def _verdict(jobs: Jobs, step_time: StepTimeDifference | None, ranks: list[RankCompared]) -> Iterator[str]:
    """Yield the step, the part of it that changed most, and who keeps the others waiting."""
    if why := why_no_verdict(_program(jobs.baseline), _program(jobs.candidate)):
        yield why
        return
    no_steps = "At least one job has no marked steps."
    yield step_time_sentence(step_time, "the job's step") if step_time else no_steps
    means = {part: _mean_pair([getattr(row, f"{part}_us") for row in ranks]) for part in _VERB_OF_PART}
    changed = {part: times for part, times in means.items() if times and times.delta}
    if changed:
        part, times = max(changed.items(), key=lambda item: abs(item[1].delta or 0))
        yield f"On average, a rank {_VERB_OF_PART[part]} for {change_of(times)} per step."
    late_a, late_b = (_late_words(job) for job in (jobs.baseline, jobs.candidate))
    both = f"In both, {late_a}."
    yield both if late_a == late_b else f"In the baseline, {late_a}. In the candidate, {late_b}."


def _program(job: Job) -> ProgramFacts:
    """Return what the first rank ran; digests do not show it."""
    return job.ranks[0].profile.of(program) if isinstance(job, TracedJob) else ProgramFacts()


def _mean_pair(pairs: list[Pair]) -> Pair | None:
    both = [(times.baseline, times.candidate) for times in pairs]
    values = [(a, b) for a, b in both if a is not None and b is not None]
    return pair(*(sum(side) / len(values) for side in zip(*values))) if values else None


def _late_words(job: Job) -> str:
    """Say who keeps the others waiting, according to the first finding about late ranks."""
    causes = (Straggler, RanksTakeTurns)
    finding = next((row for row in job.of(job_findings) if isinstance(BY_ID[row.rule], causes)), None)
    if finding is None:
        return "no rank is a straggler"
    if finding.rule == RanksTakeTurns.id:
        return "ranks take turns as the straggler"
    waited, count = duration(finding.evidence["waited_us_per_step"]), int(finding.evidence["ranks"])
    late = next((row for row in job.of(job_rows.late_ranks) if finding.row == f"ranks:{row.rank}"), None)
    cause = f"it {reason_words(main_cause(late), compared_steps(job))}, and " if late else ""
    who = (finding.row or "").replace("ranks:", "rank ")
    who = f"{who} is the straggler" if count == 1 else f"{count} ranks arrive late, most of all {who}"
    return f"{who} ({cause}the others wait {waited} per step for {'it' if count == 1 else 'them'})"
