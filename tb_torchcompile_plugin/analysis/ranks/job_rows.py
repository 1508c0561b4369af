"""Which tables describe a job of several ranks: ranks, waits, collectives, steps, why ranks are late?"""

from collections import Counter
from collections.abc import Collection
from typing import Annotated, Literal, cast, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import column_head, shortest_unique_paths
from tb_torchcompile_plugin.errors import BadRequest, Notice, quoted
from tb_torchcompile_plugin.job.chain import chain, own_excess
from tb_torchcompile_plugin.job.digest.rank_calls import numbered
from tb_torchcompile_plugin.job.instances import blame, calls, clocks, instances, is_complete, waits
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import late_by_rank
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.profile.columns import Int64s, sums, us
from tb_torchcompile_plugin.profile.model.attribution import Attribution, HostCauseKind
from tb_torchcompile_plugin.torch_names.collectives import Operation, bus_factor

Measure = Literal[
    "late_us",
    "span_us",
    "exposed_wait_us",
    "exposed_transfer_us",
    "exposed_unknown_us",
    "compute_us",
    "overlapped_us",
    "exposed_memory_us",
    "idle_us",
    "compile_us",
]
_MAX_CELLS = 1 << 16  # ranks by steps of a map: about half a megabyte of JSON


class RankRow(msgspec.Struct, frozen=True):
    """One rank; communication_us = transfer_us + wait_us + unknown_us + unmatched_us."""

    rank: int
    worker: Annotated[str, column_head(hidden=True)]  # whose files these are
    span: Annotated[str, column_head(hidden=True)]
    host: str | None
    communication_us: float
    transfer_us: float
    wait_us: Annotated[float, column_head("Waits for others")]
    unknown_us: Annotated[float, column_head("Wait or transfer")]  # of matched calls: either of both
    unmatched_us: Annotated[float, column_head("Not matched")]
    last: Annotated[int, column_head("Arrives last")]  # at how many collectives
    late_us: Annotated[float, column_head("Others wait for it", bar=True)]
    step_us: float | None


class WaitRow(msgspec.Struct, frozen=True):
    """How long one rank waited for another."""

    rank: int
    for_rank: int
    wait_us: float


class InstanceCall(msgspec.Struct, frozen=True):
    """A collective on one rank; it lasts wait_us + unknown_us + transfer_us, in this order."""

    rank: int
    start_us: float  # after the first of its ranks, on the common clock
    wait_us: float
    unknown_us: float  # waiting or transferring
    transfer_us: float
    timeline_ns: int  # when the first of the ranks started, on this rank's own timeline


class CollectiveRow(msgspec.Struct, frozen=True):
    """Instances of one collective, group and size; times are sums over ranks and instances."""

    group: str
    ranks: list[int]
    op: Annotated[Operation, column_head("Operation", grow=True)]
    dtype: Annotated[str, column_head("Type", hidden=True)]
    message_bytes: Annotated[int | None, column_head("Size")]
    group_size: int
    instances: Annotated[int, column_head(total=True)]
    transfer_us: Annotated[float, column_head(total=True)]
    wait_us: Annotated[float, column_head(total=True)]
    unknown_us: Annotated[float, column_head("Wait or transfer", hidden=True)]  # waiting or transferring
    wait_percent: Annotated[float, column_head("Wait share", bar=True)]  # of the collective's own time
    # Bytes over the mean of the shortest transfers of the instances that have all their ranks.
    algbw_gb_s: Annotated[float | None, column_head("Alg. GB/s")]
    busbw_gb_s: Annotated[float | None, column_head("Bus GB/s")]
    # how far apart the ranks end, on the common clock
    end_skew_us_p95: Annotated[float, column_head("End skew, µs")]
    most_waiting: list[InstanceCall]  # the instance whose ranks waited longest together, by rank


