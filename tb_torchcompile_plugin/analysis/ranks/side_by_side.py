"""What did each host and GPU do in one step of all ranks, and which rank did the others wait for?

Times are ns from the begin of the step on the ranks' common clock; `own_ns` leads to those of a rank's own timeline.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, plural
from tb_torchcompile_plugin.analysis.runtime.step_picture import HostCause
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.digest.host_costs import host_costs
from tb_torchcompile_plugin.job.instances import calls, instances, trace_rows
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import distinct, groups_of_equal
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, exclusive
from tb_torchcompile_plugin.profile.level_of_detail import merged, shift_for, singles, touching
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import gpu_steps, marked_steps
from tb_torchcompile_plugin.reader.arrays import Codes
from tb_torchcompile_plugin.torch_names.collectives import Operation
from tb_torchcompile_plugin.torch_names.kernels import Category

MAX_RANKS = 8  # ranks that are shown: as many as fit on a screen
_MAX_LENGTHS = 10  # of the step, by which a window may lie before it or behind it
BUCKETS = 256  # of a window; a lane has at most twice as many pieces

# Limits of what is drawn one by one; chosen by eye on the recordings.
_MAX_COLLECTIVES = 200
_LINES = 4  # of one rank, one below the other


_Span = tuple[int, int]  # begin and end (ns)
PieceKind = Literal[HostCause, Category]  # of a host, and of a GPU


class LanePieces(msgspec.Struct, frozen=True):
    """Columns of what is drawn in one lane, in order of time."""

    start_ns: list[int]  # on the clock of the picture
    dur_ns: list[int]
    busy: list[float]  # which share of the piece is filled: below 1 where short slices were joined
    name: list[int]  # index of the longest slice's name in the picture's `names`
    kind: list[PieceKind]


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
    """The calls of one collective on the ranks that are shown; a call of no instance is alone."""

    op: Operation
    group: str
    dtype: str
    message_bytes: int | None
    calls: list[JoinedCall]


class _Line(NamedTuple):
    """Slices of one lane that do not overlap, in order of time (ns, on the clock of the trace)."""

    begin: Int64s
    end: Int64s
    code: Int64s  # index in `kinds`
    kinds: Sequence[tuple[PieceKind, str]]  # with the name


class _View(NamedTuple):
    """A window of time on some ranks."""

    job: TracedJob
    zero: int  # what times count from (ns, Unix time on the common clock)
    start: int  # ns from zero
    end: int


class RankLanes(msgspec.Struct, frozen=True):
    """One rank in the step."""

    rank: int
    worker: str
    span: str
    own_ns: int
    late: bool  # whether the others wait mostly for this rank
    wait_us: float  # in the collectives that the step launched; of a part of the step, in those in view
    host_step_ns: list[int] | None  # begin and end of the step; None where unknown
    gpu_step_ns: list[int] | None
    host: LanePieces
    gpu: LanePieces  # without collectives


class StepSideBySide(msgspec.Struct, frozen=True):
    """One step on all ranks; of many ranks, on those most unlike the others."""

    headline: str
    step: str | None  # None where no rank has steps and all that was recorded is shown
    steps: list[str]
    length_ns: int
    from_ns: int  # what is in view of the step
    to_ns: int
    ranks: list[RankLanes]
    collectives: list[JoinedCollective]  # the longest, in order of time
    names: list[str]
    notes: list[str]  # what is not shown, and why


class _Blame(NamedTuple):
    """How long ranks waited for each other in some collectives, by rank (ns)."""

    calls: int
    waited: Int64s
    caused: Int64s  # how long the others waited for it
    last: Int64s  # at how many collectives it came last
    late: int  # the rank that most of the waiting is for, -1 for none


class SideBySide:
    """What every step of a job needs; create it once for a job."""

    def __init__(self, job: TracedJob) -> None:
        self.job = job
        job.of(waits)
        windows = [rank.profile.of(marked_steps).names for rank in job.ranks]
        self.steps = list(dict.fromkeys(name for names in windows for name in names))


def side_by_side(about: SideBySide, step: str, window: tuple[int, int] | None) -> StepSideBySide:
    """Return a step of all ranks, or the window of it (ns from its begin); "" is the first step. Raises BadRequest."""
    name = step or next(iter(about.steps), "")
    if name and name not in about.steps:
        raise BadRequest(f"no rank has a step {name!r}", next_step="Pick another step")
    begin, step_end = _extent(about.job, name)
    length = step_end - begin
    start, end = window or (0, length)
    if start >= end:
        raise BadRequest("the window ends before it begins", next_step="Give from < to, in ns")
    if start < -_MAX_LENGTHS * length or end > (_MAX_LENGTHS + 1) * length:
        raise BadRequest("the window is far from the step", next_step="See docs/http.md")
    return _answer(_View(about.job, begin, start, end), about.steps, name, length)


def _extent(job: TracedJob, name: str) -> _Span:
    """Return from when to when any rank is at the step, on the common clock (Unix time)."""
    begins, ends = [], []
    for rank, offset in zip(job.ranks, job.of(clocks).offset_ns.tolist()):
        spans = [rank.profile.trace.window()]
        if name:
            spans = [span for span in (_on_host(rank.profile, name), _on_gpu(rank.profile, name)) if span]
        to_common = rank.profile.trace.base_ns - offset
        begins += [begin + to_common for begin, _ in spans]
        ends += [end + to_common for _, end in spans]
    return min(begins), max(min(begins) + 1, *ends)


def _on_host(profile: Profile, name: str) -> _Span | None:
    steps = profile.of(marked_steps)
    if name not in steps.names:
        return None
    row = steps.names.index(name)
    return int(steps.starts[row]), int(steps.ends[row])


def _on_gpu(profile: Profile, name: str) -> _Span | None:
    names, steps = profile.of(marked_steps).names, profile.of(gpu_steps)
    if steps is None or name not in names:
        return None
    rows = np.flatnonzero(steps.step == names.index(name))
    return (int(steps.begin[rows[0]]), int(steps.end[rows[0]])) if len(rows) else None


def _answer(view: _View, steps: list[str], name: str, length: int) -> StepSideBySide:
    is_whole = (view.start, view.end) == (0, length)
    blame = _blame(view, _launched_calls(view.job, name) if is_whole and name else _calls_in_view(view))
    shown, names = _shown(blame), Codes()
    collectives, rest = _step_calls(view, shown)
    lanes = [_lanes(view, index, name, blame, names) for index in shown]
    return StepSideBySide(
        headline=_headline(view, name, is_whole, blame),
        step=name or None,
        steps=steps,
        length_ns=length,
        from_ns=view.start,
        to_ns=view.end,
        ranks=lanes,
        collectives=collectives,
        names=names.texts,
        notes=list(_notes(len(view.job.ranks), lanes, len(collectives), rest)),
    )


def _launched_calls(job: TracedJob, name: str) -> Int64s:
    """Return the calls that this step launched."""
    call_table = job.of(calls)
    begin, end = np.zeros((2, len(job.ranks)), np.int64)
    for index, rank in enumerate(job.ranks):
        if span := _on_host(rank.profile, name):
            begin[index], end[index] = (time + rank.profile.trace.base_ns for time in span)
    launch, ranks = call_table.launch, call_table.rank_index
    return np.flatnonzero((launch >= begin[ranks]) & (launch < end[ranks]))


def _blame(view: _View, rows: Int64s) -> _Blame:
    """Sum up the waits of these calls; a rank is late if the waiting matters and most of it is for that rank."""
    ranks, times = view.job.of(calls).rank_index, view.job.of(waits)
    waited, caused, last = np.zeros((3, len(view.job.ranks)), np.int64)
    waiting = rows[times.awaited[rows] >= 0]
    np.add.at(waited, ranks[waiting], times.wait[waiting])
    np.add.at(caused, times.awaited[waiting], times.wait[waiting])
    np.add.at(last, ranks[rows], times.last[rows])
    total, first = waited.sum(), int(np.argmax(caused))
    matters = 100 * total >= thresholds.communication_percent * (view.end - view.start) * len(waited)
    return _Blame(len(rows), waited, caused, last, first if matters and 2 * caused[first] > total else -1)


def _shown(blame: _Blame) -> list[int]:
    """Return the indices of the ranks to show: all in order, or of many the outliers, the late one first."""
    ranks = range(len(blame.waited))
    if len(ranks) <= MAX_RANKS:
        return list(ranks)
    distance = np.abs(blame.waited - np.median(blame.waited))
    return sorted(ranks, key=lambda index: (index != blame.late, -distance[index], index))[:MAX_RANKS]


def _lanes(view: _View, index: int, name: str, blame: _Blame, names: Codes) -> RankLanes:
    rank, profile, window = view.job.ranks[index], view.job.ranks[index].profile, (view.start, view.end)
    # Where the times of the picture begin, on the clock of the trace of this rank.
    begin = view.zero + int(view.job.of(clocks).offset_ns[index]) - view.job.digests[index].base_ns
    on_host, on_gpu = _on_host(profile, name), _on_gpu(profile, name)
    return RankLanes(
        rank=rank.rank,
        worker=rank.worker,
        span=profile.span.span if profile.span else "",
        own_ns=begin - profile.trace.window()[0],
        late=index == blame.late,
        wait_us=int(blame.waited[index]) / 1000,
        host_step_ns=[time - begin for time in on_host] if on_host else None,
        gpu_step_ns=[time - begin for time in on_gpu] if on_gpu else None,
        host=_pieces(profile.of(host_line), begin, window, names),
        gpu=_pieces(profile.of(compute_line), begin, window, names),
    )


def _headline(view: _View, name: str, is_whole: bool, blame: _Blame) -> str:
    """Say how much the ranks wait, and for whom."""
    where = f"Step {name.rpartition('#')[2]}" if name else "What was recorded"
    length = duration((view.end - view.start) / 1000)
    where = f"{where} takes {length} on all ranks together" if is_whole else f"{length} of {where.lower()}"
    if not blame.calls:
        nothing = "no collective is known to be of it" if is_whole else "no collective runs in it"
        return f"{where}: {nothing}."
    if blame.late < 0:
        total = int(blame.waited.sum()) / 1000
        return f"{where}: ranks wait {duration(total)} in sum, and no rank alone is to blame."
    times, caused = int(blame.last[blame.late]), int(blame.caused[blame.late]) / 1000
    return (
        f"{where}: rank {view.job.numbers[blame.late]} comes last at {plural(times, 'collective')}, "
        f"and the others wait {duration(caused)} in sum for it."
    )


def _notes(ranks: int, lanes: list[RankLanes], collectives: int, rest: int) -> Iterator[str]:
    if len(lanes) < ranks:
        yield (
            f"{len(lanes)} of {ranks} ranks are shown: those whose waiting is farthest from the middle of all. "
            "Each rank has a timeline of its own"
        )
    if rest:
        yield (
            f"{plural(collectives, 'collective')} drawn one by one, the longest; "
            f"{plural(rest, 'shorter call')} left out: zoom in for them"
        )
    silent = [str(lane.rank) for lane in lanes if not lane.host.start_ns]
    if silent:
        yield (
            f"What the host did is not known here of {plural(len(silent), 'rank')} ({', '.join(silent)}): "
            "it is read between calls that launch work, and of the first steps of long recordings"
        )


def host_line(profile: Profile) -> _Line:
    """Return what the launching threads were busy with, by cause and name."""
    costs = profile.of(host_costs)
    code = costs.code.copy()
    code[costs.bounds[2] :] = len(costs.blamed)
    kinds: list[tuple[PieceKind, str]] = [
        (
            cast(HostCause, blamed.cause),
            " · ".join(filter(None, (blamed.name, at_line(blamed.file, blamed.line)))),
        )
        for blamed in costs.blamed
    ]
    return _without_overlap(costs.begin, costs.end, code, [*kinds, ("waiting", "")])


def compute_line(profile: Profile) -> _Line:
    """Return what ran except collectives on the GPU on which steps take longest; without steps, on which most runs.

    Where several kernels ran, the first to begin.
    """
    trace, work, steps = profile.trace, profile.of(gpu_work), profile.of(gpu_steps)
    devices, count = np.unique(work.device, return_counts=True)
    if len(devices):
        device = steps.device if steps else int(devices[np.argmax(count)])
        is_communication = np.array([name == "communication" for name in work.categories])
        work = work.where((work.device == device) & ~is_communication[work.category])
    pairs, code = distinct(work.category, trace.name[work.index])
    kinds = [
        (cast(Category, work.categories[category]), trace.names[name]) for category, name in pairs.T.tolist()
    ]
    begin = trace.ts[work.index]
    return _without_overlap(begin, begin + trace.dur[work.index], code, kinds)


def _without_overlap(
    begin: Int64s, end: Int64s, code: Int64s, kinds: Sequence[tuple[PieceKind, str]]
) -> _Line:
    """Let each slice begin where those before it have ended, and drop what is hidden then."""
    order = np.argsort(begin, kind="stable")
    end, code = end[order], code[order]
    begin, visible = exclusive(begin[order], end)
    return _Line(begin[visible], end[visible], code[visible], kinds)


def _pieces(line: _Line, begin: int, window: _Span, names: Codes) -> LanePieces:
    """Join slices that are shorter than a bucket. window: ns from `begin`, which is on the line's clock."""
    start, end = window
    runs = singles(np.zeros(len(line.begin), np.int64), line.begin - begin, line.end - line.begin, line.code)
    joined = merged(touching(runs, start, end), shift_for(end - start, BUCKETS))
    length = joined.end - joined.start
    kinds = [line.kinds[code] for code in joined.row.tolist()]
    return LanePieces(
        start_ns=joined.start.tolist(),
        dur_ns=length.tolist(),
        busy=np.round(joined.covered / np.maximum(length, 1), 3).tolist(),
        name=[names.code(name) for _, name in kinds],
        kind=[kind for kind, _ in kinds],
    )


