"""A rank of a job by its digest: columns, unpacked when they are asked for and checked against each other.

Everything here raises UserError where the digest is damaged: such a rank is not one of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar, cast, get_args

import numpy as np
from google.protobuf.message import DecodeError, Message

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.file import load, spread, unpacked
from tb_torchcompile_plugin.job.digest.host_costs import Blamed, LateCause
from tb_torchcompile_plugin.job.digest.rank_calls import Group, Kind
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work, layers
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.model.attribution import CAUSES
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import gpu_steps
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.collectives import Operation

# Where the time of a rank's GPU goes in each step, as far as the rank alone tells. To the ns.


class OwnSteps(NamedTuple):
    """By step of the slowest GPU, as columns (ns): all but window, begin and end, and what communicates alone, sum to
    its length. window: its number among the profiled steps."""

    window: Int64s
    begin: Int64s
    end: Int64s
    compute: Int64s
    overlapped: Int64s
    exposed_memory: Int64s
    idle: Int64s


class RankGpu(NamedTuple):
    """exposed: when collectives ran and nothing computed; whether they wait or transfer, only all ranks tell."""

    steps: OwnSteps
    exposed: Intervals


def rank_gpu(profile: Profile) -> RankGpu | None:
    """None where no step launched GPU work."""
    steps = profile.of(gpu_steps)
    if steps is None or not len(steps.step):
        return None
    work = profile.of(gpu_work)
    mine = work.where(work.device == steps.device)
    did = layers(profile.trace, mine)

    def inside(intervals: Intervals) -> Int64s:
        return covered_ns(intervals, steps.begin, steps.end)

    computing, active = inside(did.compute), inside(did.memory)
    alone = inside(subtract(did.compute, busy(profile.trace, mine.of("communication").index)))
    memory, idle = active - inside(did.communication), steps.length - active
    own = OwnSteps(steps.step, steps.begin, steps.end, alone, computing - alone, memory, idle)
    return RankGpu(own, subtract(did.communication, did.compute))


Section = TypeVar("Section", bound=Message)
_FAR_NS = 1 << 61  # beyond it nothing was recorded


@dataclass(eq=False)
class RankDigest(Memoized):
    """worker, span: whose files these are. Times are ns by the clock of the rank's trace, from `base_ns`. file: read
    again for the sections that the message lacks, which are seldom asked for."""

    rank: int
    worker: str
    span: str
    message: pb.Digest
    file: File | None = None

    def seldom(self, section: str) -> bytes:
        """A section that few ranks of very many are asked for. Raises UserError where the file cannot be read again."""
        data: bytes = getattr(self.message, section)
        if data or self.file is None:
            return data
        again: bytes = getattr(load(self.file), section)
        return again

    @property
    def base_ns(self) -> int:
        return int(self.message.base_ns)

    @property
    def host(self) -> str | None:
        return str(self.message.host_name) if self.message.HasField("host_name") else None

    @property
    def world_size(self) -> int | None:
        return int(self.message.world_size) if self.message.HasField("world_size") else None

    @property
    def host_steps(self) -> int:
        """Of how many steps it is known what the host did, marked or not."""
        return max(int(self.message.host_steps), 1)

    @property
    def notices(self) -> list[Notice]:
        """What could not be read of its trace."""
        name = str(self.message.trace_name)
        return [Notice(name, one.problem, one.kept, one.next_step) for one in self.message.notices]


class DigestCalls(NamedTuple):
    """One row a collective that the rank ran; see `rank_calls.RankCalls`, without rows of a trace."""

    begin: Int64s
    end: Int64s
    launch: Int64s
    seq: Int64s
    kind: Int64s
    comms: Int64s
    kinds: list[Kind]


class HostWindows(NamedTuple):
    """The profiled steps on the host. compile: how long each compiled (ns)."""

    names: list[str]
    begin: Int64s
    end: Int64s
    compile: Int64s


class HostParts(NamedTuple):
    """What the host did in the stretches. stretch, code, ns: working, by culprit. wait_…: when it waited for a GPU."""

    blamed: list[Blamed]
    stretch: Int64s
    code: Int64s
    ns: Int64s
    wait_begin: Int64s
    wait_end: Int64s
    wait_code: Int64s


class KernelParts(NamedTuple):
    """What was launched in the same stretches. kernels: name and grid."""

    kernels: list[tuple[str, str]]
    stretch: Int64s
    kernel: Int64s
    launches: Int64s
    ns: Int64s


def calls_of(about: RankDigest) -> DigestCalls:
    """In order of time."""
    section = _parsed(pb.CallSection, about.message.calls)
    groups = [None, *(Group(one.name, _ranks(one.ranks)) for one in section.groups)]
    begin, end, launch, seq, kind, comms = unpacked(section.columns, 6)
    _check(_codes(kind, len(section.kinds)) and (begin <= end).all() and _are_times(begin, end))
    _check(all(one.group < len(groups) for one in section.kinds))
    return DigestCalls(begin, end, launch, seq, kind, comms, [_kind(one, groups) for one in section.kinds])


def cuts_of(about: RankDigest) -> Int64s:
    """The moments between which it is known what the host did and launched: in stretches."""
    (cuts,) = unpacked(_parsed(pb.CallSection, about.message.calls).cuts, 1)
    _check((np.diff(cuts) > 0).all() and _are_times(cuts))
    return cuts


@lru_cache(1 << 14)
def _ranks(column: bytes) -> tuple[int, ...]:
    """The same tuple for all ranks of a group: of large ones each would hold a copy."""
    (ranks,) = unpacked(column, 1)
    return tuple(ranks.tolist())


def _kind(one: pb.CollectiveKind, groups: Sequence[Group | None]) -> Kind:
    operation = cast(Operation, one.operation if one.operation in get_args(Operation) else "other")
    return Kind(operation, groups[one.group], one.dtype, one.message_bytes, one.source, one.destination)


def windows_of(about: RankDigest) -> HostWindows:
    """In order of time."""
    section = _parsed(pb.StepSection, about.message.steps)
    begin, end, compiling = unpacked(section.windows, 3)
    _check(len(begin) == len(section.names) and _are_times(begin, end))
    return HostWindows(list(section.names), begin, end, compiling)


def gpu_of(about: RankDigest) -> RankGpu | None:
    """None where no step launched GPU work."""
    section = _parsed(pb.StepSection, about.message.steps)
    if not section.HasField("gpu"):
        return None
    steps = OwnSteps(*unpacked(section.gpu, 7))
    starts, ends = unpacked(section.exposed, 2)
    _check(_codes(steps.window, len(section.names)) and _are_times(steps.begin, steps.end, starts, ends))
    _check((starts <= ends).all() and (ends[:-1] <= starts[1:]).all())
    return RankGpu(steps, Intervals(starts, ends))


def host_of_rank(about: RankDigest) -> HostParts:
    """Of the stretches whose end is known."""
    section = _parsed(pb.HostSection, about.seldom("host"))
    blamed = [_blamed(one) for one in section.culprits]
    parts, waits = unpacked(section.parts, 3), unpacked(section.waits, 3)
    _check(
        _codes(parts[0], len(about.of(cuts_of)) - 1)
        and _codes(parts[1], len(blamed))
        and _codes(waits[2], len(blamed))
    )
    _check((np.diff(parts[0]) >= 0).all() and _are_times(*waits[:2]))
    return HostParts(blamed, *parts, *waits)


def _blamed(one: pb.Culprit) -> Blamed:
    cause = cast(LateCause, one.cause if one.cause in CAUSES else "nothing")
    return Blamed(cause, one.name, one.file, one.line)


def kernels_of(about: RankDigest) -> KernelParts:
    """But for collectives."""
    section = _parsed(pb.KernelSection, about.seldom("kernels"))
    columns = unpacked(section.columns, 4)
    _check(_codes(columns[0], len(about.of(cuts_of)) - 1) and _codes(columns[1], len(section.kernels)))
    _check((np.diff(columns[0]) >= 0).all())
    return KernelParts([(one.name, one.grid) for one in section.kernels], *columns)


def compiled_of(about: RankDigest) -> CompileSummary | None:
    """What the rank compiled, without texts; None where its compile data was not there."""
    return _parsed(CompileSummary, about.message.compiled) if about.message.compiled else None


def _parsed(kind: type[Section], data: bytes) -> Section:
    try:
        section: Section = kind.FromString(spread(data))
    except DecodeError as error:
        raise UserError("a section of the digest is damaged") from error
    return section


def _codes(codes: Int64s, count: int) -> bool:
    return bool(((codes >= 0) & (codes < count)).all())


def _are_times(*columns: Int64s) -> bool:
    return all(((column > -_FAR_NS) & (column < _FAR_NS)).all() for column in columns)


def _check(right: bool | np.bool_) -> None:
    if not right:
        raise UserError("the tables of the digest contradict each other")
