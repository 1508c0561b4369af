"""A job of several ranks: who waits for whom, why, how fast collectives are, and where each rank's steps go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Literal, cast, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import at_line, told_apart
from tb_torchcompile_plugin.analysis.ranks.collectives import OverlapRow
from tb_torchcompile_plugin.errors import BadRequest, Notice
from tb_torchcompile_plugin.job.chain import beyond, chain
from tb_torchcompile_plugin.job.digest.host_costs import Blamed, LateCause
from tb_torchcompile_plugin.job.digest.rank_calls import Kind
from tb_torchcompile_plugin.job.instances import calls, instances, numbered
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import Late, late
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.waits import all_here, blame, waits
from tb_torchcompile_plugin.profile.columns import sums
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.torch_names.collectives import Operation, bus_factor

# All ranks and steps of a job by one measure, as columns: small enough for thousands of ranks.


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
_CELLS = 1 << 16  # of how many at most values are told


class JobMap(msgspec.Struct, frozen=True):
    """workers, spans: whose files those of each rank are. hosts: by rank, null where nothing tells. mean_us: by rank,
    of its steps; us: step by step, those of all ranks; null where a rank has no such step. steps_left_out: how many
    more there are, which are in the mean."""

    measure: Measure
    ranks: list[int]
    workers: list[str]
    spans: list[str]
    hosts: list[str | None]
    mean_us: list[float | None]
    steps: list[str]
    us: list[list[float | None]]
    steps_left_out: int


def measure_named(text: str) -> Measure:
    """Raises BadRequest."""
    for one in get_args(Measure):
        if one == text:
            return cast(Measure, one)
    raise BadRequest(f"no measure {text!r}", next_step=f"Ask for one of: {', '.join(get_args(Measure))}")


def job_map(job: Job, measure: str) -> JobMap:
    """measure: a column of a step, or `late_us`: how much longer than its peers the rank took before collectives.
    Raises BadRequest for another one."""
    wanted = measure_named(measure)
    columns = _of_ranks(job, wanted)
    names = list(dict.fromkeys(name for one in columns for name in one))
    shown = names[: max(1, _CELLS // len(job.digests))]
    return JobMap(
        measure=wanted,
        ranks=job.numbers,
        workers=[one.worker for one in job.digests],
        spans=[one.span for one in job.digests],
        hosts=[one.host for one in job.digests],
        mean_us=[_us(np.mean([*one.values()])) if one else None for one in columns],
        steps=shown,
        us=[[_us(one[name]) if name in one else None for one in columns] for name in shown],
        steps_left_out=len(names) - len(shown),
    )


def _us(ns: float | np.floating) -> float:
    return round(float(ns) / 1000, 1)


def _of_ranks(job: Job, measure: Measure) -> list[dict[str, int]]:
    """By rank and step (ns)."""
    if measure == "late_us":
        return _late_by_step(job)
    if measure == "compile_us":
        windows = [one.columns.windows for one in job.digests]
        return [dict(zip(one.names, one.compile.tolist())) for one in windows]
    column = measure.removesuffix("_us")
    return [
        dict(zip(steps.step, getattr(steps, column).tolist())) if steps else {} for steps in job.of(job_steps)
    ]


def _late_by_step(job: Job) -> list[dict[str, int]]:
    """What was launched before the first step is of none."""
    held, ns = job.of(chain), job.of(beyond).ns
    launch = job.of(calls).launch[held.row]
    rows = []
    for place, one in enumerate(job.digests):
        windows, mine = one.columns.windows, slice(int(held.first[place]), int(held.first[place + 1]))
        step = np.searchsorted(windows.begin, launch[mine] - one.base_ns, side="right") - 1
        rows.append(dict(zip(windows.names, _summed(step, ns[mine], len(windows.names)))))
    return rows


def _summed(step: Int64s, ns: Int64s, count: int) -> list[int]:
    total: list[int] = sums(step, ns, count).tolist()
    return total


OutlierKind = Literal["rank", "host", "link", "compiled"]


class RankRow(msgspec.Struct, frozen=True):
    """communication_us = transfer_us + wait_us + unknown_us + unmatched_us. unknown_us: of matched calls what nothing
    tells of whether it waits or transfers. last: at how many collectives this rank came last.
    late_us: how long the others waited for it. worker: whose files these are."""

    rank: int
    worker: str
    span: str
    host: str | None
    communication_us: float
    transfer_us: float
    wait_us: float
    unknown_us: float
    unmatched_us: float
    last: int
    late_us: float
    step_us: float | None


class WaitRow(msgspec.Struct, frozen=True):
    """How long one rank waited for another."""

    rank: int
    for_rank: int
    wait_us: float


class CollectiveRow(msgspec.Struct, frozen=True):
    """Instances of one collective, group and size. Times are sums over ranks and instances; unknown_us: nothing tells
    whether it waits or transfers. Bandwidths are those of the mean over the instances' shortest transfers, of those of
    which all ranks are here; null where there are none, and where the size is not known. wait_percent: of its time.
    end_skew_us_p95: how far apart its ranks are done, on the common clock. wait_…, transfer_…: least, middle and most
    of its ranks' sums, and which rank that is."""

    group: str
    ranks: list[int]
    op: Operation
    dtype: str
    message_bytes: int | None
    group_size: int
    instances: int
    transfer_us: float
    wait_us: float
    unknown_us: float
    wait_percent: float
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    end_skew_us_p95: float
    wait_min_us: float
    wait_min_rank: int
    wait_median_us: float
    wait_max_us: float
    wait_max_rank: int
    transfer_min_us: float
    transfer_min_rank: int
    transfer_median_us: float
    transfer_max_us: float
    transfer_max_rank: int


