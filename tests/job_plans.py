"""Random jobs: which groups call what in which step, who comes when, and what was recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from jobs import BASE, PG, host, launched, members_of, metadata_of, shifted, written
from tb_torchcompile_plugin.job.instances import calls, waits
from tb_torchcompile_plugin.job.job import Job, TracedJob
from traces import Event, kernel

WORDS = ("allreduce", "_allgather_base", "_reduce_scatter_base", "send", "untold")
KEYS = ("id", "seq", "count")
_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "untold": "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
}


class Op(NamedTuple):
    """One collective. The first two of `ranks` are sender and receiver. late: by rank, before it comes (ns)."""

    number: int
    step: int
    word: str
    group: PG
    ranks: tuple[int, ...]
    late: tuple[int, ...]
    transfer: int
    elements: int


class Ran(NamedTuple):
    """What one rank ran of it, on the true clock (ns). end < 0: not known before all have come."""

    op: Op
    begin: int
    end: int


@dataclass(frozen=True)
class Plan:
    """recorded: of each rank the first step that was recorded, and the one behind the last. shift: what its clock is
    ahead; part of that is in the base of its trace."""

    size: int
    steps: int
    ops: tuple[Op, ...]
    recorded: tuple[tuple[int, int], ...]
    shift: tuple[int, ...]
    present: tuple[int, ...]

    @property
    def groups(self) -> list[PG]:
        return sorted({op.group for op in self.ops})

    def without(self, rank: int) -> Plan:
        return replace(self, present=tuple(one for one in self.present if one != rank))

    def with_shift(self, rank: int, ns: int) -> Plan:
        shift = list(self.shift)
        shift[rank] += ns
        return replace(self, shift=tuple(shift))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """2 to 6 ranks. All of them meet at the begin of each step; then any groups do anything."""
    size, steps = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    world = PG("0", tuple(range(size)))
    subset = st.lists(st.integers(0, size - 1), min_size=2, unique=True).map(sorted).map(tuple)
    groups = [world, *(PG(str(at + 1), one) for at, one in enumerate(draw(st.lists(subset, max_size=2))))]
    ops: list[Op] = []
    for step in range(steps):
        more = draw(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(groups)), max_size=4))
        for word, group in [("allreduce", world), *more]:
            ranks = tuple(draw(st.permutations(group.ranks))[:2]) if word == "send" else group.ranks
            late = tuple(draw(st.integers(0, 100_000)) for _ in ranks)
            ops.append(
                Op(len(ops), step, word, group, ranks, late, draw(st.integers(1, 50_000)), 8 + len(ops) % 2)
            )
    first = draw(st.integers(0, steps - 1))
    recorded = tuple((draw(st.integers(0, first)), draw(st.integers(first + 1, steps))) for _ in range(size))
    shift = tuple(draw(st.sampled_from([0, 0, 5_000_000, -700_001])) for _ in range(size))
    return Plan(size, steps, tuple(ops), recorded, shift, tuple(range(size)))


class Course(NamedTuple):
    """How it went: by rank what it ran, and the windows of its steps."""

    ran: dict[int, list[Ran]]
    windows: dict[int, list[tuple[int, int]]]


def course(plan: Plan) -> Course:
    """Each rank does one thing after the other."""
    now = dict.fromkeys(range(plan.size), 10_000_000)
    ran: dict[int, list[Ran]] = {rank: [] for rank in now}
    windows: dict[int, list[tuple[int, int]]] = {rank: [] for rank in now}
    for step in range(plan.steps):
        begun = dict(now)
        for op in (op for op in plan.ops if op.step == step):
            begin = {rank: now[rank] + 5_000 + late for rank, late in zip(op.ranks, op.late)}
            last = max(begin.values())
            for rank in op.ranks:
                ready = begin[rank] if op.word == "send" and rank == op.ranks[0] else last
                if op.word == "send" and rank == op.ranks[1]:
                    ready = max(begin[rank], begin[op.ranks[0]])
                ran[rank].append(Ran(op, begin[rank], ready + op.transfer))
                now[rank] = ready + op.transfer
        for rank in now:
            now[rank] += 10_000
            windows[rank].append((begun[rank], now[rank]))
    return Course(ran, windows)


def job(plan: Plan, folder: Path, key: str = "count") -> TracedJob:
    """Of what was recorded of the ranks that are present. key: by what torch tells which calls are one collective."""
    took = course(plan)
    ranks = {rank: list(_events(plan, took, rank, key)) for rank in plan.present}
    return written(
        folder,
        {rank: shifted(events, plan.shift[rank] // 3) for rank, events in ranks.items()},
        plan.groups,
        plan.size,
        {rank: plan.shift[rank] - plan.shift[rank] // 3 for rank in ranks},
    )


def _events(plan: Plan, took: Course, rank: int, key: str) -> Iterator[Event]:
    first, behind = plan.recorded[rank]
    for step in range(first, behind):
        begin, end = took.windows[rank][step]
        yield host(f"ProfilerStep#{step}", begin, end - begin, "user_annotation")
    seqs: dict[tuple[str, bool], int] = {}
    for op, begin, end in took.ran[rank]:
        counter = op.group.name, op.word == "send"  # one of all that a rank exchanges, with whomever
        seqs[counter] = seqs.get(counter, -1) + 1
        if op.step == first - 1:
            yield kernel(
                _KERNELS[op.word], begin / 1000, (end - begin) / 1000
            )  # launched before the recording
        if first <= op.step < behind:
            args = {} if op.word == "untold" else _args(op, rank, key, seqs[counter])
            yield from launched(_KERNELS[op.word], begin - 3_000, begin, end - begin, **args)


def _args(op: Op, rank: int, key: str, seq: int) -> dict[str, Any]:
    more: dict[str, Any] = {} if key == "count" else {"Seq": seq}
    if key == "id":
        more["Comms_Id"] = hash((op.group.name, seq, op.word == "send"))
    if op.word != "send":
        return metadata_of(op.word, op.group, op.elements, **more)
    sends = rank == op.ranks[0]
    more |= {"Dst_Rank": op.ranks[1]} if sends else {"Src_Rank": op.ranks[0]}
    return metadata_of("send" if sends else "recv", op.group, op.elements, **more)


Truth = dict[tuple[int, int], tuple[int, int]]  # wait and transfer by rank and number of the collective


def truth(plan: Plan, key: str) -> Truth:
    """Of each collective of which two ranks are there."""
    took, shared = course(plan), max(plan.recorded[rank][0] for rank in plan.present)
    times = {(rank, one.op.number): one for rank in plan.present for one in took.ran[rank]}
    known: Truth = {}
    for op in plan.ops:
        here = [
            rank
            for rank in op.ranks
            if rank in plan.present and plan.recorded[rank][0] <= op.step < plan.recorded[rank][1]
        ]
        counted = op.step >= shared or (key != "count" and op.word != "send")
        if len(here) < 2 or op.word == "untold" or not counted:
            continue
        awaited = (
            op.ranks[0] if op.word == "send" else max(here, key=lambda rank: times[rank, op.number].begin)
        )
        for rank in here:
            _, begin, end = times[rank, op.number]
            wait = max(0, min(end, times[awaited, op.number].begin) - begin)
            known[rank, op.number] = wait, end - begin - wait
    return known


def measured(plan: Plan, made: Job) -> Truth:
    """The same as the job tells it."""
    number = {(rank, one.begin): one.op.number for rank, ran in course(plan).ran.items() for one in ran}
    rows, times = made.of(calls), made.of(waits)
    known: Truth = {}
    for row in range(len(rows.begin)):
        rank = made.numbers[int(rows.rank_index[row])]
        begin = int(rows.begin[row]) - BASE - plan.shift[rank]
        if times.wait[row] >= 0:
            known[rank, number[rank, begin]] = int(times.wait[row]), int(times.transfer[row])
    return known


def grouped(plan: Plan, made: Job) -> set[frozenset[tuple[int, int]]]:
    """The instances: each the ranks and begins of its calls."""
    rows = made.of(calls)
    return {
        frozenset((made.numbers[int(rows.rank_index[row])], int(rows.begin[row])) for row in members.tolist())
        for members in members_of(made)
    }
