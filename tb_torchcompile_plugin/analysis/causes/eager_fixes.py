"""What runs eager, compiled: operators beside compiled code, and frames that torch gave up."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import (
    Bools,
    Change,
    both,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.causes.fix import (
    CALL_OF_GRAPH_NS,
    Fix,
    FixKind,
    Times,
    are_kernels,
    as_one_graph,
    compiled_whole,
    fusible_work,
    launches_kernels,
    on_tracks,
    outermost_operator,
    points_inside,
    slice_times,
    time_inside,
    work_named,
)
from tb_torchcompile_plugin.analysis.causes.optimizer_fix import optimizer_times
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.profile.columns import mask_of, place_mask
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import (
    RegionCall,
    compiled_calls,
    cut_short,
    every,
    every_break,
    lookups_in_vain,
    marks_graphs,
    region_calls,
)
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.model.attribution import Culprit, most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.operators import is_fusible, is_fusible_in_graphs
from tb_torchcompile_plugin.torch_names.slices import is_on_device

# Graph breaks closed: what dynamo had to cut into several graphs is one, and inductor fuses over the seams.


_REACH_NS = 1_000_000  # a launch that is further from a break has nothing to do with it


class _Gaps(NamedTuple):
    """From the end of one graph to the begin of the next that would be part of it. row: a slice of their thread."""

    row: Int64s
    begin: Int64s
    end: Int64s


class _Seams(NamedTuple):
    """Gaps, from the last launch before each to the first behind it. points: these launches."""

    times: Times
    points: Int64s


def closed_breaks(profile: Profile) -> Iterator[Fix]:
    """What runs inside of one outermost region is one graph, and so are the backwards of it."""
    cut = {call.index for call in profile.of(cut_short)}
    executed = [_executed(call, cut) for call in profile.of(region_calls)]
    broken = [call for call, times in zip(profile.of(region_calls), executed) if times]
    if not broken:
        return
    closed, fused = joined(profile, broken)
    yield Fix(
        id="graph_breaks",
        kind="graph_breaks",
        subject=Culprit("wrappers", "", "", 0),
        change=both(closed, fused),
        times=sum(executed) / profile.of(host_lane).steps,
        surely=closed,
    )


def joined(profile: Profile, broken: list[RegionCall]) -> tuple[Change, Change]:
    """The graphs of each of these calls as one, forward and backward: without what the host does between them, and with
    kernels that are fused over the seams."""
    lane = profile.of(host_lane)
    seams = [_seams(profile, gaps) for gaps in (_between_graphs(broken), _between_backwards(profile, broken))]
    times = {
        track: _joined([one.times[track] for one in seams if track in one.times])
        for track in {track for one in seams for track in one.times}
    }
    inside, _ = points_inside(profile, times)
    closed = both(
        without_host_time(time_inside(profile, times)),
        without_waiting(inside & lane.synchronises),
    )
    ends = np.concatenate([one.points for one in seams])
    return closed, as_one_graph(profile, *_fused_over(profile, inside, ends))


def _executed(outermost: RegionCall, cut: Set[int]) -> int:
    """How many graph breaks it went through."""
    resumed = sum(1 for _ in every_break([outermost]))
    return resumed + sum(call.index in cut for call in every([outermost]))


def _between_graphs(broken: list[RegionCall]) -> _Gaps:
    """The frames that a broken one calls would be part of it, too: what called them is inlined."""
    gaps = [
        (last.index, end, begin)
        for outermost in broken
        for (_, end, last), (begin, _, then) in pairwise(
            sorted(((*graph, call) for call in every([outermost]) for graph in call.graphs), key=_begin)
        )
        if last is not then and begin >= end
    ]
    return _Gaps(*(np.array([gap[column] for gap in gaps], np.int64) for column in range(3)))


def _begin(graph: tuple[int, int, RegionCall]) -> int:
    return graph[0]


def _between_backwards(profile: Profile, broken: list[RegionCall]) -> _Gaps:
    """From one backward graph to the next of what would be one graph."""
    ownership, trace = profile.of(Ownership), profile.trace
    outermost = {part.compile_id: call.compile_id for call in broken for part in every([call])}
    owned = {row: outermost.get(ownership.name(code) or "") for row, code in ownership.backwards}
    rows = np.array(sorted((row for row, one in owned.items() if one), key=trace.ts.__getitem__), np.int64)
    begin, end = (trace.ts[rows] + trace.dur[rows])[:-1], trace.ts[rows][1:]
    same = np.array([owned[one] == owned[other] for one, other in pairwise(rows.tolist())], bool)
    near = (end >= begin) & (end - begin < _REACH_NS) & (np.diff(trace.track[rows]) == 0) & same
    return _Gaps(rows[:-1][near], begin[near], end[near])


def _seams(profile: Profile, gaps: _Gaps) -> _Seams:
    """Each gap as far as the launches around it, where its thread made them within reach."""
    lane, track = profile.of(host_lane), profile.trace.track[gaps.row]
    starts, ends = gaps.begin.copy(), gaps.end.copy()
    points = [np.zeros(0, np.int64)]
    for one in np.unique(track).tolist():
        launches = np.flatnonzero(lane.launches & (lane.track == one))
        mine = np.flatnonzero(track == one)
        place = np.searchsorted(lane.begin[launches], gaps.begin[mine]) - 1
        behind = np.searchsorted(lane.begin[launches], gaps.end[mine])
        before, after = mine[place >= 0], mine[behind < len(launches)]
        last, first = launches[place[place >= 0]], launches[behind[behind < len(launches)]]
        starts[before] = np.maximum(lane.end[last], gaps.begin[before] - _REACH_NS)
        ends[after] = np.minimum(lane.begin[first], gaps.end[after] + _REACH_NS)
        points += [last[starts[before] == lane.end[last]], first[ends[after] == lane.begin[first]]]
    return _Seams(on_tracks(profile, gaps.row, starts, np.maximum(starts, ends)), np.concatenate(points))


def _joined(parts: list[Intervals]) -> Intervals:
    return union(*(np.concatenate(column) for column in zip(*parts)))


def _fused_over(profile: Profile, inside: Bools, ends: Int64s) -> tuple[Bools, Bools]:
    """The points that are one with their neighbours, and which work can be fused: copies to the host go with the break
    that made them."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    fusible = mask_of(trace.names, is_fusible) | mask_of(trace.names, is_fusible_in_graphs)
    kernels = fusible[trace.name[queue.row]]
    at_end = place_mask(ends, len(inside))
    seam = place_mask(queue.point[kernels & at_end[queue.point]], len(inside))
    return inside | seam, kernels | ~profile.of(are_kernels)


