"""The data of a job about one rank: columns computed from a trace, or read from a digest.

Times are ns by the clock of the rank's trace, from its `base_ns`; those of collectives are Unix time. Reading raises
UserError where the tables of a file are damaged or contradict each other: such a rank is not one of the job.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar, cast, get_args

import numpy as np
from google.protobuf.message import DecodeError, Message

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.file import compressed, decompressed, load, packed, unpacked
from tb_torchcompile_plugin.job.digest.rank_calls import Calls, Group, Kind
from tb_torchcompile_plugin.logdir.filesystem import File
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals
from tb_torchcompile_plugin.profile.model.attribution import CAUSES, Attribution, HostCauseKind
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.collectives import Operation

Section = TypeVar("Section", bound=Message)
_FAR_NS = 1 << 61  # no recording has times beyond: sums of two of them still fit 64 bits


class HostWindows(NamedTuple):
    """The profiled steps on the host, in order of time."""

    names: list[str]
    begin: Int64s
    end: Int64s
    compile: Int64s  # how long each compiled (ns)


class RankGpuSteps(NamedTuple):
    """Where the time of the slowest GPU goes in each step, as columns (ns), as far as one rank alone shows.

    The last four and what communicates alone sum to the length of the step.
    """

    window: Int64s  # its index among the profiled steps
    begin: Int64s
    end: Int64s
    compute: Int64s
    overlapped: Int64s
    exposed_memory: Int64s
    idle: Int64s


class RankGpu(NamedTuple):
    """The steps of a rank on its slowest GPU."""

    steps: RankGpuSteps
    exposed: Intervals  # when collectives ran and nothing computed; only all ranks show what waits and what transfers


class HostParts(NamedTuple):
    """What the host did in the stretches between two cuts, and when it waited for a GPU."""

    blamed: list[Attribution]
    stretch: Int64s
    code: Int64s  # of working: index into `blamed`
    ns: Int64s
    wait_begin: Int64s
    wait_end: Int64s
    wait_code: Int64s


class KernelParts(NamedTuple):
    """What was launched in the same stretches, except collectives."""

    kernels: list[tuple[str, str]]  # name and grid
    stretch: Int64s
    kernel: Int64s
    launches: Int64s
    ns: Int64s


class DigestDetails(NamedTuple):
    """What only a few of many ranks are asked for."""

    host: HostParts
    kernels: KernelParts


class DigestColumns(NamedTuple):
    """All data of a job about one rank."""

    header: pb.Digest  # what is stored as it is: whose digest it is, notices, and what was compiled
    calls: Calls
    cuts: Int64s  # between these moments, in stretches, it is known what the host did and launched
    windows: HostWindows
    gpu: RankGpu | None  # None where no step launched GPU work
    details: DigestDetails | File  # the file that they are read from when asked for


@dataclass(eq=False)
class RankDigest(Memoized):
    """One rank of a job; worker and span name its files."""

    rank: int
    worker: str
    span: str
    columns: DigestColumns

    @property
    def base_ns(self) -> int:
        """The begin of its trace (Unix time)."""
        return int(self.columns.header.base_ns)

    @property
    def host(self) -> str | None:
        """The name of its host, None where unknown."""
        header = self.columns.header
        return str(header.host_name) if header.HasField("host_name") else None

    @property
    def world_size(self) -> int | None:
        """The number of ranks as its trace recorded it."""
        header = self.columns.header
        return int(header.world_size) if header.HasField("world_size") else None

    @property
    def step_us(self) -> float | None:
        """How long a step of the rank is; None where it has none."""
        header = self.columns.header
        return float(header.step_us) if header.HasField("step_us") else None

    @property
    def host_steps(self) -> int:
        """The number of steps, marked or not, with the activity of the host."""
        return max(int(self.columns.header.host_steps), 1)

    @property
    def notices(self) -> list[Notice]:
        """What could not be read of its trace."""
        header = self.columns.header
        return [Notice(header.trace_name, row.problem, row.kept, row.next_step) for row in header.notices]


def details_of(digest: RankDigest) -> DigestDetails:
    """Return what the host did and launched. Raises UserError where the file cannot be read again."""
    details, cuts = digest.columns.details, digest.columns.cuts
    return details if isinstance(details, DigestDetails) else _read_details(load(details), cuts)


def compiled_of(digest: RankDigest) -> CompileSummary | None:
    """Return what the rank compiled, without texts; None where its compile data was not there."""
    data = digest.columns.header.compiled
    return _parsed(CompileSummary, data) if data else None


def section_bytes(
    message: pb.CallSection | pb.StepSection | pb.HostSection | pb.KernelSection | CompileSummary,
) -> bytes:
    """Return a section as it is stored."""
    return compressed(message.SerializeToString(deterministic=True))


def message_from_columns(columns: DigestColumns) -> pb.Digest:
    """Return the message that holds these columns. Their details must be there."""
    assert isinstance(columns.details, DigestDetails)
    host, kernels = columns.details
    message = pb.Digest(
        calls=section_bytes(_call_section(columns.calls, columns.cuts)),
        steps=section_bytes(
            pb.StepSection(
                names=columns.windows.names,
                windows=packed(*columns.windows[1:]),
                gpu=packed(*columns.gpu.steps) if columns.gpu else None,
                exposed=packed(*columns.gpu.exposed) if columns.gpu else b"",
            )
        ),
        host=section_bytes(
            pb.HostSection(
                culprits=[
                    pb.Culprit(cause=cause, name=name, file=file, line=line)
                    for cause, name, file, line in host.blamed
                ],
                parts=packed(*host[1:4]),
                waits=packed(*host[4:]),
            )
        ),
        kernels=section_bytes(
            pb.KernelSection(
                kernels=[pb.KernelName(name=name, grid=grid) for name, grid in kernels.kernels],
                columns=packed(*kernels[1:]),
            )
        ),
    )
    message.MergeFrom(columns.header)
    return message


def _call_section(calls: Calls, cuts: Int64s) -> pb.CallSection:
    groups = list(dict.fromkeys(kind.group for kind in calls.kinds if kind.group))
    return pb.CallSection(
        groups=[
            pb.ProcessGroup(name=group.name, ranks=packed(np.array(group.ranks, np.int64)))
            for group in groups
        ],
        kinds=[
            pb.CollectiveKind(
                operation=kind.operation,
                group=groups.index(kind.group) + 1 if kind.group else 0,
                dtype=kind.dtype,
                message_bytes=kind.message_bytes,
                source=kind.source,
                destination=kind.destination,
            )
            for kind in calls.kinds
        ],
        columns=packed(*calls[1:-1]),
        cuts=packed(cuts),
    )


def columns_from_message(message: pb.Digest, file: File | None = None) -> DigestColumns:
    """Return the columns that a message holds. file: read again for details, which are then only checked for damage."""
    rest, header = pb.Digest(), pb.Digest()
    rest.CopyFrom(message)
    for section in ("calls", "steps", "host", "kernels"):
        rest.ClearField(section)
    header.CopyFrom(rest)  # `rest` keeps the memory of what was cleared, and there may be thousands
    calls, cuts = _read_calls(message.calls)
    windows, gpu = _read_steps(message.steps)
    if file is None:
        return DigestColumns(header, calls, cuts, windows, gpu, _read_details(message, cuts))
    for data in (message.host, message.kernels):
        decompressed(data)
    return DigestColumns(header, calls, cuts, windows, gpu, file)


def _read_calls(data: bytes) -> tuple[Calls, Int64s]:
    section = _parsed(pb.CallSection, data)
    groups = [None, *(Group(group.name, _ranks(group.ranks)) for group in section.groups)]
    begin, end, launch, seq, kind, comms = unpacked(section.columns, 6)
    _check(_are_codes(kind, len(section.kinds)) and (begin <= end).all() and _are_times(begin, end))
    _check(all(row.group < len(groups) for row in section.kinds))
    (cuts,) = unpacked(section.cuts, 1)
    _check((np.diff(cuts) > 0).all() and _are_times(cuts))
    kinds = []
    for row in section.kinds:
        operation = cast(Operation, row.operation if row.operation in get_args(Operation) else "other")
        group = groups[row.group]
        kinds.append(Kind(operation, group, row.dtype, row.message_bytes, row.source, row.destination))
    return Calls(np.zeros(len(begin), np.int64), begin, end, launch, seq, kind, comms, kinds), cuts


@lru_cache(1 << 14)
def _ranks(column: bytes) -> tuple[int, ...]:
    """Return the same tuple for all ranks of a group, instead of a copy for each."""
    (ranks,) = unpacked(column, 1)
    return tuple(ranks.tolist())


def _read_steps(data: bytes) -> tuple[HostWindows, RankGpu | None]:
    section = _parsed(pb.StepSection, data)
    windows = HostWindows(list(section.names), *unpacked(section.windows, 3))
    _check(len(windows.begin) == len(windows.names) and _are_times(windows.begin, windows.end))
    if not section.HasField("gpu"):
        return windows, None
    steps = RankGpuSteps(*unpacked(section.gpu, 7))
    starts, ends = unpacked(section.exposed, 2)
    _check(_are_codes(steps.window, len(windows.names)) and _are_times(steps.begin, steps.end, starts, ends))
    _check((starts <= ends).all() and (ends[:-1] <= starts[1:]).all())
    return windows, RankGpu(steps, Intervals(starts, ends))


def _read_details(message: pb.Digest, cuts: Int64s) -> DigestDetails:
    host, kernels = _parsed(pb.HostSection, message.host), _parsed(pb.KernelSection, message.kernels)
    blamed = [
        Attribution(
            cast(HostCauseKind, row.cause if row.cause in CAUSES else "nothing"), row.name, row.file, row.line
        )
        for row in host.culprits
    ]
    parts = HostParts(blamed, *unpacked(host.parts, 3), *unpacked(host.waits, 3))
    kernel_names = [(row.name, row.grid) for row in kernels.kernels]
    launched = KernelParts(kernel_names, *unpacked(kernels.columns, 4))
    for stretch in (parts.stretch, launched.stretch):
        _check(_are_codes(stretch, len(cuts) - 1) and (np.diff(stretch) >= 0).all())
    _check(_are_codes(parts.code, len(blamed)) and _are_codes(parts.wait_code, len(blamed)))
    _check(_are_codes(launched.kernel, len(kernel_names)) and _are_times(parts.wait_begin, parts.wait_end))
    return DigestDetails(parts, launched)


def _parsed(kind: type[Section], data: bytes) -> Section:
    try:
        section: Section = kind.FromString(decompressed(data))
    except DecodeError as error:
        raise UserError("a section of the digest is damaged") from error
    return section


def _are_codes(codes: Int64s, count: int) -> bool:
    return bool(((codes >= 0) & (codes < count)).all())


def _are_times(*columns: Int64s) -> bool:
    return all(((column > -_FAR_NS) & (column < _FAR_NS)).all() for column in columns)


def _check(holds: bool | np.bool_) -> None:
    if not holds:
        raise UserError("the tables of the digest contradict each other")
