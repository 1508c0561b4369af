"""What would eager code cost if it were compiled: graph breaks, eager operators, frames that torch gave up?"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.training_fixes import optimizer_times
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.profile.columns import mask_at
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.host.eager_roots import lookups_in_vain
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.model.model import Model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.operators import is_fusible, is_fusible_in_graphs
from tb_torchcompile_plugin.torch_names.slices import is_on_device

# Chosen by eye on the external programs of docs/what_if.md.
_REACH_NS = 1_000_000  # a launch that is further from a graph break has nothing to do with it
_FEW_MOVES = 4  # copies and fills between two kernels
_OPERATORS = 0.9  # of launches inside of captured frames: another backend may compile them, too
_UNFUSED = 0.4  # of the kernels of a run in addition to the longest, at most; see docs/what_if.md


def closed_breaks(profile: Profile) -> Iterator[fix.Fix]:
    """Yield one graph for what runs inside of one outermost region, and one for its backwards."""
    broken, count = profile.of(broken_calls)
    if not broken:
        return
    closed, fused = joined_graphs(profile, profile.of(break_gaps).times)
    yield fix.Fix(
        kind="graph_breaks",
        change=fix.in_sequence(closed, fused),
        times=count / profile.of(launch_sequence).steps,
        conservative=closed,
    )


def closed_break(profile: Profile, compile_ids: Collection[str]) -> fix.Change | None:
    """Return what closes the breaks of these compilations alone; None where none of their graphs is followed."""
    gaps = profile.of(break_gaps)
    times = gaps.times[[name in compile_ids for name in gaps.broken]]
    return fix.in_sequence(*joined_graphs(profile, times)) if len(times) else None


def broken_calls(profile: Profile) -> tuple[list[regions.RegionCall], int]:
    """Return the outermost calls in which a graph breaks, and how many breaks are in them."""
    calls, cut = (
        profile.of(regions.region_calls),
        {call.index for call in profile.of(regions.calls_cut_by_breaks)},
    )
    resumed = [sum(1 for _ in regions.all_breaks([call])) for call in calls]
    breaks = [
        count + sum(part.index in cut for part in regions.all_calls([call]))
        for call, count in zip(calls, resumed)
    ]
    return [call for call, count in zip(calls, breaks) if count], sum(breaks)


def joined_graphs(profile: Profile, gaps: Int64s) -> tuple[fix.Change, fix.Change]:
    """Return what takes out the host time of gaps between graphs, and what fuses kernels over the seams."""
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    times, points = _seams(profile, *gaps.T)
    inside, _ = fix.points_inside(profile, times)
    closed = fix.in_sequence(
        fix.without_host_time(fix.time_inside(profile, times)),
        fix.without_waiting(inside & lane.synchronises),
    )
    kernels = profile.of(fix.work_named, is_fusible) | profile.of(fix.work_named, is_fusible_in_graphs)
    at_seam = mask_at(points, len(lane))
    at_seam = mask_at(queue.point[kernels & at_seam[queue.point]], len(lane))
    # Copies to the host go with the break that made them.
    return closed, fix.as_one_graph(profile, inside | at_seam, kernels | ~profile.of(fix.are_kernels))


class BreakGaps(NamedTuple):
    """The times between graphs, or backward graphs, that would be one graph without graph breaks."""

    times: Int64s  # (slice of the thread, begin, end) in rows
    broken: list[str]  # the compile id whose break alone is there; "" where several are


def break_gaps(profile: Profile) -> BreakGaps:
    """Return the gaps of all breaks."""
    return gaps_between(profile, profile.of(broken_calls)[0])


def gaps_between(profile: Profile, calls: list[regions.RegionCall]) -> BreakGaps:
    """Return the gaps between the graphs of each call. The frames that it calls would be part of its graph, too."""
    trace, ownership = profile.trace, profile.of(Ownership)
    cut = {call.compile_id for call in profile.of(regions.calls_cut_by_breaks)}
    gaps, broken, outermost = [], [], {}
    # By the id of the call: the ids of its graphs in order, and which id's break is behind each.
    forwards: dict[str, tuple[list[str], list[str]]] = {}
    for call in calls:
        parts = list(regions.all_calls([call]))
        outermost.update(dict.fromkeys((part.compile_id for part in parts), call.compile_id))
        graphs = sorted(((*graph, part) for part in parts for graph in part.graphs), key=itemgetter(0))
        parted = [_broken_id(part, following, cut) for (*_, part), (*_, following) in pairwise(graphs)]
        forwards[call.compile_id] = [part.compile_id for *_, part in graphs], parted
        for ((_, end, part), (begin, _, following)), name in zip(pairwise(graphs), parted):
            if part is not following and begin >= end:
                gaps.append((part.index, end, begin))
                broken.append(name)
    owners = {row: outermost.get(ownership.names[code]) for row, code in ownership.backwards}
    own_ids = {row: ownership.names[code] for row, code in ownership.backwards}
    backwards = sorted((row for row, owner in owners.items() if owner), key=trace.ts.__getitem__)
    for row, next_row in pairwise(backwards):
        end, begin = int(trace.ts[row] + trace.dur[row]), int(trace.ts[next_row])
        same = owners[row] == owners[next_row] and trace.track[row] == trace.track[next_row]
        if same and end <= begin < end + _REACH_NS:
            gaps.append((row, end, begin))
            # A backward runs the graphs in reverse.
            broken.append(_only_break(*forwards[owners[row] or ""], own_ids[next_row], own_ids[row]))
    return BreakGaps(np.array(gaps, np.int64).reshape(-1, 3), broken)


def _only_break(ids: list[str], broken: list[str], first: str, last: str) -> str:
    """Return the compile id whose breaks alone are between two graphs; "" where several have to be removed."""
    between = set(broken[ids.index(first) : ids.index(last)]) if {first, last} <= set(ids) else set()
    return between.pop() if len(between) == 1 else ""


def _broken_id(call: regions.RegionCall, following: regions.RegionCall, cut: Collection[str]) -> str:
    """Return the compile id whose break is between the graphs of two calls that follow each other."""
    outer = following.outer
    if outer is None or (call.compile_id in cut and not following.resume and outer is not call):
        return call.compile_id
    return outer.compile_id


def _seams(profile: Profile, rows: Int64s, begins: Int64s, ends: Int64s) -> tuple[fix.Times, Int64s]:
    """Widen each gap to the launches around it, where its thread made them within reach; return these points, too."""
    lane, tracks = profile.of(launch_sequence), profile.trace.track[rows]
    widened_begins, widened_ends = begins.copy(), ends.copy()
    points = [np.zeros(0, np.int64)]
    for track in np.unique(tracks).tolist():
        launches = np.flatnonzero(lane.launches & (lane.track == track))
        on_track = np.flatnonzero(tracks == track)
        previous = np.searchsorted(lane.begin[launches], begins[on_track]) - 1
        following = np.searchsorted(lane.begin[launches], ends[on_track])
        before, after = on_track[previous >= 0], on_track[following < len(launches)]
        last, first = launches[previous[previous >= 0]], launches[following[following < len(launches)]]
        widened_begins[before] = np.maximum(lane.end[last], begins[before] - _REACH_NS)
        widened_ends[after] = np.minimum(lane.begin[first], ends[after] + _REACH_NS)
        points += [
            last[widened_begins[before] == lane.end[last]],
            first[widened_ends[after] == lane.begin[first]],
        ]
    times = fix.on_tracks(profile, rows, widened_begins, np.maximum(widened_begins, widened_ends))
    return times, np.concatenate(points)


def _compiled_operators(profile: Profile) -> Iterator[fix.Fix]:
    """Yield eager operators compiled, and what another backend launches operator by operator: a graph for each run.

    Kernels are fused where they only pass over data. Launches that are left (matrix products, convolutions) take the
    host as long as before: of ten programs that were measured both ways none took less than 0.8 times as long for a
    launch once it was compiled, in the median 1.1. At best they take a call each. At worst the host gains nothing:
    calling graphs and checking guards takes as long as the launches that are fused away; see docs/what_if.md.
    """
    lane = profile.of(launch_sequence)
    points_by_kind: dict[fix.FixKind, fix.Bools] = {"eager": profile.of(eager_points)}
    if profile.of(captured_only):
        optimizing, _ = fix.points_inside(profile, profile.of(optimizer_times))
        points = lane.launches & ~profile.of(outside) & ~optimizing
        by_operators = fix.outermost_operator(profile.trace, lane.row[points]) >= 0
        if points.any() and by_operators.mean() >= _OPERATORS:
            points_by_kind["backend"] = points
    fusible = profile.of(fix.work_named, is_fusible) | profile.of(fix.work_named, is_on_device)
    for kind, points in points_by_kind.items():
        if points.any():
            yield fix.Fix(
                kind=kind,
                subject=_main_operator(profile, points),
                change=fix.as_one_graph(
                    profile, points, fusible, call_ns=fix.CALL_OF_GRAPH_NS, as_before=True
                ),
                times=int(points.sum()) / lane.steps,
                conservative=_only_on_gpu(
                    fix.as_one_graph(profile, points, fusible, _UNFUSED, fix.CALL_OF_GRAPH_NS, as_before=True)
                ),
                optimistic=fix.as_one_graph(profile, points, fusible, call_ns=fix.CALL_OF_GRAPH_NS),
            )


def _only_on_gpu(change: fix.Change) -> fix.Change:
    """Return the change without what it takes off the host."""

    def only_on_gpu(model: Model) -> Model:
        changed = change(model)
        return model._replace(dur=changed.dur, gap=changed.gap, latency=changed.latency)

    return only_on_gpu


def captured_only(profile: Profile) -> list[str]:
    """Return the compilations that ran operations, where there is no sign of inductor in any."""
    rows = profile.data.of(compilations) if profile.data else []
    by_inductor = any("inductor" in (row.phases_s or {}) or row.cache for row in rows)
    if by_inductor or regions.marks_graphs(profile.trace):
        return []
    ran = {call.compile_id for call in regions.all_calls(profile.of(regions.region_calls))}
    with_operations = {row.compile_id for row in rows if row.graph_ops}
    return sorted(ran & with_operations & {row.compile_id for row in rows if row.phases_s})


def _compiled_frames(profile: Profile) -> Iterator[fix.Fix]:
    """Yield frames that torch gave up, compiled as a whole with the functions that they call, and without waits."""
    lane = profile.of(launch_sequence)
    points = profile.of(outside) & (lane.launches | lane.synchronises)
    if not points.any():
        return
    change = fix.in_sequence(
        fix.without_waiting(points & lane.synchronises), fix.compiled_whole(profile, points)
    )
    called = profile.of(calls_in_given_up)
    yield fix.Fix(
        kind="frames",
        subject=_main_operator(profile, points & lane.launches),
        change=fix.in_sequence(change, *joined_graphs(profile, gaps_between(profile, called).times))
        if called
        else change,
        times=int(points.sum()) / lane.steps,
        conservative=change if called else None,
    )


def calls_in_given_up(profile: Profile) -> list[regions.RegionCall]:
    """Return each call of a frame that torch cannot resume, made of the regions that it calls.

    Those are the regions that were compiled below it, in a row, until a backward, a step or another region.
    """
    caller, calls = _callers_given_up(profile), profile.of(regions.region_calls)
    backward_rows = np.array([row for row, _ in profile.of(Ownership).backwards], np.int64)
    backwards = np.sort(profile.trace.ts[backward_rows])
    begins = np.array([call.start for call in calls], np.int64)
    part = np.searchsorted(backwards, begins) + np.searchsorted(profile.of(StepWindows).starts, begins)
    runs = groupby(zip(calls, part.tolist()), lambda pair: (caller.get(pair[0].compile_id), pair[1]))
    return [
        replace(rows[0], compile_id=frame, end=rows[-1].end, graphs=[], nested=rows)
        for (frame, _), pairs in runs
        if frame and len(rows := [call for call, _ in pairs]) > 1
    ]


def _callers_given_up(profile: Profile) -> dict[str, str]:
    """Return by compile id the frame that torch cannot resume and that called it.

    The stack of the compilation begins with all that led to that frame; the frame itself is not in all stacks.
    """
    data = profile.data
    skipped = {row.compile_id for row in data.of(problems) if row.kind == "skipped"} if data else set()
    rows = data.of(compilations) if data and skipped else []
    frames = [row for row in rows if row.compile_id in skipped and len(row.stack) > 1]
    return {
        row.compile_id: frame.compile_id
        for row in rows
        for frame in frames
        if row.compile_id not in skipped and row.stack[: len(frame.stack) - 1] == frame.stack[:-1]
    }


def given_up(profile: Profile) -> bool:
    """Whether torch runs frames eager, by the compile data or by calls that find no code in its cache."""
    rows = profile.data.of(problems) if profile.data else []
    steps = max(len(profile.of(StepWindows)), 1)
    return any(row.given_up for row in rows) or profile.of(lookups_in_vain) >= steps


def eager_points(profile: Profile) -> fix.Bools:
    """Return the launches of kernels outside of compiled code, what graph breaks leave, and optimizers.

    With the copies and fills between two of them where they are few: many are a copy that the program wants.
    """
    lane = profile.of(launch_sequence)
    eager = lane.launches & profile.of(fix.launches_kernels) & profile.of(outside)
    moves = mask_at(profile.of(gpu_queue).point[profile.of(fix.work_named, is_on_device)], len(lane)) & ~eager
    others = lane.launches & ~moves
    behind = np.cumsum(others)
    is_eager = np.concatenate(([False], eager[others], [False]))
    between = is_eager[behind] & is_eager[behind + 1] & (np.bincount(behind, moves)[behind] <= _FEW_MOVES)
    return np.asarray(eager | (moves & between))


def outside(profile: Profile) -> fix.Bools:
    """Return the points outside of compiled code and of optimizers."""
    rows = [call.index for call in profile.of(regions.compiled_calls)]
    rows += [row for row, _ in profile.of(Ownership).backwards]
    compiled, _ = fix.points_inside(profile, fix.slice_times(profile, np.array(rows, np.int64)))
    optimizing, _ = fix.points_inside(profile, profile.of(optimizer_times))
    return np.asarray(~(compiled | optimizing))


def _main_operator(profile: Profile, points: fix.Bools) -> fix.Subject:
    """Return the operator that made most of these launches, with the user's function that made most of them.

    Where no operator made any it is the call that launched.
    """
    trace, rows = profile.trace, profile.of(launch_sequence).row[points]
    operators = fix.outermost_operator(trace, rows)
    names = trace.name[operators[operators >= 0] if (operators >= 0).any() else rows[rows >= 0]]
    name = trace.names[np.bincount(names).argmax()] if len(names) else ""
    return name, *most_called_at(profile, rows)


EAGER_FIXES = (
    fix.FixMaker(_compiled_operators),
    fix.FixMaker(_compiled_frames, lambda profile: bool(profile.of(given_up))),
)
