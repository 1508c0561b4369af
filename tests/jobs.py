"""Jobs of several ranks whose truth is known: collectives in torch's own words, and a training loop that waits.

Times are integer ns here, on one true clock; each rank writes them by its own.
"""

import tarfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np

from forked import statuses
from profiles import SPAN
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.job.digest.digest_pb2 import Digest
from tb_torchcompile_plugin.job.digest.rank_calls import Kind
from tb_torchcompile_plugin.job.digest.rank_digest import (
    RankDigest,
    columns_from_message,
    message_from_columns,
)
from tb_torchcompile_plugin.job.instances import blame, calls, instances
from tb_torchcompile_plugin.job.job import Job, JobRank, TracedJob
from tb_torchcompile_plugin.profile.columns import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import Event, kernel, slice_, write_trace

BASE = 1_790_000_000_000_000_000
RECORDED = Path(__file__).parent / "data" / "2.11.0" / "jobs" / "jobs.tar.xz"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_correlations = count(1_000_000)


class PG(NamedTuple):
    """A process group."""

    name: str
    ranks: tuple[int, ...]


def host(name: str, begin: int, ns: int, cat: str = "cpu_op", **args: Any) -> Event:
    """A host slice in ns."""
    return slice_(name, begin / 1000, ns / 1000, cat, **args)


def launched(name: str, launch: int, begin: int, ns: int, **args: Any) -> list[Event]:
    """A kernel with the call of 1 µs that launched it."""
    correlation = next(_correlations)
    return [
        host("cudaLaunchKernel", launch, 1_000, "cuda_runtime", correlation=correlation),
        kernel(name, begin / 1000, ns / 1000, correlation=correlation, **args),
    ]


def metadata_of(
    word: str, group: PG, elements: int = 1024, dtype: str = "Float", /, **more: Any
) -> dict[str, Any]:
    """What torch writes beside the kernel of a collective."""
    return {
        "Collective name": word,
        "Process Group Name": group.name,
        "Process Group Ranks": str(list(group.ranks)),
        "Group size": len(group.ranks),
        "dtype": dtype,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        **{name.replace("_", " "): value for name, value in more.items()},
    }


def recorded_job(name: str, folder: Path) -> TracedJob:
    """One that was recorded on GPUs, unpacked into a folder."""
    with tarfile.open(RECORDED) as archive:
        mine = [one for one in archive.getmembers() if name in Path(one.name).parts]
        archive.extractall(folder, mine, filter="data")
    return job_in(folder)


def job_in(folder: Path, run: str = "") -> TracedJob:
    """The ranks of a run that lie in a folder."""
    with closing(Session([("", str(folder))])) as session:
        job = session.job(run or session.catalog.look().runs[0][0].run)
    assert job
    return job


def without_traces(job: TracedJob) -> Job:
    """The same job by what is written of its digests."""
    return Job(
        tuple(
            RankDigest(
                one.rank,
                one.worker,
                one.span,
                columns_from_message(
                    Digest.FromString(message_from_columns(one.columns).SerializeToString())
                ),
            )
            for one in job.digests
        ),
        job.unread,
    )


def polled(session: Session, span: str = "", run: str = ".") -> Any:
    """The job, once it is read: a TracedJob, or of many ranks one of their digests."""
    until = monotonic() + 180
    while isinstance(job := session.poll_job(run, span), Progress):
        assert monotonic() < until
        sleep(0.01)
    return job


def polled_in(folder: Path, span: str = "") -> Any:
    """The job of a folder, as a session of its own reads it."""
    with closing(Session([("", str(folder))])) as session:
        return polled(session, span)


def run_ranks(program: str, folder: Path, arguments: list[list[str]]) -> None:
    """Run a program once for each of its ranks, at the same time."""
    printed = folder / "printed.txt"
    printed.touch()
    codes = statuses(program, arguments, folder, str(printed), {"OMP_NUM_THREADS": "1"}, 240)
    assert codes == [0] * len(arguments), printed.read_text()


def kinds_of(job: Job) -> list[Kind]:
    """Of each call what it is."""
    made = job.of(calls)
    return [made.kind_of(row) for row in range(len(made.kind))]


def blamed(job: Job) -> Int64s:
    """How long each rank (row) waited for each (column), in ns."""
    known, matrix = job.of(blame), np.zeros((len(job.digests),) * 2, np.int64)
    matrix[known.waiting, known.awaited] = known.ns
    return matrix


def shifted(events: Iterable[Event], ns: int) -> list[Event]:
    """The same by a clock that is this far ahead."""
    return [{**event, "ts": (round(event["ts"] * 1000) + ns) / 1000} for event in events]


