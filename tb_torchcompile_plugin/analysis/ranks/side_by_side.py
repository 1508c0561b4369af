"""What did each host and GPU do in one step of all ranks, and which rank did the others wait for?

Times are ns from the begin of the step on the ranks' common clock; `own_ns` leads to those of a rank's own timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.ranks import step_lanes
from tb_torchcompile_plugin.analysis.ranks.step_lanes import GpuPieces, HostPieces, JoinedCollective, View
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.job.clocks import clocks
from tb_torchcompile_plugin.job.instances import calls
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, gpu_steps
from tb_torchcompile_plugin.reader.arrays import Codes

MAX_RANKS = 8  # ranks that are shown: as many as fit on a screen
_MAX_LENGTHS = 10  # of the step, by which a window may lie before it or behind it


class RankLanes(msgspec.Struct, frozen=True):
    """One rank in the step."""

    rank: int
    worker: str
    span: str
    own_ns: int
    late: bool  # whether the others wait mostly for this rank
    # In the collectives that the step launched; of a part of the step, in those in view.
    wait_us: float
    late_us: float  # how long the others waited for it
    host_step_ns: list[int] | None  # begin and end of the step; None where unknown
    gpu_step_ns: list[int] | None
    host: HostPieces
    gpu: GpuPieces
    rest: GpuPieces  # collectives that are not in `collectives`


class StepSideBySide(msgspec.Struct, frozen=True):
    """One step on all ranks; of many ranks, on those most unlike the others."""

    headline: str
    step: str | None  # None where no rank has steps and all that was recorded is shown
    steps: list[str]
    length_ns: int
    from_ns: int  # what is in view of the step
    to_ns: int
    ranks: list[RankLanes]
    left_out: list[int]  # ranks that are not shown
    collectives: list[JoinedCollective]  # in order of time
    names: list[str]
    notes: list[str]  # what is not shown, and why


_Span = tuple[int, int]  # begin and end (ns)


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
        windows = [rank.profile.of(StepWindows).names for rank in job.ranks]
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
    return _answer(View(about.job, begin, start, end, []), about.steps, name, length)


def _extent(job: TracedJob, name: str) -> _Span:
    """Return from when to when any rank is at the step, on the common clock (Unix time)."""
    begins, ends = [], []
    for rank, offset in zip(job.ranks, job.of(clocks).offset_ns.tolist()):
        spans = [_on_host(rank.profile, name), _on_gpu(rank.profile, name)]
        if not name:
            spans = [rank.profile.trace.window()]
        to_common = rank.profile.trace.base_ns - offset
        begins += [span[0] + to_common for span in spans if span]
        ends += [span[1] + to_common for span in spans if span]
    return min(begins), max(min(begins) + 1, *ends)


def _on_host(profile: Profile, name: str) -> _Span | None:
    steps = profile.of(StepWindows)
    if name not in steps.names:
        return None
    row = steps.names.index(name)
    return int(steps.starts[row]), int(steps.ends[row])


def _on_gpu(profile: Profile, name: str) -> _Span | None:
    names, steps = profile.of(StepWindows).names, profile.of(gpu_steps)
    if steps is None or name not in names:
        return None
    rows = np.flatnonzero(steps.step == names.index(name))
    return (int(steps.begin[rows[0]]), int(steps.end[rows[0]])) if len(rows) else None


def _answer(view: View, steps: list[str], name: str, length: int) -> StepSideBySide:
    is_whole = view.window == (0, length)
    rows = _launched_calls(view.job, name) if is_whole and name else step_lanes.calls_in_view(view)
    blame = _blame(view, rows)
    view = view._replace(shown=_shown(blame))
    (collectives, rest), names = step_lanes.step_calls(view), Codes()
    lanes = [_lanes(view, index, name, blame, rest, names) for index in view.shown]
    return StepSideBySide(
        headline=_headline(view, name, is_whole, blame),
        step=name or None,
        steps=steps,
        length_ns=length,
        from_ns=view.start,
        to_ns=view.end,
        ranks=lanes,
        left_out=[rank for index, rank in enumerate(view.job.numbers) if index not in view.shown],
        collectives=collectives,
        names=names.texts,
        notes=list(_notes(len(view.job.ranks), lanes, len(collectives), len(rest))),
    )


def _launched_calls(job: TracedJob, name: str) -> Int64s:
    """Return the calls that this step launched."""
    call_table = job.of(calls)
    begin, end = np.zeros((2, len(job.ranks)), np.int64)
    for index, rank in enumerate(job.ranks):
        if span := _on_host(rank.profile, name):
            begin[index], end[index] = (time + rank.profile.trace.base_ns for time in span)
    launch, ranks = call_table.launch, call_table.place
    return np.flatnonzero((launch >= begin[ranks]) & (launch < end[ranks]))


def _blame(view: View, rows: Int64s) -> _Blame:
    """Sum up the waits of these calls; a rank is late if the waiting matters and most of it is for that rank."""
    ranks, times = view.job.of(calls).place, view.job.of(waits)
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


def _lanes(view: View, index: int, name: str, blame: _Blame, rest: Int64s, names: Codes) -> RankLanes:
    rank, begin = view.job.ranks[index], view.begin(index)
    profile = rank.profile
    on_host, on_gpu = _on_host(profile, name), _on_gpu(profile, name)
    return RankLanes(
        rank=rank.rank,
        worker=rank.worker,
        span=profile.span.span if profile.span else "",
        own_ns=begin - profile.trace.window()[0],
        late=index == blame.late,
        wait_us=int(blame.waited[index]) / 1000,
        late_us=int(blame.caused[index]) / 1000,
        host_step_ns=[time - begin for time in on_host] if on_host else None,
        gpu_step_ns=[time - begin for time in on_gpu] if on_gpu else None,
        host=step_lanes.host_pieces(profile.of(step_lanes.host_line), begin, view.window, names),
        gpu=step_lanes.gpu_pieces(profile.of(step_lanes.compute_line), begin, view.window, names),
        rest=step_lanes.rest_of(view, index, rest, names),
    )


def _headline(view: View, name: str, is_whole: bool, blame: _Blame) -> str:
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
            f"{plural(rest, 'shorter call')} without lines: zoom in for them"
        )
    silent = [str(lane.rank) for lane in lanes if not lane.host.start_ns]
    if silent:
        yield (
            f"What the host did is not known here of {plural(len(silent), 'rank')} ({', '.join(silent)}): "
            "it is read between calls that launch work, and of the first steps of long recordings"
        )