_FEW = 4  # copies and fills between two kernels
_OPERATORS = 0.9  # of launches inside of captured frames: another backend may compile them, too
_UNFUSED = 0.4  # of a run of kernels beside the longest, at most: so much is left once they are one


def _compiled_eager(profile: Profile) -> Iterator[Fix]:
    """What runs eager, compiled: one graph for each run of launches, and kernels that only pass over data are one.

    Launches that are left (matrix products, convolutions) take the host as long as before: of ten programs that were
    measured both ways none took less than 0.8 times as long for a launch once it was compiled, in the median 1.1. At
    best they take a call each.
    """
    mine = profile.of(eager_points)
    if not mine.any():
        return
    fusible = profile.of(fusible_work) | profile.of(work_named, is_on_device)
    yield _as_graphs(profile, "eager", mine, fusible)


def _as_graphs(profile: Profile, kind: FixKind, mine: Bools, fusible: Bools) -> Fix:
    """Each run of these launches as a graph."""
    return Fix(
        id=kind,
        kind=kind,
        subject=_largest_eager(profile, mine),
        change=as_one_graph(profile, mine, fusible, call_ns=CALL_OF_GRAPH_NS, as_before=True),
        times=int(mine.sum()) / profile.of(host_lane).steps,
        surely=as_one_graph(profile, mine, fusible, _UNFUSED, CALL_OF_GRAPH_NS, as_before=True),
        perhaps=as_one_graph(profile, mine, fusible, call_ns=CALL_OF_GRAPH_NS),
    )


def _by_inductor(profile: Profile) -> Iterator[Fix]:
    """What a backend other than inductor launches operator by operator, as graphs of inductor's."""
    if not profile.of(captured_only):
        return
    lane = profile.of(host_lane)
    optimizing, _ = points_inside(profile, profile.of(optimizer_times))
    mine = lane.launches & ~profile.of(outside) & ~optimizing
    fusible = profile.of(fusible_work) | profile.of(work_named, is_on_device)
    launched = outermost_operator(profile.trace, lane.row[mine]) >= 0
    if mine.any() and launched.mean() >= _OPERATORS:
        yield _as_graphs(profile, "backend", mine, fusible)


def captured_only(profile: Profile) -> list[str]:
    """The compilations that hold operations and ran, where inductor had nothing to do with any: no phase of its own, no
    cache of its code, no graph of it in the trace."""
    rows = profile.data.of(compilations) if profile.data else []
    held = {row.compile_id for row in rows if row.graph_ops}
    by_inductor = any("inductor" in (row.phases_s or {}) or row.cache for row in rows)
    if by_inductor or marks_graphs(profile.trace):
        return []
    phased = {row.compile_id for row in rows if row.phases_s}
    return sorted({call.compile_id for call in every(profile.of(region_calls))} & held & phased)