class JobStep(msgspec.Struct, frozen=True):
    """One step of one rank on its GPU; the parts but for `compile_us` sum to `span_us`."""

    step: str
    rank: int
    span_us: float
    compute_us: float
    overlapped_us: float
    exposed_transfer_us: float
    exposed_wait_us: float
    exposed_unknown_us: float  # waiting or transferring
    exposed_memory_us: float
    idle_us: float
    compile_us: float  # how long the host compiled in the step


class LateReason(msgspec.Struct, frozen=True):
    """A part of what a rank did beyond its peers."""

    cause: HostCauseKind
    name: Annotated[str, column_head(grow=True)]  # operator, call, function or kernel
    where: Annotated[str | None, column_head("Your line")]
    excess_us: Annotated[float, column_head("Longer than its peers", bar=True)]
    typical_us: Annotated[float, column_head("On peers")]


class LateRank(msgspec.Struct, frozen=True):
    """Why a rank came last: `causes` sum to `excess_us`, most first."""

    rank: int
    instances: int
    excess_us: float
    causes: Annotated[list[LateReason], column_head("Why the straggler is late", inner=True)]


class JobMap(msgspec.Struct, frozen=True):
    """All ranks and steps of a job by one measure, as columns: small enough for thousands of ranks."""

    measure: Measure
    ranks: list[int]
    workers: list[str]
    spans: list[str]
    hosts: list[str | None]
    mean_us: list[float | None]  # by rank, over its steps
    steps: list[str]
    us: list[list[float | None]]  # by step and rank; None where the rank has no such step
    steps_left_out: int  # steps that are only in the mean


class LeftOut(msgspec.Struct, frozen=True):
    """How many rows of a large job are left out; `report --all` has them all."""

    by_rank: int
    waits: int
    collectives: int
    steps: int


class JobReport(msgspec.Struct, frozen=True):
    """All that is shown of a job as a whole."""

    headline: str
    basis: str  # which ranks were recorded, what was matched, how good the clock is
    ranks: int  # recorded together
    step_us: float | None  # a step of the job: that of its slowest rank; the ranks' own are in `by_rank`
    missing_ranks: list[int]  # with any, waiting is a lower bound
    world_size: int | None
    clock_residual_us_p95: float | None  # how far apart the ranks' clocks still are
    by_rank: list[RankRow]
    waits: list[WaitRow]
    collectives: list[CollectiveRow]
    steps: list[JobStep]
    late: list[LateRank]
    findings: list[Finding]
    warnings: list[Notice]  # why ranks cannot be read
    traced: bool  # whether the traces of all ranks were read; what only traces show is missing otherwise
    map: JobMap  # of all ranks, even where other lists leave some out
    left_out: LeftOut


def rank_rows(job: Job) -> list[RankRow]:
    """Return one row for each rank, in order."""
    call_table, times, count = job.of(calls), job.of(waits), len(job.digests)
    columns = {
        "communication_us": call_table.dur,
        "transfer_us": times.transferred,
        "wait_us": np.maximum(times.wait, 0),
        "unknown_us": times.unknown,
        "unmatched_us": np.where(times.wait >= 0, 0, call_table.dur),
    }
    totals = {name: sums(call_table.rank_index, column, count) for name, column in columns.items()}
    totals["late_us"] = job.of(blame).caused_by(count)
    last = sums(call_table.rank_index, times.last.astype(np.int64), count)
    return [
        RankRow(
            rank=digest.rank,
            worker=digest.worker,
            span=digest.span,
            host=digest.host,
            last=int(last[index]),
            step_us=digest.step_us,
            **{name: us(total[index]) for name, total in totals.items()},
        )
        for index, digest in enumerate(job.digests)
    ]


def wait_rows(job: Job, most: int | None = None) -> list[WaitRow]:
    """Return which rank waited for which, most waiting first; at most `most` pairs."""
    blamed, ranks = job.of(blame), job.numbers
    order = np.argsort(-blamed.ns, kind="stable")[:most]
    columns = (column[order].tolist() for column in blamed)
    return [WaitRow(ranks[waiting], ranks[awaited], us(ns)) for waiting, awaited, ns in zip(*columns)]