class JobStep(msgspec.Struct, frozen=True):
    """One step of one rank on its GPU; the parts sum to `span_us`. exposed_unknown_us: nothing tells whether it
    waits or transfers. compile_us: how long its host compiled in it."""

    step: str
    rank: int
    span_us: float
    compute_us: float
    overlapped_us: float
    exposed_transfer_us: float
    exposed_wait_us: float
    exposed_unknown_us: float
    exposed_memory_us: float
    idle_us: float
    compile_us: float


class LateReason(msgspec.Struct, frozen=True):
    """A part of what a rank did beyond its peers. where: the user's line; name: operator, call, function or kernel.
    usual_us: how long it took the peers."""

    cause: LateCause
    name: str
    where: str | None
    excess_us: float
    usual_us: float


class LateRank(msgspec.Struct, frozen=True):
    """Why a rank came last: `causes` sum to `excess_us`, most first."""

    rank: int
    instances: int
    excess_us: float
    causes: list[LateReason]


class OutlierRow(msgspec.Struct, frozen=True):
    """A rank, a host or a link of many that is slow, or ranks that compiled otherwise than most. name: "rank 37",
    "node0011", "node0018 and node0019". ranks: the first of them, `count` how many there are. words: what it does.
    longer_us: how much longer than its peers it takes in a step, gain_us: by how much mending it shortens one with all
    rows before it mended; None where nothing tells."""

    kind: OutlierKind
    name: str
    ranks: list[int]
    count: int
    words: str
    longer_us: float | None
    gain_us: float | None


class LeftOut(msgspec.Struct, frozen=True):
    """How many rows of a large job are not told: those left out are the first ranks' neighbours, and what is least.
    `report --all` tells them all."""

    by_rank: int
    waits: int
    collectives: int
    steps: int
    late: int
    outliers: int