def _compiled_frames(profile: Profile) -> Iterator[Fix]:
    """Frames that torch gave up, compiled as a whole: what made it give up, waits too, is gone, and what torch compiled
    of the functions that they call is part of their graph."""
    if not profile.of(given_up):
        return
    lane = profile.of(host_lane)
    mine = profile.of(outside) & (lane.launches | lane.synchronises)
    if not mine.any():
        return
    change = both(without_waiting(mine & lane.synchronises), compiled_whole(profile, mine))
    called = profile.of(calls_in_given_up)
    yield Fix(
        id="frames",
        kind="frames",
        subject=_largest_eager(profile, mine & lane.launches),
        change=both(change, *joined(profile, called)) if called else change,
        times=int(mine.sum()) / lane.steps,
        surely=change if called else None,
    )


def calls_in_given_up(profile: Profile) -> list[RegionCall]:
    """Each call of a frame that torch cannot resume, made of the regions that it calls: those that were compiled below
    it, one behind the other, until a backward, a step or another region comes."""
    below, calls = _compiled_below(profile), profile.of(region_calls)
    rows_back = np.array([row for row, _ in profile.of(Ownership).backwards], np.int64)
    backwards = np.sort(profile.trace.ts[rows_back])
    begins = np.array([call.start for call in calls], np.int64)
    part = np.searchsorted(backwards, begins) + np.searchsorted(profile.of(StepWindows).starts, begins)
    groups = groupby(zip(calls, part.tolist()), lambda one: (below.get(one[0].compile_id), one[1]))
    return [
        replace(rows[0], compile_id=frame, end=rows[-1].end, graphs=[], nested=rows)
        for (frame, _), pairs in groups
        if frame and len(rows := [call for call, _ in pairs]) > 1
    ]


def _compiled_below(profile: Profile) -> dict[str, str]:
    """By the id of a compilation that of the frame that torch cannot resume and that called it: its stack begins with
    all that led to that frame. The frame itself is not in all of them."""
    data = profile.data
    skipped = {row.compile_id for row in data.of(problems) if row.kind == "skipped"} if data else set()
    rows = data.of(compilations) if data and skipped else []
    led = [
        (row.compile_id, row.stack[:-1]) for row in rows if row.compile_id in skipped and len(row.stack) > 1
    ]
    return {
        row.compile_id: frame
        for row in rows
        for frame, stack in led
        if row.compile_id not in skipped and row.stack[: len(stack)] == stack
    }


def given_up(profile: Profile) -> bool:
    """Whether torch runs frames eager that it was to compile: the compile data tells, or calls that it looked up in its
    cache and for which it has no code."""
    known = profile.data.of(problems) if profile.data else []
    return any(row.given_up for row in known) or profile.of(lookups_in_vain) >= max(
        len(profile.of(StepWindows)), 1
    )


def eager_points(profile: Profile) -> Bools:
    """Launches of kernels outside of compiled code, of what graph breaks leave, and of optimizers; with the copies and
    fills between two of them, where they are few: many are a copy of something that somebody wants."""
    lane = profile.of(host_lane)
    eager = lane.launches & profile.of(launches_kernels) & profile.of(outside)
    moves = place_mask(profile.of(gpu_queue).point[profile.of(work_named, is_on_device)], len(lane)) & ~eager
    others = lane.launches & ~moves
    behind = np.cumsum(others)
    is_eager = np.concatenate(([False], eager[others], [False]))
    between = is_eager[behind] & is_eager[behind + 1] & (np.bincount(behind, moves)[behind] <= _FEW)
    return np.asarray(eager | (moves & between))


def outside(profile: Profile) -> Bools:
    """Points that neither compiled code nor an optimizer has to do with."""
    regions = [call.index for call in profile.of(compiled_calls)]
    regions += [index for index, _ in profile.of(Ownership).backwards]
    rows = np.array(regions, np.int64)
    times = slice_times(profile, rows)
    inside = points_inside(profile, times)[0] | points_inside(profile, profile.of(optimizer_times))[0]
    return np.asarray(~inside)


def _largest_eager(profile: Profile, points: Bools) -> Culprit:
    """The operator that most of these launches are of, with the user's function that made most of them."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = lane.row[points]
    asks = outermost_operator(trace, rows)
    name = np.bincount(trace.name[asks[asks >= 0]]).argmax() if (asks >= 0).any() else -1
    return Culprit("operator", trace.names[name] if name >= 0 else "", *most_called_at(profile, rows))


EAGER_FIXES = (_compiled_eager, _by_inductor, _compiled_frames)
