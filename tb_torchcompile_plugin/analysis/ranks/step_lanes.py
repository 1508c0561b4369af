"""What one rank did as lanes that do not overlap, at the level of detail that a picture of some width can show."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.ranks.job_rows import place_of
from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.host_costs import Blamed, host_costs
from tb_torchcompile_plugin.job.instances import Calls, calls, instances, trace_rows
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import Waits, waits
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.level_of_detail import merged, shift_for, singles, touching
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import gpu_steps
from tb_torchcompile_plugin.reader.arrays import Codes
from tb_torchcompile_plugin.torch_names.collectives import Operation
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


# The collectives of a stretch of time on several ranks: those that are drawn one by one and joined, and the
# rest.


_JOINED = 200  # collectives that are drawn one by one: the longest
_CALLS = 1600  # of them on all ranks
_LINES = 4  # of one rank, one below the other


class JoinedCall(msgspec.Struct, frozen=True):
    """A collective on one rank. wait_ns + unknown_ns + transfer_ns = dur_ns, in this order: of the part in the middle
    nothing tells whether it waits or transfers; null where it is of no instance. for_rank: whom it waited for. last:
    all others waited for it. row: in its trace. line: calls of one line do not overlap."""

    rank: int
    row: int
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    unknown_ns: int | None
    transfer_ns: int | None
    for_rank: int | None
    last: bool
    line: int


class JoinedCollective(msgspec.Struct, frozen=True):
    """`matched`: whether its calls are known to be one collective; else it is one call that stands alone, and how long
    it waited is not known. start_us: of its first call; wait_us, unknown_us, transfer_us: of its calls that are shown,
    together."""

    op: Operation
    group: str
    dtype: str
    message_bytes: int | None
    matched: bool
    start_us: float
    wait_us: float | None
    unknown_us: float | None
    transfer_us: float | None
    last_rank: int | None
    calls: list[JoinedCall]


class View(NamedTuple):
    """A stretch of time on some ranks, by their places in the job. zero: what times count from (ns, Unix time on the
    common clock); start, end: from there."""

    job: TracedJob
    zero: int
    start: int
    end: int
    shown: list[int]

    def begin(self, place: int) -> int:
        """`zero` on the clock of the trace of a rank."""
        return self.zero + own_clock(self.job, place)

    @property
    def window(self) -> tuple[int, int]:
        return self.start, self.end


def own_clock(job: TracedJob, place: int) -> int:
    """What to add to a time on the common clock to get that of the rank's trace."""
    return int(job.of(clocks).offset_ns[place]) - job.digests[place].base_ns


def in_view(view: View) -> Int64s:
    """The calls of all ranks that have part in it, shown or not."""
    times = view.job.of(waits)
    return np.flatnonzero((times.begin < view.zero + view.end) & (times.end > view.zero + view.start))


class StepCalls(NamedTuple):
    """apart: calls that are drawn, but not one by one."""

    joined: list[JoinedCollective]
    apart: Int64s


def step_calls(view: View) -> StepCalls:
    """Of the ranks that are shown."""
    made, seen = view.job.of(calls), in_view(view)
    seen = seen[np.isin(made.place[seen], view.shown)]
    instance = view.job.of(instances).of_call[seen]
    key = np.where(instance >= 0, instance, -1 - seen)
    _, collective = np.unique(key, return_inverse=True)
    chosen = np.isin(collective, _longest(collective, made.dur[seen]))
    rows = seen[chosen]
    order = np.lexsort((made.place[rows], collective[chosen]))
    rows, collective = rows[order], collective[chosen][order]
    lines = _lines(view.job.of(waits), made.place[rows], rows)
    bounds = np.flatnonzero(np.diff(collective)) + 1
    joined = [_joined(view, one, lines) for one in np.split(rows, bounds) if len(one)]
    return StepCalls(sorted(joined, key=lambda one: one.start_us), seen[~chosen])


def _longest(collective: Int64s, dur: Int64s) -> Int64s:
    """As many as can be drawn one by one."""
    longest, count = np.zeros((2, int(collective.max(initial=-1)) + 1), np.int64)
    np.maximum.at(longest, collective, dur)
    np.add.at(count, collective, 1)
    order = np.argsort(-longest, kind="stable")[:_JOINED]
    return np.asarray(order[np.cumsum(count[order]) <= _CALLS], np.int64)


def _lines(times: Waits, place: Int64s, rows: Int64s) -> dict[int, int]:
    """By call the first line of its rank that is free; of very many at one time the last line holds all."""
    free: dict[int, list[int]] = {}
    lines: dict[int, int] = {}
    order = np.argsort(times.begin[rows], kind="stable")
    for one, row in zip(place[order].tolist(), rows[order].tolist()):
        ends = free.setdefault(one, [0] * _LINES)
        begin = int(times.begin[row])
        line = next((number for number, end in enumerate(ends) if end <= begin), _LINES - 1)
        ends[line], lines[row] = int(times.end[row]), line
    return lines


def _joined(view: View, rows: Int64s, lines: dict[int, int]) -> JoinedCollective:
    kind = view.job.of(calls).kind_of(rows[0])
    matched = bool(view.job.of(instances).of_call[rows[0]] >= 0)
    made = [_call(view, row, lines[row]) for row in rows.tolist()]
    return JoinedCollective(
        op=kind.operation,
        group=kind.group.name if kind.group else "",
        dtype=kind.dtype,
        message_bytes=kind.message_bytes if kind.message_bytes >= 0 else None,
        matched=matched,
        start_us=min(call.start_ns for call in made) / 1000,
        wait_us=sum(call.wait_ns or 0 for call in made) / 1000 if matched else None,
        unknown_us=sum(call.unknown_ns or 0 for call in made) / 1000 if matched else None,
        transfer_us=sum(call.transfer_ns or 0 for call in made) / 1000 if matched else None,
        last_rank=next((call.rank for call in made if call.last), None),
        calls=made,
    )


def _call(view: View, row: int, line: int) -> JoinedCall:
    made, times, numbers = view.job.of(calls), view.job.of(waits), view.job.numbers
    wait, unknown, awaited = (int(column[row]) for column in (times.wait, times.unknown, times.awaited))
    return JoinedCall(
        rank=numbers[int(made.place[row])],
        row=int(view.job.of(trace_rows)[row]),
        start_ns=int(times.begin[row]) - view.zero,
        dur_ns=int(made.dur[row]),
        wait_ns=wait if wait >= 0 else None,
        unknown_ns=unknown if wait >= 0 else None,
        transfer_ns=int(times.transferred[row]) if wait >= 0 else None,
        for_rank=numbers[awaited] if awaited >= 0 else None,
        last=bool(times.last[row]),
        line=line,
    )


def rest_of(view: View, place: int, rows: Int64s, names: Codes) -> GpuPieces:
    """Those of `rows` that are this rank's, short ones joined."""
    made, begin = view.job.of(calls), view.begin(place)
    mine = rows[made.place[rows] == place]
    line = _line(made, mine, own_clock(view.job, place) - int(view.job.of(clocks).offset_ns[place]))
    return gpu_pieces(line, begin, view.window, names)


def _line(made: Calls, rows: Int64s, to_trace: int) -> Line:
    operations: list[str] = [made.kind_of(row).operation for row in rows.tolist()]
    distinct, code = np.unique(np.array(operations, str), return_inverse=True)
    kinds = [("communication", str(name)) for name in distinct]
    return apart(made.begin[rows] + to_trace, made.end[rows] + to_trace, code.astype(np.int64), kinds)
