"""What one rank did as lanes that do not overlap, at the level of detail that a picture of some width can show."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.ranks.job_rows import place_of
from tb_torchcompile_plugin.analysis.what_if.picture import HostCause
from tb_torchcompile_plugin.job.digest.host_costs import Blamed, host_costs
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.level_of_detail import merged, shift_for, singles, touching
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import gpu_steps
from tb_torchcompile_plugin.reader.arrays import Codes
from tb_torchcompile_plugin.torch_names.kernels import Category

BUCKETS = 256  # a window has: twice as many pieces at most


class LanePieces(msgspec.Struct, frozen=True):
    """Columns of what is drawn in one lane, in order of time. start_ns: as of the picture. busy: which share of it is
    filled, 1 but where short ones were drawn as one. name: place in the picture's `names`, of the longest of them."""

    start_ns: list[int]
    dur_ns: list[int]
    busy: list[float]
    name: list[int]


class HostPieces(LanePieces, frozen=True):
    """cause: as of `late`; "waiting" is what calls take until a GPU is done."""

    cause: list[HostCause]


class GpuPieces(LanePieces, frozen=True):
    """Kernels and copies by category."""

    category: list[Category]


class Line(NamedTuple):
    """Slices of one lane that do not overlap, in order of time (ns, on the clock of the trace). code: what each is, by
    its place in `kinds`."""

    begin: Int64s
    end: Int64s
    code: Int64s
    kinds: list[tuple[str, str]]


def host_line(profile: Profile) -> Line:
    """What the launching threads were busy with, by cause and name."""
    costs = profile.of(host_costs)
    code = costs.code.copy()
    waiting = len(costs.blamed)
    code[costs.bounds[2] :] = waiting
    kinds = [(str(one.cause), _named(one)) for one in costs.blamed]
    return apart(costs.begin, costs.end, code, [*kinds, ("waiting", "")])


def _named(one: Blamed) -> str:
    return " · ".join(filter(None, (one.name, place_of(one))))


def compute_line(profile: Profile) -> Line:
    """What ran on the GPU, but for collectives, by category and name; where several ran, the first to begin."""
    trace, work = profile.trace, _of_device(profile)
    keys = work.category * len(trace.names) + trace.name[work.index]
    distinct, code = np.unique(keys, return_inverse=True)
    kinds = [
        (work.categories[key // len(trace.names)], trace.names[key % len(trace.names)])
        for key in distinct.tolist()
    ]
    begin = trace.ts[work.index]
    return apart(begin, begin + trace.dur[work.index], code.astype(np.int64), kinds)


def _of_device(profile: Profile) -> GpuWork:
    """On the device on which steps take longest, or where most runs."""
    work, steps = profile.of(gpu_work), profile.of(gpu_steps)
    devices, count = np.unique(work.device, return_counts=True)
    if not len(devices):
        return work
    device = steps.device if steps else int(devices[np.argmax(count)])
    communicates = np.array([name == "communication" for name in work.categories])
    return work.where((work.device == device) & ~communicates[work.category])


def apart(begin: Int64s, end: Int64s, code: Int64s, kinds: list[tuple[str, str]]) -> Line:
    """In order of time, each from where those before it have ended; without what is hidden then."""
    order = np.argsort(begin, kind="stable")
    begin, end, code = begin[order], end[order], code[order]
    reach = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end)))[:-1]
    begin = np.maximum(begin, reach)
    seen = end > begin
    return Line(begin[seen], end[seen], code[seen], kinds)


class Drawn(NamedTuple):
    """What a lane shows of a window; kind: by place in the line's `kinds`."""

    start: list[int]
    dur: list[int]
    busy: list[float]
    kind: list[int]


def drawn(line: Line, begin: int, start: int, end: int) -> Drawn:
    """Of [start, end) ns, counted from `begin` on the line's clock; what is shorter than a bucket is joined."""
    runs = singles(np.zeros(len(line.begin), np.int64), line.begin - begin, line.end - line.begin, line.code)
    seen = touching(runs, start, end)
    few = merged(seen, shift_for(end - start, BUCKETS))
    length = few.end - few.start
    share = np.round(few.covered / np.maximum(length, 1), 3)
    return Drawn(few.start.tolist(), length.tolist(), share.tolist(), few.row.tolist())


def host_pieces(line: Line, begin: int, window: tuple[int, int], names: Codes) -> HostPieces:
    """What a host shows of a window."""
    seen = drawn(line, begin, *window)
    causes = [line.kinds[kind][0] for kind in seen.kind]
    return HostPieces(*seen[:3], _coded(line, seen, names), cause=msgspec.convert(causes, list[HostCause]))


def gpu_pieces(line: Line, begin: int, window: tuple[int, int], names: Codes) -> GpuPieces:
    """What a GPU shows of a window."""
    seen = drawn(line, begin, *window)
    kinds = [line.kinds[kind][0] for kind in seen.kind]
    return GpuPieces(*seen[:3], _coded(line, seen, names), category=msgspec.convert(kinds, list[Category]))


def _coded(line: Line, seen: Drawn, names: Codes) -> list[int]:
    return [names.code(line.kinds[kind][1]) for kind in seen.kind]