class JobReport(msgspec.Struct, frozen=True):
    """`ranks`: how many were recorded together; missing_ranks: those that are not here: waiting is a lower bound then.
    unmatched: calls of no instance. clock_residual_us_p95: how far apart the ranks' clocks still are. basis: these in
    words. overlap_us: what kernels beside collectives take longer in an average step, None where nothing tells; its
    sentence is there where it is considerable. warnings: why ranks cannot be read. traced: whether the traces of all
    ranks were read; else what only they tell is not here. outliers: of many ranks. map: of all of them, though other
    lists leave some out."""

    headline: str
    basis: str
    ranks: int
    missing_ranks: list[int]
    world_size: int | None
    clock_residual_us_p95: float | None
    matched: int
    unmatched: int
    by_rank: list[RankRow]
    waits: list[WaitRow]
    waits_left_out_us: float
    collectives: list[CollectiveRow]
    steps: list[JobStep]
    late: list[LateRank]
    overlap_us: float | None
    overlap_headline: str | None
    overlap: list[OverlapRow]
    findings: list[Finding]
    warnings: list[Notice]
    traced: bool
    outliers: list[OutlierRow]
    map: JobMap
    left_out: LeftOut


def by_rank(job: Job) -> list[RankRow]:
    """In order of the ranks."""
    made, times = job.of(calls), job.of(waits)
    known = times.wait >= 0

    def by_place(ns: Int64s) -> list[int]:
        return list(map(int, sums(made.place, ns, len(job.digests))))

    columns = (
        by_place(made.dur),
        by_place(times.transferred),
        by_place(np.maximum(times.wait, 0)),
        by_place(times.unknown),
        by_place(np.where(known, 0, made.dur)),
        by_place(times.last.astype(np.int64)),
        job.of(blame).caused_by(len(job.digests)).tolist(),
    )
    return [
        RankRow(
            rank=one.rank,
            worker=one.worker,
            span=one.span,
            host=one.host,
            communication_us=us(communication),
            transfer_us=us(transfer),
            wait_us=us(wait),
            unknown_us=us(unknown),
            unmatched_us=us(unmatched),
            last=last,
            late_us=us(caused),
            step_us=step.mean_ns / 1000 if step else None,
        )
        for one, step, communication, transfer, wait, unknown, unmatched, last, caused in zip(
            job.digests, job.of(job_steps), *columns
        )
    ]


def wait_rows(job: Job, most: int | None = None) -> list[WaitRow]:
    """Most waiting first: who waited for whom at all; so many pairs of them."""
    known, ranks = job.of(blame), job.numbers
    order = np.argsort(-known.ns, kind="stable")[:most]
    return [
        WaitRow(ranks[one], ranks[other], us(ns))
        for one, other, ns in zip(*(column[order].tolist() for column in known))
    ]


def collective_rows(job: Job, most: int | None = None) -> list[CollectiveRow]:
    """Most time first; so many kinds of them."""
    made, known, code = job.of(calls), job.of(instances), job.of(collective_codes)
    if not len(known):
        return []
    kinds = _of_nobody(made.kinds)
    took = sums(code[known.number], made.dur[known.rows], int(code.max()) + 1)
    order = np.argsort(code, kind="stable")
    order = order[np.isin(code[order], np.argsort(-took, kind="stable")[:most])]
    collectives = [
        _collective(job, kinds[made.kind[known.rows[known.first[mine[0]]]]], mine)
        for mine in np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    ]
    return sorted(collectives, key=lambda row: -(row.transfer_us + row.wait_us + row.unknown_us))


def collective_codes(job: Job) -> Int64s:
    """By instance a number of what it is, from 0 on: group, operation, type and size."""
    made, known = job.of(calls), job.of(instances)
    return numbered(_of_nobody(made.kinds))[made.kind[known.rows[known.first]]]


def _of_nobody(kinds: list[Kind]) -> list[Kind]:
    """From whom to whom is none of it."""
    return [kind._replace(source=-1, destination=-1) for kind in kinds]


