"""Two jobs of as many ranks side by side: the step, where each rank's goes, who waits for whom and why, collectives.

All times are of an average step: sums over what was recorded are divided by the steps that were marked; why a rank is
late, by those of which it is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from os.path import basename

import msgspec

from tb_torchcompile_plugin.analysis.compare.compare import StepTimeDifference, step_time_difference
from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Pair, change_of, numbers, pair
from tb_torchcompile_plugin.analysis.compare.tables import TableLayout
from tb_torchcompile_plugin.analysis.compare.verdict import of_steps
from tb_torchcompile_plugin.analysis.formatting import duration, listed, plural
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.analysis.ranks.job_rows import CollectiveRow, by_rank, collective_rows, late_ranks
from tb_torchcompile_plugin.analysis.ranks.late import does, main_cause
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepTimes, step_times
from tb_torchcompile_plugin.job.digest.host_costs import Blamed, LateCause
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import compared_steps, late
from tb_torchcompile_plugin.job.steps import RankSteps, job_lengths, job_steps, marked_steps
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.collectives import Operation

_PARTS = (
    "compute",
    "overlapped",
    "exposed_transfer",
    "exposed_wait",
    "exposed_unknown",
    "exposed_memory",
    "idle",
)
_SAYS = {
    "compute": "computes",
    "overlapped": "computes beside communication",
    "exposed_transfer": "transfers alone",
    "exposed_wait": "waits for other ranks",
    "exposed_unknown": "waits or transfers, which is not known,",
    "exposed_memory": "copies alone",
    "idle": "idles",
}

_RANK = {"step_us": "Step", "exposed_wait_us": "Waits", "late_us": "Others waited"}
_RANK_PARTS = {
    "compute_us": "Compute",
    "overlapped_us": "Overlapped",
    "exposed_transfer_us": "Exposed transfer",
    "exposed_unknown_us": "Exposed, not known which",
    "exposed_memory_us": "Exposed memory",
    "idle_us": "Idle",
    "wait_us": "Waits, overlapped too",
}
_LATE = {"rank": "Rank", "cause": "What", "name": "Culprit", "where": "Your line"}
_COLLECTIVE = {"op": "Collective", "group": "Group", "dtype": "Type", "message_bytes": "Size"}
_TIMES = {"transfer_us": "Transfer", "wait_us": "Wait", "busbw_gb_s": "Bus GB/s"}
LAYOUT = [
    TableLayout("ranks", "Ranks", {"rank": "Rank"}, _RANK, _RANK_PARTS),
    TableLayout("late", "Why ranks come late", _LATE, {"excess_us": "Longer than its peers"}),
    TableLayout("collectives", "Collectives", _COLLECTIVE, _TIMES, {"instances": "Times"}),
]


class RankCompared(Compared, frozen=True):
    """A rank in an average step on its GPU; the parts sum to `step_us`. wait_us: in collectives, for others. late_us:
    how long the others waited for it, together."""

    rank: int
    step_us: Pair
    compute_us: Pair
    overlapped_us: Pair
    exposed_transfer_us: Pair
    exposed_wait_us: Pair
    exposed_unknown_us: Pair
    exposed_memory_us: Pair
    idle_us: Pair
    wait_us: Pair
    late_us: Pair


class LateCompared(Compared, frozen=True):
    """What a rank did in a step beyond its peers, by cause. where: the user's line, with its folder where files of
    several folders have that name."""

    rank: int
    cause: LateCause
    name: str
    where: str | None
    excess_us: Pair


class CollectiveCompared(Compared, frozen=True):
    """Collectives of one group, kind and size; times of a step, over all ranks."""

    group: str
    op: Operation
    dtype: str
    message_bytes: int | None
    transfer_us: Pair
    wait_us: Pair
    busbw_gb_s: Pair
    instances: Pair


class JobsCompared(msgspec.Struct, frozen=True):
    """notice: why the ranks of both cannot be put beside each other; the lists are empty then. step_time: of the job's
    step, the longest among its ranks; None where a side has none."""

    verdict: str
    notice: str | None
    a_ranks: int
    b_ranks: int
    step_time: StepTimeDifference | None
    ranks: list[RankCompared]
    late: list[LateCompared]
    collectives: list[CollectiveCompared]
    layout: list[TableLayout]


@dataclass(frozen=True, eq=False)
class Jobs(Memoized):
    """What questions about two jobs are asked of."""

    a: Job
    b: Job


def compare_jobs(jobs: Jobs) -> JobsCompared:
    """Rank by rank; with a notice alone where both are one job, or have not as many ranks."""
    sizes = len(jobs.a.digests), len(jobs.b.digests)
    if notice := _notice(jobs):
        return JobsCompared(notice, notice, *sizes, None, [], [], [], LAYOUT)
    step_time = _step_time(jobs)
    ranks = _ranks(jobs)
    return JobsCompared(
        verdict=" ".join(_verdict(jobs, step_time, ranks)),
        notice=None,
        a_ranks=sizes[0],
        b_ranks=sizes[1],
        step_time=step_time,
        ranks=ranks,
        late=_late(jobs),
        collectives=_collectives(jobs),
        layout=LAYOUT,
    )


def _notice(jobs: Jobs) -> str | None:
    if jobs.a is jobs.b:
        return "Both are ranks of one job: the panel Ranks puts them side by side."
    sizes = [job.world_size or len(job.digests) for job in (jobs.a, jobs.b)]
    if sizes[0] != sizes[1]:
        return (
            f"The job of A has {plural(sizes[0], 'rank')}, that of B {sizes[1]:,}: each has another share of the "
            "work, so ranks are not put beside each other; the two spans are."
        )
    only = [_traces(one, other, side) for one, other, side in ((jobs.a, jobs.b, "A"), (jobs.b, jobs.a, "B"))]
    if any(only):
        return (
            f"The {', '.join(filter(None, only))}: what is waited for the others is not known, so ranks are not put "
            "beside each other; the two spans are."
        )
    return None


def _traces(job: Job, other: Job, side: str) -> str:
    """Those that one side alone has: "traces of ranks 2, 3 can be read in B alone"; "" where there are none."""
    ranks = sorted({*job.numbers} - {*other.numbers})
    if not ranks:
        return ""
    return f"{'trace of rank' if len(ranks) == 1 else 'traces of ranks'} {listed(ranks)} can be read in {side} alone"


def _step_time(jobs: Jobs) -> StepTimeDifference | None:
    a, b = (_times(job) for job in (jobs.a, jobs.b))
    return step_time_difference(a, b) if a and b else None


def _times(job: Job) -> StepTimes | None:
    return step_times([ns / 1000 for ns in job.of(job_step_ns)])


def job_step_ns(job: Job) -> list[int]:
    """Of the job's steps: a step lasts as long as on its slowest rank."""
    longest: dict[str, int] = {}
    for lengths in job.of(job_lengths):
        for name, ns in zip(lengths.step, lengths.ns.tolist()):
            longest[name] = max(longest.get(name, 0), ns)
    return list(longest.values())