def collective_rows(job: Job, most: int | None = None) -> list[CollectiveRow]:
    """Return one row for each kind of collective, most time first; the `most` longest of them."""
    call_table, table, code = job.of(calls), job.of(instances), job.of(collective_codes)
    if not len(table):
        return []
    took = sums(code[table.number], call_table.dur[table.rows], int(code.max()) + 1)
    order = np.argsort(code, kind="stable")
    order = order[np.isin(code[order], np.argsort(-took, kind="stable")[:most])]
    numbers_of_kinds = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    rows = [_collective(job, numbers) for numbers in numbers_of_kinds]
    return sorted(rows, key=lambda row: -(row.transfer_us + row.wait_us + row.unknown_us))


def collective_codes(job: Job) -> Int64s:
    """Number each instance by group, operation, type and size, from 0 on."""
    call_table, table = job.of(calls), job.of(instances)
    # Sender and receiver do not make another kind.
    kinds = [kind._replace(source=-1, destination=-1) for kind in call_table.kinds]
    return numbered(kinds)[call_table.kind[table.rows[table.first]]]


def _collective(job: Job, numbers: Int64s) -> CollectiveRow:
    call_table, times = job.of(calls), job.of(waits)
    members = job.of(instances).some(numbers)
    rows, first = members.rows, members.first
    kind = call_table.kind_of(rows[0])
    size = kind.group_size or int(members.sizes.max())
    skew = np.maximum.reduceat(times.end[rows], first) - np.minimum.reduceat(times.end[rows], first)
    wait = int(times.wait[rows].sum())
    # With all ranks present, the last one waits for nobody: the shortest transfer is without waiting.
    shortest = np.minimum.reduceat(times.transfer[rows], first)[job.of(is_complete)[numbers]]
    total = int(shortest.sum())
    rate = len(shortest) * kind.message_bytes / total if kind.message_bytes > 0 and total else None
    return CollectiveRow(
        group=kind.group.name if kind.group else "",
        ranks=list(kind.group.ranks) if kind.group else [],
        op=kind.operation,
        dtype=kind.dtype,
        message_bytes=kind.message_bytes if kind.message_bytes >= 0 else None,
        group_size=size,
        instances=len(members),
        transfer_us=us(times.transferred[rows].sum()),
        wait_us=us(wait),
        unknown_us=us(times.unknown[rows].sum()),
        wait_percent=100 * wait / max(int(call_table.dur[rows].sum()), 1),
        algbw_gb_s=rate,
        busbw_gb_s=None if rate is None else rate * bus_factor(kind.operation, size),
        end_skew_us_p95=us(np.sort(skew)[-1 - len(skew) // 20]),
        most_waiting=_instance_calls(job, int(numbers[np.argmax(np.add.reduceat(times.wait[rows], first))])),
    )


def _instance_calls(job: Job, number: int) -> list[InstanceCall]:
    times, rows = job.of(waits), job.of(instances).some(np.array([number])).rows
    indices, first_ns = job.of(calls).rank_index[rows], times.begin[rows].min()
    # A timeline begins with what was recorded.
    zeros = [digest.base_ns + digest.columns.header.begin_ns for digest in job.digests]
    return [
        InstanceCall(
            rank=job.numbers[index],
            start_us=us(times.begin[row] - first_ns),
            wait_us=us(times.wait[row]),
            unknown_us=us(times.unknown[row]),
            transfer_us=us(times.transferred[row]),
            timeline_ns=int(first_ns + job.of(clocks).offset_ns[index]) - zeros[index],
        )
        for index, row in zip(indices.tolist(), rows.tolist())
    ]


def step_rows(job: Job, indices: Collection[int] | None = None) -> list[JobStep]:
    """Return one row for each step and rank, by step; of the ranks at these indices, or of all."""
    rows = []
    for index, (digest, steps) in enumerate(zip(job.digests, job.of(job_steps))):
        if steps is None or (indices is not None and index not in indices):
            continue
        windows = digest.columns.windows
        compiling = dict(zip(windows.names, windows.compile.tolist()))
        for name, *parts in zip(steps.step, *(column.tolist() for column in steps[1:])):
            rows.append(JobStep(name, digest.rank, *map(us, (*parts, compiling[name]))))
    order = {name: number for number, name in enumerate(dict.fromkeys(row.step for row in rows))}
    return sorted(rows, key=lambda row: (order[row.step], row.rank))


def late_ranks(job: Job) -> list[LateRank]:
    """Return why ranks came last, most excess first."""
    rows = []
    for index, of_rank in job.of(late_by_rank).items():
        excess, usual = Counter[Attribution](), Counter[Attribution]()
        for late_ in of_rank:
            excess.update(late_.parts)
            usual.update(late_.usual)
        causes = sorted(excess, key=lambda cause: -excess[cause])
        # As much of the path as distinguishes files of one name.
        names = shortest_unique_paths(cause.file for cause in causes if cause.file)
        reasons = [
            LateReason(
                cause.cause,
                cause.name,
                f"{names[cause.file]}:{cause.line}" if cause.file else None,
                us(excess[cause]),
                us(usual[cause]),
            )
            for cause in causes
        ]
        if reasons:
            rows.append(LateRank(job.numbers[index], len(of_rank), us(sum(excess.values())), reasons))
    return sorted(rows, key=lambda row: -row.excess_us)


def job_map(job: Job, measure: str) -> JobMap:
    """Return one measure of all ranks and steps.

    The measure is a column of a step, or `late_us`: how much longer than its peers a rank took before collectives.
    Raises BadRequest for another one.
    """
    if measure not in get_args(Measure):
        raise BadRequest(
            f"no measure {quoted(measure)}", next_step=f"Ask for one of: {', '.join(get_args(Measure))}"
        )
    columns = _by_rank_and_step(job, measure)
    names = list(dict.fromkeys(name for column in columns for name in column))
    shown = names[: max(1, _MAX_CELLS // len(job.digests))]
    return JobMap(
        measure=cast(Measure, measure),
        ranks=job.numbers,
        workers=[digest.worker for digest in job.digests],
        spans=[digest.span for digest in job.digests],
        hosts=[digest.host for digest in job.digests],
        mean_us=[_rounded_us(np.mean([*column.values()])) if column else None for column in columns],
        steps=shown,
        us=[[_rounded_us(column[name]) if name in column else None for column in columns] for name in shown],
        steps_left_out=len(names) - len(shown),
    )


def _rounded_us(ns: float | np.floating) -> float:
    return round(float(ns) / 1000, 1)


def _by_rank_and_step(job: Job, measure: str) -> list[dict[str, int]]:
    """Return the measure in ns."""
    if measure == "late_us":
        return _late_by_step(job)
    if measure == "compile_us":
        windows = [digest.columns.windows for digest in job.digests]
        return [dict(zip(window.names, window.compile.tolist())) for window in windows]
    part = measure.removesuffix("_us")
    return [dict(zip(rank.step, getattr(rank, part).tolist())) if rank else {} for rank in job.of(job_steps)]


def _late_by_step(job: Job) -> list[dict[str, int]]:
    """Return what each rank did beyond its peers by the step that launched the collective, as far as it is known."""
    calls_, excess = job.of(chain), job.of(own_excess)
    launch = job.of(calls).launch[calls_.row]
    rows = []
    for index, digest in enumerate(job.digests):
        windows = digest.columns.windows
        of_rank = slice(int(calls_.first[index]), int(calls_.first[index + 1]))
        step = np.searchsorted(windows.begin, launch[of_rank] - digest.base_ns, side="right") - 1
        total = sums(step, excess[of_rank], len(windows.names))
        rows.append(dict(zip(windows.names[: digest.host_steps], total.tolist())))
    return rows
