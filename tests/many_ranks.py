"""A job of as many ranks as one likes, by its digests: each is a recorded one, with a place in groups of its own.

Ranks of a host, hosts in pairs, and all of them share collectives by turns. Planted: one rank that runs Python before
each step, one host whose ranks all wait for data in the midst of it, and one pair of hosts whose link is slow.
"""

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from jobs import recorded_job
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.file import compressed, decompressed, packed, save, unpacked
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, message_from_columns
from tb_torchcompile_plugin.logdir.discovery import digest_name
from tb_torchcompile_plugin.profile.columns import Int64s

HOST = 8  # ranks of one
_BY_TURNS = ("host", "pair", "host", "world")
_JITTER_NS = 20_000
_LATER = len(_BY_TURNS)  # calls of a step before which all of a host wait: behind a collective of all ranks


class Together(NamedTuple):
    """Ranks that run Python at one line before each step, each for as long."""

    ranks: tuple[int, ...]
    line: int
    ns: int


class Planted(NamedTuple):
    """What is wrong, by number of the rank, of the host, and of the pair of hosts; -1: nothing."""

    rank: int = 37
    host: int = 11
    pair: int = 9
    rank_ns: int = 6_000_000
    host_ns: int = 3_000_000
    link: int = 3  # times as long for a transfer
    groups: tuple["Together", ...] = ()


PLANTED = Planted()


class _Template(NamedTuple):
    """A rank that was recorded: when its launched calls begin after the one before (ns), how long they transfer, how
    long before they are launched, and of which step each is."""

    digest: RankDigest
    gap: Int64s
    tail: Int64s
    ahead: Int64s
    step: Int64s
    kind: Int64s


@cache
def _template() -> _Template:
    with TemporaryDirectory() as folder:
        (one, _) = recorded_job("healthy_fsdp2", Path(folder)).digests
        known, windows = one.columns.calls, one.columns.windows
        rows = np.flatnonzero(known.launch >= windows.begin[0] + one.base_ns)
    begin, end, launch = known.begin[rows], known.end[rows], known.launch[rows]
    gap = np.maximum(begin - np.concatenate((begin[:1] - 1_000_000, end[:-1])), 100_000)
    tail = np.minimum(end - begin, int(np.median(end - begin)))
    step = np.searchsorted(windows.begin + one.base_ns, launch, side="right") - 1
    return _Template(one, gap, tail, begin - launch, step, known.kind[rows])


