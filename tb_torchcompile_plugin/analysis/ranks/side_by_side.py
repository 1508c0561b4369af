"""One step of all ranks side by side: what each host and GPU did at one time, and which rank the others waited for.

Times are ns from the begin of the step on the ranks' common clock; `own_ns` leads to those of a rank's own timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.ranks.step_lanes import (
    GpuPieces,
    HostPieces,
    JoinedCollective,
    StepCalls,
    View,
    compute_line,
    gpu_pieces,
    host_line,
    host_pieces,
    in_view,
    rest_of,
    step_calls,
)
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import calls
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, gpu_steps
from tb_torchcompile_plugin.reader.arrays import Codes

MOST = 8  # ranks that are shown
_ROOM = 10  # how many times the step's length a window may begin before it and end behind it
_SEE = "See docs/http.md"


class RankLanes(msgspec.Struct, frozen=True):
    """One rank in the step. host_step_ns, gpu_step_ns: begin and end of the step there, null where that is not known.
    wait_us: of its collectives that the step launched, or that are in view where that is not the whole step; late_us:
    what the others waited for it in them. late: it is the one to blame.
    rest: collectives that are not in `collectives`."""

    rank: int
    worker: str
    span: str
    own_ns: int
    late: bool
    wait_us: float
    late_us: float
    host_step_ns: list[int] | None
    gpu_step_ns: list[int] | None
    host: HostPieces
    gpu: GpuPieces
    rest: GpuPieces


class StepSideBySide(msgspec.Struct, frozen=True):
    """`step`: null where no rank has steps and all that was recorded is shown. from_ns, to_ns: what is in view of the
    step's length_ns. left_out: ranks that are not shown; of many those most unlike the others are. `collectives` in
    order of time. notes: what is not shown, and why."""

    headline: str
    step: str | None
    steps: list[str]
    length_ns: int
    from_ns: int
    to_ns: int
    ranks: list[RankLanes]
    left_out: list[int]
    collectives: list[JoinedCollective]
    names: list[str]
    notes: list[str]


class Stretch(NamedTuple):
    """ns."""

    begin: int
    end: int


class SideBySide:
    """Made once for a job: what every step needs."""

    def __init__(self, job: TracedJob) -> None:
        self.job = job
        job.of(waits)
        windows = [one.profile.of(StepWindows).names for one in job.ranks]
        self.steps = list(dict.fromkeys(name for names in windows for name in names))


def side_by_side(about: SideBySide, step: str, window: tuple[int, int] | None) -> StepSideBySide:
    """step: its name, the first where it is "". window: ns from its begin. Raises BadRequest."""
    name = step or next(iter(about.steps), "")
    if name and name not in about.steps:
        raise BadRequest(f"no rank has a step {name!r}", next_step="Pick another step")
    extent = _extent(about.job, name)
    start, end = _checked(window or (0, extent.end - extent.begin), extent)
    return _answer(View(about.job, extent.begin, start, end, []), about.steps, name, extent)


def _checked(window: tuple[int, int], extent: Stretch) -> tuple[int, int]:
    start, end = window
    if start >= end:
        raise BadRequest("the window ends before it begins", next_step="Give from < to, in ns")
    length = extent.end - extent.begin
    if start < -_ROOM * length or end > (_ROOM + 1) * length:
        raise BadRequest("the window is far from the step", next_step=_SEE)
    return window


def _extent(job: TracedJob, name: str) -> Stretch:
    """From when to when any rank is at the step, on the common clock (Unix time)."""
    known = []
    for one, offset in zip(job.ranks, job.of(clocks).offset_ns.tolist()):
        to_common = one.profile.trace.base_ns - offset
        known += [
            Stretch(*(time + to_common for time in stretch)) for stretch in _stretches(one.profile, name)
        ]
    begin = min(one.begin for one in known)
    return Stretch(begin, max(begin + 1, *(one.end for one in known)))


def _stretches(profile: Profile, name: str) -> list[Stretch]:
    """Of the step on host and GPU, as far as they are known; all that was recorded where nobody has steps."""
    if not name:
        return [Stretch(*profile.trace.window())]
    return [one for one in (_on_host(profile, name), _on_gpu(profile, name)) if one]


def _on_host(profile: Profile, name: str) -> Stretch | None:
    steps = profile.of(StepWindows)
    if name not in steps.names:
        return None
    row = steps.names.index(name)
    return Stretch(int(steps.starts[row]), int(steps.ends[row]))


def _on_gpu(profile: Profile, name: str) -> Stretch | None:
    names, steps = profile.of(StepWindows).names, profile.of(gpu_steps)
    if steps is None or name not in names:
        return None
    here = np.flatnonzero(steps.step == names.index(name))
    return Stretch(int(steps.begin[here[0]]), int(steps.end[here[0]])) if len(here) else None


class Waited(NamedTuple):
    """Of collectives (ns). known: how many calls. held: how long each rank waited; blamed: how long others waited for
    each. last: at how many each came last. late: the place of the rank to blame, -1 for none."""

    known: int
    held: Int64s
    blamed: Int64s
    last: Int64s
    late: int


def _launched(job: TracedJob, name: str) -> Int64s:
    """The calls that this step launched."""
    made = job.of(calls)
    begin, end = np.zeros((2, len(job.ranks)), np.int64)
    for place, one in enumerate(job.ranks):
        if known := _on_host(one.profile, name):
            begin[place], end[place] = (time + one.profile.trace.base_ns for time in known)
    return np.flatnonzero((made.launch >= begin[made.place]) & (made.launch < end[made.place]))


def _waited(view: View, rows: Int64s) -> Waited:
    """A rank is to blame where waiting is worth it, and most of it is for that rank."""
    made, times = view.job.of(calls), view.job.of(waits)
    held, blamed, last = np.zeros((3, len(view.job.ranks)), np.int64)
    waiting = rows[times.awaited[rows] >= 0]
    np.add.at(held, made.place[waiting], times.wait[waiting])
    np.add.at(blamed, times.awaited[waiting], times.wait[waiting])
    np.add.at(last, made.place[rows], times.last[rows])
    worth = 100 * held.sum() >= thresholds.communication_percent * (view.end - view.start) * len(held)
    first = int(np.argmax(blamed))
    return Waited(len(rows), held, blamed, last, first if worth and 2 * blamed[first] > held.sum() else -1)


def _shown(waited: Waited) -> list[int]:
    """Places of the ranks that are shown: all in order, or of many the outliers, the late one first."""
    ranks = range(len(waited.held))
    if len(ranks) <= MOST:
        return list(ranks)
    far = np.abs(waited.held - np.median(waited.held))
    return sorted(ranks, key=lambda place: (place != waited.late, -far[place], place))[:MOST]


def _answer(view: View, steps: list[str], name: str, extent: Stretch) -> StepSideBySide:
    whole = view.window == (0, extent.end - extent.begin)
    waited = _waited(view, _launched(view.job, name) if whole and name else in_view(view))
    view = view._replace(shown=_shown(waited))
    drawn, names = step_calls(view), Codes()
    lanes = [_lanes(view, place, name, waited, drawn, names) for place in view.shown]
    numbers = view.job.numbers
    return StepSideBySide(
        headline=_headline(view, name, whole, waited),
        step=name or None,
        steps=steps,
        length_ns=extent.end - extent.begin,
        from_ns=view.start,
        to_ns=view.end,
        ranks=lanes,
        left_out=[rank for place, rank in enumerate(numbers) if place not in view.shown],
        collectives=drawn.joined,
        names=names.texts,
        notes=list(_notes(view, lanes, drawn)),
    )


def _lanes(view: View, place: int, name: str, waited: Waited, drawn: StepCalls, names: Codes) -> RankLanes:
    one, begin = view.job.ranks[place], view.begin(place)
    profile = one.profile

    def step(known: Stretch | None) -> list[int] | None:
        return [time - begin for time in known] if known else None

    return RankLanes(
        rank=one.rank,
        worker=one.worker,
        span=profile.span.span if profile.span else "",
        own_ns=begin - profile.trace.window()[0],
        late=place == waited.late,
        wait_us=int(waited.held[place]) / 1000,
        late_us=int(waited.blamed[place]) / 1000,
        host_step_ns=step(_on_host(profile, name)),
        gpu_step_ns=step(_on_gpu(profile, name)),
        host=host_pieces(profile.of(host_line), begin, view.window, names),
        gpu=gpu_pieces(profile.of(compute_line), begin, view.window, names),
        rest=rest_of(view, place, drawn.apart, names),
    )


def _headline(view: View, name: str, whole: bool, waited: Waited) -> str:
    """How much the ranks wait, and for whom: in collectives that the step launched, or that are in view."""
    where = f"Step {name.rpartition('#')[2]}" if name else "What was recorded"
    length = duration((view.end - view.start) / 1000)
    where = f"{where} takes {length} on all ranks together" if whole else f"{length} of {where.lower()}"
    if not waited.known:
        return (
            f"{where}: no collective is known to be of it."
            if whole
            else f"{where}: no collective runs in it."
        )
    total = int(waited.held.sum())
    if waited.late < 0:
        return f"{where}: ranks wait {duration(total / 1000)} in sum, and no rank alone is to blame."
    rank, times = view.job.numbers[waited.late], int(waited.last[waited.late])
    blamed = int(waited.blamed[waited.late]) / 1000
    return (
        f"{where}: rank {rank} comes last at {plural(times, 'collective')}, "
        f"and the others wait {duration(blamed)} in sum for it."
    )


def _notes(view: View, lanes: list[RankLanes], drawn: StepCalls) -> Iterator[str]:
    ranks = len(view.job.ranks)
    if len(lanes) < ranks:
        yield (
            f"{len(lanes)} of {ranks} ranks are shown: those whose waiting is farthest from the middle of all. "
            "Each rank has a timeline of its own"
        )
    if len(drawn.apart):
        yield (
            f"{plural(len(drawn.joined), 'collective')} drawn one by one, the longest; "
            f"{plural(len(drawn.apart), 'shorter call')} without lines: zoom in for them"
        )
    silent = [str(one.rank) for one in lanes if not one.host.start_ns]
    if silent:
        yield (
            f"What the host did is not known here of {plural(len(silent), 'rank')} ({', '.join(silent)}): "
            "it is read between calls that launch work, and of the first steps of long recordings"
        )