def written(
    folder: Path,
    ranks: Mapping[int, list[Event]],
    groups: Iterable[PG] = (),
    world: int | None = None,
    base: Mapping[int, int] = {},
    host_size: int = 0,
) -> TracedJob:
    """The job of these events by rank. base: how much more its trace's base is than that of the others (ns).
    host_size: how many ranks a host has, 0 for hosts without names."""
    config = [
        {"pg_name": group.name, "pg_size": len(group.ranks), "ranks": list(group.ranks)} for group in groups
    ]
    made = []
    for rank, events in sorted(ranks.items()):
        info = {"rank": rank, "world_size": max(ranks) + 1 if world is None else world, "pg_config": config}
        path = write_trace(
            folder,
            events,
            f"rank{rank}.1.pt.trace.json",
            distributedInfo=info,
            baseTimeNanoseconds=BASE + base.get(rank, 0),
            **({"host_name": f"node{rank // host_size}"} if host_size else {}),
        )
        profile = Profile(read_trace(str(path), workers=1), None, SPAN)
        made.append(JobRank(rank, f"rank{rank}", profile))
    return TracedJob(tuple(made))


class Does(NamedTuple):
    """What a rank does in a step beyond launching: `events` makes the host's for a time of `host_ns` that begins then.
    It runs `kernels` of `kernel_ns` each."""

    host_ns: int = 0
    events: Callable[[int], list[Event]] = lambda begin: []
    kernels: int = 2
    kernel_ns: int = 100_000


def doing(name: str, ns: int, cat: str = "cpu_op") -> Does:
    """One slice of the host."""
    return Does(ns, lambda begin: [host(name, begin, ns, cat)])


CALL, LATENCY, GAP, TRANSFER = 5_000, 5_000, 1_000, 40_000


def training(
    folder: Path,
    ranks: int,
    steps: int,
    does: Callable[[int, int], Does],
    elements: int = 1 << 20,
    shards: Iterable[PG] = (),
    pipelines: Iterable[PG] = (),
    host_size: int = 0,
) -> TracedJob:
    """A loop of steps, each on all ranks: host work, kernels, one all-reduce, and the host waits for it. `does` tells
    what rank does in which step. Behind that, shards gather, and each rank of a pipeline sends to the next one."""
    shards, pipelines = list(shards), list(pipelines)
    world = PG("0", tuple(range(ranks)))
    events: dict[int, list[Event]] = {rank: [] for rank in world.ranks}
    now = dict.fromkeys(world.ranks, 100_000)
    for number in range(steps):
        begins, launches, arrives = dict(now), {}, {}
        for rank in world.ranks:
            what = does(rank, number)
            at = now[rank] + CALL
            events[rank] += what.events(at)
            at, free = at + what.host_ns, 0
            for place in range(what.kernels):
                begin = max(at + LATENCY, free + GAP)
                events[rank] += launched(f"gemm_{place % 2}", at, begin, what.kernel_ns, grid=[8, 1, 1])
                at, free = at + CALL, begin + what.kernel_ns
            launches[rank], arrives[rank] = at, max(at + LATENCY, free + GAP)
        done = max(arrives.values()) + TRANSFER
        for rank in world.ranks:
            args = metadata_of("allreduce", world, elements, Seq=number)
            events[rank] += launched(ALL_REDUCE, launches[rank], arrives[rank], done - arrives[rank], **args)
            waiting = launches[rank] + CALL
            events[rank].append(
                host("cudaDeviceSynchronize", waiting, done + 2_000 - waiting, "cuda_runtime")
            )
            now[rank] = done + 10_000
        _talk_in_groups(events, now, number, shards, pipelines)
        for rank in world.ranks:
            events[rank].append(
                host(f"ProfilerStep#{number}", begins[rank], now[rank] - begins[rank], "user_annotation")
            )
    return written(folder, events, [world, *shards, *pipelines], host_size=host_size)


def _talk_in_groups(
    events: dict[int, list[Event]], now: dict[int, int], seq: int, shards: list[PG], pipelines: list[PG]
) -> None:
    """All ranks of a shard gather; in a pipeline each rank sends to the next one."""

    def ran(kernel_name: str, rank: int, at: int, word: str, group: PG, **more: int) -> None:
        args = metadata_of(word, group, 8, Seq=seq, **more)
        events[rank] += launched(kernel_name, at, at + LATENCY, TRANSFER, **args)
        now[rank] = at + LATENCY + TRANSFER + 10_000

    for group in shards:
        for rank in group.ranks:
            ran(ALL_GATHER, rank, now[rank], "_allgather_base", group)
    for group in pipelines:
        for first, second in pairwise(group.ranks):
            at = max(now[first], now[second])
            ran(SEND, first, at, "send", group, Dst_Rank=second)
            ran(SEND, second, at, "recv", group, Src_Rank=first)


def members_of(job: Job) -> list[Int64s]:
    """Return the calls of each instance."""
    found = job.of(instances)
    return np.split(found.rows, found.first[1:]) if len(found) else []
