"""Graph breaks closed: what dynamo had to cut into several graphs is one, and inductor fuses over the seams."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import (
    Bools,
    Change,
    both,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    Times,
    are_kernels,
    on_tracks,
    points_inside,
    time_inside,
)
from tb_torchcompile_plugin.analysis.what_if.one_graph import as_one_graph
from tb_torchcompile_plugin.profile.columns import mask_of, place_mask
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import (
    RegionCall,
    cut_short,
    every,
    every_break,
    region_calls,
)
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.model.attribution import Culprit
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.operators import is_fusible, is_fusible_in_graphs

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