def _calls_in_view(view: _View) -> Int64s:
    """Return the calls of all ranks that touch the window, shown or not."""
    times = view.job.of(waits)
    return np.flatnonzero((times.begin < view.zero + view.end) & (times.end > view.zero + view.start))


def _step_calls(view: _View, shown: list[int]) -> tuple[list[JoinedCollective], int]:
    """Return the longest collectives in a view on the ranks at these indices, and how many calls are left out."""
    call_table, of_call, rows = view.job.of(calls), view.job.of(instances).of_call, _calls_in_view(view)
    rows = rows[np.isin(call_table.rank_index[rows], shown)]
    collective = np.where(of_call >= 0, of_call, -1 - np.arange(len(of_call)))
    longest_first = sorted(
        groups_of_equal(rows, collective), key=lambda members: -int(call_table.dur[members].max())
    )
    drawn = longest_first[:_MAX_COLLECTIVES]
    lines = _lines(view.job, [row for members in drawn for row in members.tolist()])
    joined = [_joined(view, members, lines) for members in drawn]
    joined.sort(key=lambda row: min(call.start_ns for call in row.calls))
    return joined, len(rows) - len(lines)


def _lines(job: TracedJob, rows: list[int]) -> dict[int, int]:
    """Return for each call the first free line of its rank; the last line takes what finds none."""
    times, ranks = job.of(waits), job.of(calls).rank_index
    ends_of_ranks, lines = defaultdict[int, list[int]](lambda: [0] * _LINES), dict[int, int]()
    for row in sorted(rows, key=lambda row: int(times.begin[row])):
        ends = ends_of_ranks[int(ranks[row])]
        line = next((number for number, end in enumerate(ends) if end <= times.begin[row]), _LINES - 1)
        ends[line], lines[row] = int(times.end[row]), line
    return lines


def _joined(view: _View, rows: Int64s, lines: dict[int, int]) -> JoinedCollective:
    kind = view.job.of(calls).kind_of(rows[0])
    return JoinedCollective(
        op=kind.operation,
        group=kind.group.name if kind.group else "",
        dtype=kind.dtype,
        message_bytes=kind.message_bytes if kind.message_bytes >= 0 else None,
        calls=[_call(view, row, lines[row]) for row in rows.tolist()],
    )


def _call(view: _View, row: int, line: int) -> JoinedCall:
    call_table, times, numbers = view.job.of(calls), view.job.of(waits), view.job.numbers
    wait, unknown, awaited = (int(column[row]) for column in (times.wait, times.unknown, times.awaited))
    return JoinedCall(
        rank=numbers[int(call_table.rank_index[row])],
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