def groups_of(ranks: int) -> dict[str, Int64s]:
    """By how it is called the number of each rank's group."""
    rank = np.arange(ranks)
    host, local = rank // HOST, rank % HOST
    return {"host": host, "pair": (host // 2) * HOST + local, "world": np.zeros(ranks, np.int64)}


class _Course(NamedTuple):
    """When the calls of each rank (row) begin and end (ns, Unix time)."""

    begin: Int64s
    end: Int64s


def course(ranks: int, planted: Planted, seed: int = 1) -> _Course:
    """As it comes when every collective waits for the last of its ranks."""
    made, groups, chance = _template(), groups_of(ranks), np.random.default_rng(seed)
    begins, ends = np.zeros((2, ranks, len(made.gap)), np.int64)
    now = np.full(ranks, made.digest.base_ns + int(made.digest.columns.header.begin_ns) + 50_000_000)
    first = np.diff(made.step, prepend=-1) > 0
    third = np.roll(first, _LATER)
    host = np.arange(ranks) // HOST
    for call, (gap, tail) in enumerate(zip(made.gap.tolist(), made.tail.tolist())):
        begin = now + gap + chance.integers(0, _JITTER_NS, ranks)
        begin += planted.rank_ns * (first[call] & (np.arange(ranks) == planted.rank))
        begin += planted.host_ns * (third[call] & (host == planted.host))
        for together in planted.groups:
            begin += together.ns * (first[call] & np.isin(np.arange(ranks), together.ranks))
        kind = _BY_TURNS[call % len(_BY_TURNS)]
        group = groups[kind]
        latest = np.zeros(int(group.max()) + 1, np.int64)
        np.maximum.at(latest, group, begin)
        slow = (host // 2 == planted.pair) if kind == "pair" else np.zeros(ranks, bool)
        now = latest[group] + np.where(slow, tail * planted.link, tail)
        begins[:, call], ends[:, call] = begin, now
    return _Course(begins, ends)


def digest_of(rank: int, ranks: int, ran: _Course, planted: Planted) -> pb.Digest:
    """Of one rank."""
    made = _template()
    begin, end = ran.begin[rank], ran.end[rank]
    launch = np.maximum.accumulate(begin - made.ahead)
    launch += np.arange(len(launch)) * (np.diff(launch, prepend=0) == 0)
    one = message_from_columns(made.digest.columns)
    one.rank, one.world_size, one.host_name = rank, ranks, f"node{rank // HOST:04}"
    base = made.digest.base_ns
    windows = _windows(made, launch, base)
    one.begin_ns, one.end_ns = int(windows[0][0]), int(end[-1]) - base
    one.calls = _section(_calls(made, rank, ranks, begin, end, launch, windows[0], base))
    one.steps = _section(_steps(made, begin - base, end - base, windows))
    one.host = _section(_host(made, rank, planted))
    return one


def _section(message: pb.CallSection | pb.StepSection | pb.HostSection) -> bytes:
    return compressed(message.SerializeToString())


def _windows(made: _Template, launch: Int64s, base: int) -> tuple[Int64s, Int64s]:
    """Begin and end of each step on the host."""
    first = np.flatnonzero(np.diff(made.step, prepend=-1))
    begin = launch[first] - base - 200_000
    begin[1:] = np.maximum(begin[1:], launch[first[1:] - 1] - base + 1_000)
    return begin, np.append(begin[1:], launch[-1] - base + 1_000_000)


def _calls(
    made: _Template,
    rank: int,
    ranks: int,
    begin: Int64s,
    end: Int64s,
    launch: Int64s,
    windows: Int64s,
    base: int,
) -> pb.CallSection:
    section = pb.CallSection()
    groups = groups_of(ranks)
    for name in dict.fromkeys(_BY_TURNS):
        mine = np.flatnonzero(groups[name] == groups[name][rank])
        section.groups.append(pb.ProcessGroup(name=f"{name}{groups[name][rank]}", ranks=packed(mine)))
    names = list(dict.fromkeys(_BY_TURNS))
    known = made.digest.columns.calls.kinds
    kinds: dict[tuple[int, int], int] = {}
    code = [
        kinds.setdefault((kind, names.index(_BY_TURNS[call % len(_BY_TURNS)])), len(kinds))
        for call, kind in enumerate(made.kind.tolist())
    ]
    for kind, group in kinds:
        of = known[kind]
        section.kinds.append(
            pb.CollectiveKind(
                operation=of.operation,
                group=group + 1,
                dtype=of.dtype,
                message_bytes=of.message_bytes,
                source=-1,
                destination=-1,
            )
        )
    seq = np.arange(len(begin))
    section.columns = packed(begin, end, launch, seq, np.array(code, np.int64), np.full(len(begin), -1))
    cuts = np.unique(np.concatenate((windows - np.array([1_000, 0, 0, 0]), launch - base, windows)))
    section.cuts = packed(cuts[: len(begin) + len(windows) + 1])
    return section


def _steps(made: _Template, begin: Int64s, end: Int64s, windows: tuple[Int64s, Int64s]) -> pb.StepSection:
    first = np.flatnonzero(np.diff(made.step, prepend=-1))
    starts = begin[first] - 500_000
    starts[1:] = np.maximum(starts[1:], end[first[1:] - 1])
    stops = np.append(starts[1:], end[-1])
    alone = np.add.reduceat(end - begin, first)
    left = stops - starts - alone
    compute = np.minimum(left, np.add.reduceat(made.gap, first) * 9 // 10)
    none = np.zeros(len(first), np.int64)
    return pb.StepSection(
        names=made.digest.columns.windows.names,
        windows=packed(*windows, none),
        gpu=packed(np.arange(len(first)), starts, stops, compute, none, none, left - compute),
        exposed=packed(begin, end),
    )


def _host(made: _Template, rank: int, planted: Planted) -> pb.HostSection:
    section: pb.HostSection = pb.HostSection.FromString(
        decompressed(message_from_columns(made.digest.columns).host)
    )
    stretch, code, ns = unpacked(section.parts, 3)
    late = [
        (
            "python",
            "train.py(41): tokenize",
            "/home/user/train.py",
            41,
            planted.rank_ns,
            rank == planted.rank,
        ),
        ("data_loading", "next", "/home/user/train.py", 38, planted.host_ns, rank // HOST == planted.host),
    ]
    late += [
        ("python", f"train.py({line}): step", "/home/user/train.py", line, took, rank in ranks)
        for ranks, line, took in planted.groups
    ]
    begins = np.flatnonzero(np.diff(made.step, prepend=-1)) + np.arange(1, made.step[-1] + 2)
    for cause, name, file, line, took, mine in late:
        first = begins + (cause == "data_loading") * _LATER
        if mine:
            section.culprits.append(pb.Culprit(cause=cause, name=name, file=file, line=line))
            stretch = np.concatenate((stretch, first))
            code = np.concatenate((code, np.full(len(first), len(section.culprits) - 1)))
            ns = np.concatenate((ns, np.full(len(first), took)))
    order = np.argsort(stretch, kind="stable")
    section.parts = packed(stretch[order], code[order], ns[order])
    section.waits = packed(*np.zeros((3, 0), np.int64))
    return section


def write_job(folder: Path, ranks: int, planted: Planted = PLANTED, traces: bool = False) -> None:
    """Each digest beside a trace of a few bytes, or alone."""
    folder.mkdir(parents=True, exist_ok=True)
    ran, chance = course(ranks, planted), random.Random(1)
    for rank in range(ranks):
        worker = f"node{rank // HOST:04}_{100_000 + rank}"
        span = str(1_795_347_931_600_000_000 + chance.randrange(10**9))
        one = digest_of(rank, ranks, ran, planted)
        one.trace_name = f"{worker}.{span}.pt.trace.json"
        if traces:
            (folder / one.trace_name).write_text('{"traceEvents": []}')
        save(one, str(folder / digest_name(worker, span)))