def _collective(job: Job, kind: Kind, numbers: Int64s) -> CollectiveRow:
    """Of these instances."""
    made, times = job.of(calls), job.of(waits)
    members = job.of(instances).some(numbers)
    rows, first = members.rows, members.first
    size = kind.group_size or int(members.sizes.max())
    skew = np.maximum.reduceat(times.end[rows], first) - np.minimum.reduceat(times.end[rows], first)
    wait, unknown = int(times.wait[rows].sum()), int(times.unknown[rows].sum())
    rate = _rate(kind, np.minimum.reduceat(times.transfer[rows], first)[job.of(all_here)[numbers]])
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
        unknown_us=us(unknown),
        wait_percent=100 * wait / max(int(made.dur[rows].sum()), 1),
        algbw_gb_s=rate,
        busbw_gb_s=None if rate is None else rate * bus_factor(kind.operation, size),
        end_skew_us_p95=us(int(np.sort(skew)[-1 - len(skew) // 20])),
        **_spread(job, "wait", made.place[rows], times.wait[rows]),
        **_spread(job, "transfer", made.place[rows], times.transferred[rows]),
    )


def _rate(kind: Kind, shortest: Int64s) -> float | None:
    """Bytes over the mean of the shortest transfers of instances of which all ranks are here (GB/s): whoever comes last
    waits for nobody, but for ranks that are not."""
    total = int(shortest.sum())
    return len(shortest) * kind.message_bytes / total if kind.message_bytes > 0 and total else None


def _spread(job: Job, name: str, place: Int64s, ns: Int64s) -> dict[str, Any]:
    """Over the ranks that took part: the least, the middle and the most, and whose these are."""
    here = np.unique(place)
    total = sums(np.searchsorted(here, place), ns, len(here))
    least, most = int(total.argmin()), int(total.argmax())
    return {
        f"{name}_min_us": us(total[least]),
        f"{name}_min_rank": job.numbers[here[least]],
        f"{name}_median_us": float(np.median(total)) / 1000,
        f"{name}_max_us": us(total[most]),
        f"{name}_max_rank": job.numbers[here[most]],
    }


def step_rows(job: Job, places: Collection[int] | None = None) -> list[JobStep]:
    """Step by step of the first rank, rank by rank; of these ranks alone where they are named."""
    rows = [
        JobStep(name, one.rank, *map(us, (*parts, compiling[name])))
        for place, (one, steps) in enumerate(zip(job.digests, job.of(job_steps)))
        if steps is not None and (places is None or place in places)
        for compiling in [dict(zip(one.columns.windows.names, one.columns.windows.compile.tolist()))]
        for name, *parts in zip(steps.step, *(column.tolist() for column in steps[1:]))
    ]
    order = {name: place for place, name in enumerate(dict.fromkeys(row.step for row in rows))}
    return sorted(rows, key=lambda row: (order[row.step], row.rank))


def late_ranks(job: Job) -> list[LateRank]:
    """Those that came last, most excess first."""
    return late_rows(job, job.of(late))


def late_rows(job: Job, ones: Iterable[Late]) -> list[LateRank]:
    """Of these collectives, rank by rank, most excess first."""
    sums: dict[int, Counter[Blamed]] = defaultdict(Counter)
    usual: dict[int, Counter[Blamed]] = defaultdict(Counter)
    times: dict[int, int] = defaultdict(int)
    for one in ones:
        times[one.place] += 1
        sums[one.place].update(one.parts)
        usual[one.place].update(one.usual)
    rows = [
        LateRank(
            rank=job.numbers[place],
            instances=times[place],
            excess_us=us(sum(parts.values())),
            causes=[
                LateReason(blamed.cause, blamed.name, where, us(parts[blamed]), us(usual[place][blamed]))
                for blamed, where in _places(sorted(parts, key=lambda one: -parts[one])).items()
            ],
        )
        for place, parts in sums.items()
        if parts
    ]
    return sorted(rows, key=lambda row: -row.excess_us)


def _places(causes: list[Blamed]) -> dict[Blamed, str | None]:
    """The user's line of each, with as much of its path as tells files of one name apart."""
    names = told_apart(one.file for one in causes if one.file)
    return {one: f"{names[one.file]}:{one.line}" if one.file else None for one in causes}


def place_of(blamed: Blamed) -> str | None:
    """The user's line: "train.py:12"."""
    return at_line(blamed.file, blamed.line) or None