def _ranks(jobs: Jobs) -> list[RankCompared]:
    a, b = (_rank_figures(job) for job in (jobs.a, jobs.b))
    return [
        RankCompared(rank=rank, **numbers(**_pairs(a.get(rank, {}), b.get(rank, {}))))
        for rank in sorted({*a, *b})
    ]


_Figures = dict[str, float | None]
_FIGURES = ("step_us", *(f"{part}_us" for part in _PARTS), "wait_us", "late_us")


def _pairs(a: _Figures, b: _Figures) -> dict[str, Pair]:
    return {name: pair(a.get(name), b.get(name)) for name in _FIGURES}


def _rank_figures(job: Job) -> dict[int, _Figures]:
    """By rank, µs of an average step."""
    marked = job.of(marked_steps)
    return {
        row.rank: {
            **_parts(steps),
            "step_us": _mean_us(lengths.ns),
            "wait_us": row.wait_us / marked,
            "late_us": row.late_us / marked,
        }
        for row, steps, lengths in zip(job.of(by_rank), job.of(job_steps), job.of(job_lengths))
    }


def _parts(steps: RankSteps | None) -> _Figures:
    """Of the steps whose length is known."""
    if steps is None:
        return {}
    whole = slice(len(steps.counted))
    return {f"{part}_us": _mean_us(getattr(steps, part)[whole]) for part in _PARTS}


def _mean_us(ns: Iterable[int]) -> float | None:
    values = list(ns)
    return float(sum(values)) / len(values) / 1000 if values else None


def _late(jobs: Jobs) -> list[LateCompared]:
    """Most of it first."""
    several = _of_one_name(jobs.a) | _of_one_name(jobs.b)
    a, b = (_excess(job, several) for job in (jobs.a, jobs.b))
    rows = [
        LateCompared(
            rank=rank,
            cause=cause,
            name=name,
            where=where,
            **numbers(excess_us=pair(a.get(key, 0.0), b.get(key, 0.0))),
        )
        for key in dict.fromkeys((*a, *b))
        for rank, cause, name, where in [key]
    ]
    return sorted(rows, key=lambda row: -max(abs(row.excess_us.a or 0), abs(row.excess_us.b or 0)))


