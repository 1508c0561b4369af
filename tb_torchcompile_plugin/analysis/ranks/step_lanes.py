"""What did each rank do in a window of time, at the level of detail that a picture can show?"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import at_line
from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.host_costs import host_costs
from tb_torchcompile_plugin.job.instances import calls, instances, trace_rows
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

BUCKETS = 256  # of a window; a lane has at most twice as many pieces

# Limits of what is drawn one by one; chosen by eye on the recordings.
_MAX_COLLECTIVES = 200  # the longest ones
_MAX_CALLS = 1600  # of these collectives, on all ranks together
_LINES = 4  # of one rank, one below the other


class LanePieces(msgspec.Struct, frozen=True):
    """Columns of what is drawn in one lane, in order of time."""

    start_ns: list[int]  # on the clock of the picture
    dur_ns: list[int]
    busy: list[float]  # which share of the piece is filled: below 1 where short slices were joined
    name: list[int]  # index of the longest slice's name in the picture's `names`


class HostPieces(LanePieces, frozen=True):
    """What a host did; a cause of late ranks, or "waiting" for a GPU."""

    cause: list[HostCause]


class GpuPieces(LanePieces, frozen=True):
    """Kernels and copies by category."""

    category: list[Category]


class JoinedCall(msgspec.Struct, frozen=True):
    """A collective on one rank; wait_ns + unknown_ns + transfer_ns = dur_ns, in this order."""

    rank: int
    row: int  # in its trace
    start_ns: int
    dur_ns: int
    # None for a call that belongs to no instance.
    wait_ns: int | None
    unknown_ns: int | None  # either waiting or transferring
    transfer_ns: int | None
    for_rank: int | None  # the rank that it waited for
    last: bool  # whether all others waited for this one
    line: int  # calls on one line do not overlap


class JoinedCollective(msgspec.Struct, frozen=True):
    """The calls of one collective on the ranks that are shown; times are their sums."""

    op: Operation
    group: str
    dtype: str
    message_bytes: int | None
    matched: bool  # otherwise this is a single call, and how long it waited is unknown
    start_us: float  # of the first call
    wait_us: float | None
    unknown_us: float | None
    transfer_us: float | None
    last_rank: int | None
    calls: list[JoinedCall]


class Line(NamedTuple):
    """Slices of one lane that do not overlap, in order of time (ns, on the clock of the trace)."""

    begin: Int64s
    end: Int64s
    code: Int64s  # index in `kinds`
    kinds: list[tuple[str, str]]  # (cause or category, name)


class View(NamedTuple):
    """A window of time on some ranks."""

    job: TracedJob
    zero: int  # what times count from (ns, Unix time on the common clock)
    start: int  # ns from zero
    end: int
    shown: list[int]  # indices of the ranks in the job

    def begin(self, index: int) -> int:
        """Return `zero` on the clock of the trace of a rank."""
        offset = int(self.job.of(clocks).offset_ns[index])
        return self.zero + offset - self.job.digests[index].base_ns

    @property
    def window(self) -> tuple[int, int]:
        return self.start, self.end


def host_line(profile: Profile) -> Line:
    """Return what the launching threads were busy with, by cause and name."""
    costs = profile.of(host_costs)
    code = costs.code.copy()
    code[costs.bounds[2] :] = len(costs.blamed)
    kinds = [
        (str(blamed.cause), " · ".join(filter(None, (blamed.name, at_line(blamed.file, blamed.line)))))
        for blamed in costs.blamed
    ]
    return _without_overlap(costs.begin, costs.end, code, [*kinds, ("waiting", "")])


def compute_line(profile: Profile) -> Line:
    """Return what ran on the GPU except collectives; where several kernels ran, the first to begin."""
    trace, work = profile.trace, _compute_work(profile)
    keys = work.category * len(trace.names) + trace.name[work.index]
    distinct, code = np.unique(keys, return_inverse=True)
    kinds = [
        (work.categories[key // len(trace.names)], trace.names[key % len(trace.names)])
        for key in distinct.tolist()
    ]
    begin = trace.ts[work.index]
    return _without_overlap(begin, begin + trace.dur[work.index], code.astype(np.int64), kinds)


def _compute_work(profile: Profile) -> GpuWork:
    """Return the work of the device on which steps take longest; without steps, on which most runs."""
    work, steps = profile.of(gpu_work), profile.of(gpu_steps)
    devices, count = np.unique(work.device, return_counts=True)
    if not len(devices):
        return work
    device = steps.device if steps else int(devices[np.argmax(count)])
    is_communication = np.array([name == "communication" for name in work.categories])
    return work.where((work.device == device) & ~is_communication[work.category])


def _without_overlap(begin: Int64s, end: Int64s, code: Int64s, kinds: list[tuple[str, str]]) -> Line:
    """Let each slice begin where those before it have ended, and drop what is hidden then."""
    order = np.argsort(begin, kind="stable")
    begin, end, code = begin[order], end[order], code[order]
    reach = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end)))[:-1]
    begin = np.maximum(begin, reach)
    visible = end > begin
    return Line(begin[visible], end[visible], code[visible], kinds)


def host_pieces(line: Line, begin: int, window: tuple[int, int], names: Codes) -> HostPieces:
    """Return what a host shows of a window (ns from `begin`, which is on the line's clock)."""
    columns, causes = _drawn(line, begin, window, names)
    return HostPieces(**columns, cause=msgspec.convert(causes, list[HostCause]))


def gpu_pieces(line: Line, begin: int, window: tuple[int, int], names: Codes) -> GpuPieces:
    """Return what a GPU shows of a window (ns from `begin`, which is on the line's clock)."""
    columns, categories = _drawn(line, begin, window, names)
    return GpuPieces(**columns, category=msgspec.convert(categories, list[Category]))


def _drawn(line: Line, begin: int, window: tuple[int, int], names: Codes) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of `LanePieces` and what each piece is; slices shorter than a bucket are joined."""
    start, end = window
    runs = singles(np.zeros(len(line.begin), np.int64), line.begin - begin, line.end - line.begin, line.code)
    joined = merged(touching(runs, start, end), shift_for(end - start, BUCKETS))
    length = joined.end - joined.start
    share = np.round(joined.covered / np.maximum(length, 1), 3)
    kinds = [line.kinds[code] for code in joined.row.tolist()]
    columns = {
        "start_ns": joined.start.tolist(),
        "dur_ns": length.tolist(),
        "busy": share.tolist(),
        "name": [names.code(name) for _, name in kinds],
    }
    return columns, [kind for kind, _ in kinds]


def calls_in_view(view: View) -> Int64s:
    """Return the calls of all ranks that touch the window, shown or not."""
    times = view.job.of(waits)
    return np.flatnonzero((times.begin < view.zero + view.end) & (times.end > view.zero + view.start))


def step_calls(view: View) -> tuple[list[JoinedCollective], Int64s]:
    """Return the longest collectives in a view, and the calls of the others."""
    call_table, rows = view.job.of(calls), calls_in_view(view)
    rows = rows[np.isin(call_table.place[rows], view.shown)]
    instance = view.job.of(instances).of_call[rows]
    _, collective = np.unique(np.where(instance >= 0, instance, -1 - rows), return_inverse=True)
    chosen = np.isin(collective, _longest(collective, call_table.dur[rows]))
    rest, rows, collective = rows[~chosen], rows[chosen], collective[chosen]
    order = np.lexsort((call_table.place[rows], collective))
    rows, collective = rows[order], collective[order]
    lines = _lines(view.job.of(waits), call_table.place[rows], rows)
    members = np.split(rows, np.flatnonzero(np.diff(collective)) + 1)
    joined = [_joined(view, rows, lines) for rows in members if len(rows)]
    return sorted(joined, key=lambda row: row.start_us), rest


def _longest(collective: Int64s, dur: Int64s) -> Int64s:
    """Return as many collectives as can be drawn one by one."""
    longest, count = np.zeros((2, int(collective.max(initial=-1)) + 1), np.int64)
    np.maximum.at(longest, collective, dur)
    np.add.at(count, collective, 1)
    order = np.argsort(-longest, kind="stable")[:_MAX_COLLECTIVES]
    return np.asarray(order[np.cumsum(count[order]) <= _MAX_CALLS], np.int64)


def _lines(times: Waits, ranks: Int64s, rows: Int64s) -> dict[int, int]:
    """Return for each call the first free line of its rank; the last line takes what finds none."""
    ends_of_ranks: dict[int, list[int]] = {}
    lines: dict[int, int] = {}
    order = np.argsort(times.begin[rows], kind="stable")
    for rank, row in zip(ranks[order].tolist(), rows[order].tolist()):
        ends = ends_of_ranks.setdefault(rank, [0] * _LINES)
        begin = int(times.begin[row])
        line = next((number for number, end in enumerate(ends) if end <= begin), _LINES - 1)
        ends[line], lines[row] = int(times.end[row]), line
    return lines


def _joined(view: View, rows: Int64s, lines: dict[int, int]) -> JoinedCollective:
    kind, times = view.job.of(calls).kind_of(rows[0]), view.job.of(waits)
    matched = bool(view.job.of(instances).of_call[rows[0]] >= 0)
    drawn = [_call(view, row, lines[row]) for row in rows.tolist()]
    return JoinedCollective(
        op=kind.operation,
        group=kind.group.name if kind.group else "",
        dtype=kind.dtype,
        message_bytes=kind.message_bytes if kind.message_bytes >= 0 else None,
        matched=matched,
        start_us=min(call.start_ns for call in drawn) / 1000,
        wait_us=int(times.wait[rows].sum()) / 1000 if matched else None,
        unknown_us=int(times.unknown[rows].sum()) / 1000 if matched else None,
        transfer_us=int(times.transferred[rows].sum()) / 1000 if matched else None,
        last_rank=next((call.rank for call in drawn if call.last), None),
        calls=drawn,
    )


def _call(view: View, row: int, line: int) -> JoinedCall:
    call_table, times, numbers = view.job.of(calls), view.job.of(waits), view.job.numbers
    wait, unknown, awaited = (int(column[row]) for column in (times.wait, times.unknown, times.awaited))
    return JoinedCall(
        rank=numbers[int(call_table.place[row])],
        row=int(view.job.of(trace_rows)[row]),
        start_ns=int(times.begin[row]) - view.zero,
        dur_ns=int(call_table.dur[row]),
        wait_ns=wait if wait >= 0 else None,
        unknown_ns=unknown if wait >= 0 else None,
        transfer_ns=int(times.transferred[row]) if wait >= 0 else None,
        for_rank=numbers[awaited] if awaited >= 0 else None,
        last=bool(times.last[row]),
        line=line,
    )


def rest_of(view: View, index: int, rows: Int64s, names: Codes) -> GpuPieces:
    """Return those of the calls `rows` that ran on this rank, short ones joined."""
    call_table, base_ns = view.job.of(calls), view.job.digests[index].base_ns
    rows = rows[call_table.place[rows] == index]
    operations: list[str] = [call_table.kind_of(row).operation for row in rows.tolist()]
    distinct, code = np.unique(np.array(operations, str), return_inverse=True)
    kinds = [("communication", str(name)) for name in distinct]
    begin, end = call_table.begin[rows] - base_ns, call_table.end[rows] - base_ns
    line = _without_overlap(begin, end, code.astype(np.int64), kinds)
    return gpu_pieces(line, view.begin(index), view.window, names)