def _of_one_name(job: Job) -> set[str]:
    """Names that several files have. Any other is its file's, as the same program may lie in another folder."""
    files = {blamed.file for one in job.of(late) for blamed in one.parts if blamed.file}
    return {name for name, times in Counter(map(basename, files)).items() if times > 1}


_Reason = tuple[int, LateCause, str, str | None]


def _excess(job: Job, several: set[str]) -> dict[_Reason, float]:
    """µs of a step that is compared."""
    steps, sums = compared_steps(job), Counter[_Reason]()
    for one in job.of(late):
        for blamed, ns in one.parts.items():
            sums[_reason(job.numbers[one.place], blamed, several)] += ns
    return {key: us(ns) / steps for key, ns in sums.items()}


def _reason(rank: int, blamed: Blamed, several: set[str]) -> _Reason:
    if not blamed.file:
        return rank, blamed.cause, blamed.name, None
    file = basename(blamed.file)
    file = blamed.file if file in several else file
    return rank, blamed.cause, blamed.name.replace(blamed.file, file), f"{file}:{blamed.line}"


def _collectives(jobs: Jobs) -> list[CollectiveCompared]:
    """Most time first."""
    a, b = ({_kind(row): row for row in job.of(collective_rows)} for job in (jobs.a, jobs.b))
    steps = jobs.a.of(marked_steps), jobs.b.of(marked_steps)
    rows = [_collective(kind, a.get(kind), b.get(kind), steps) for kind in dict.fromkeys((*a, *b))]
    return sorted(rows, key=lambda row: -max(row.transfer_us.a or 0, row.transfer_us.b or 0))


_Kind = tuple[str, tuple[int, ...], Operation, str, int | None]


def _kind(row: CollectiveRow) -> _Kind:
    return row.group, tuple(row.ranks), row.op, row.dtype, row.message_bytes


def _collective(
    kind: _Kind, a: CollectiveRow | None, b: CollectiveRow | None, steps: tuple[int, int]
) -> CollectiveCompared:
    def of_a_step(name: str) -> Pair:
        values = (getattr(row, name) / count if row else None for row, count in zip((a, b), steps))
        return pair(*values)

    known = numbers(
        transfer_us=of_a_step("transfer_us"),
        wait_us=of_a_step("wait_us"),
        busbw_gb_s=pair(*(row.busbw_gb_s if row else None for row in (a, b))),
        instances=of_a_step("instances"),
    )
    group, _, op, dtype, message_bytes = kind
    return CollectiveCompared(group=group, op=op, dtype=dtype, message_bytes=message_bytes, **known)


def _verdict(jobs: Jobs, step_time: StepTimeDifference | None, ranks: list[RankCompared]) -> Iterable[str]:
    """The step, the part of it that changed most, and who keeps the others waiting."""
    yield of_steps(step_time, "the job's step") if step_time else "No steps were marked on both sides."
    if most := _most_changed(ranks):
        part, times = most
        yield f"Of a step a rank {_SAYS[part]} for {change_of(times)}, in the mean."
    said = [_who(job) for job in (jobs.a, jobs.b)]
    if said[0] == said[1]:
        yield f"On both sides {said[0]}."
    else:
        yield f"In A {said[0]}; in B {said[1]}."


def _most_changed(ranks: list[RankCompared]) -> tuple[str, Pair] | None:
    means = {part: _mean_of([getattr(row, f"{part}_us") for row in ranks]) for part in _PARTS}
    known = {part: times for part, times in means.items() if times and times.delta}
    return max(known.items(), key=lambda one: abs(one[1].delta or 0)) if known else None


def _mean_of(pairs: list[Pair]) -> Pair | None:
    known = [(one.a, one.b) for one in pairs if one.a is not None and one.b is not None]
    return pair(*(sum(side) / len(known) for side in zip(*known))) if known else None


def _who(job: Job) -> str:
    """As the first finding about late ranks tells it."""
    row = next((one for one in job.of(job_findings) if one.rule in ("late_rank", "ranks_take_turns")), None)
    if row is None:
        return "no rank keeps the others waiting"
    if row.rule == "ranks_take_turns":
        return "ranks take turns at coming last"
    last = next(one for one in job.of(late_ranks) if row.row == f"ranks:{one.rank}")
    marked = job.of(marked_steps)
    waited = duration(next(one.late_us for one in job.of(by_rank) if one.rank == last.rank) / marked)
    what = does(main_cause(last), compared_steps(job))
    return f"rank {last.rank} comes last (it {what}; the others wait {waited} a step for it, together)"
