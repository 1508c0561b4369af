"""Possible fixes: what they change in the model of the step, and how to select the affected points, time and GPU work.

A change takes a model of the step and returns the changed model.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import changing_sizes
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, mask_at, mask_of, sums, union, within
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, compiled_calls, region_calls
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.model.model import CALL_NS, Model, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor, outermost_ancestor
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_fusible
from tb_torchcompile_plugin.torch_names.slices import KERNEL, OPERATOR

Bools = npt.NDArray[np.bool_]
Change = Callable[[Model], Model]

# Host time to call the graph that replaces eager operators; see docs/concepts/predictions.md.
CALL_OF_GRAPH_NS = 20_000

Subject: TypeAlias = tuple[str, str, int]  # name, file, line


@dataclass(frozen=True, eq=False)
class Fix:
    """One possible fix."""

    times: float  # per step
    change: Change
    conservative: Change | None = None  # removes less; None if the change is as certain as the recording
    optimistic: Change | None = None  # removes more
    _: KW_ONLY
    subject: Subject = ("", "", 0)
    kind: str = ""  # of its cause; set by the registry
    id: str = ""  # its kind by default


Times = dict[int, Intervals]  # by track


def without_host_time(ns: Int64s) -> Change:
    """Take this much off each host segment."""
    # Keep only the affected segments, because there are many changes.
    indices = np.flatnonzero(ns)
    lost = ns[indices]
    return lambda model: model._replace(
        host=_with_values(model.host, indices, np.maximum(model.host[indices] - lost, 0))
    )


def without_waiting(points: Bools) -> Change:
    """Let these calls return at once."""
    return lambda model: model._replace(
        waits=model.waits & ~points[:, None],
        target=np.where(points, -1, model.target),
        own=np.where(points, np.minimum(model.own, CALL_NS), model.own),
    )


def with_call_time(points: Bools, ns: Int64s | int) -> Change:
    """Let these calls take this long."""
    return lambda model: model._replace(own=np.where(points, ns, model.own))


def with_durations(work: Int64s, dur: Int64s | int) -> Change:
    """Let this work of the queue take this long."""
    return lambda model: model._replace(dur=_with_values(model.dur, work, dur))


def fused(work: Int64s, dur: Int64s | int) -> Change:
    """Let this work take this long; if that is shorter, merge it into the work before it."""

    def change(model: Model) -> Model:
        merged = work[dur < model.dur[work]]
        return model._replace(
            dur=_with_values(model.dur, work, dur),
            gap=_with_values(model.gap, merged, np.minimum(model.gap[merged], 0)),
            latency=_with_values(model.latency, merged, 0),
        )

    return change


def _with_values(column: npt.NDArray[Any], index: Any, values: Int64s | int) -> npt.NDArray[Any]:
    changed: npt.NDArray[Any] = column.copy()
    changed[index] = values
    return changed


def without_calls(ns: Int64s, waits: Bools, calls: Bools) -> Change:
    """Take this much off each host segment, do not wait in these calls, and let these take no time."""
    return in_sequence(without_host_time(ns), without_waiting(waits), with_call_time(calls, 0))


def in_sequence(*changes: Change) -> Change:
    """Apply changes one after the other."""
    return lambda model: reduce(lambda changed, change: change(changed), changes, model)


def apply_all(model: Model, changes: Sequence[Change]) -> Model:
    """Return the model with all of these changes; time that two of them remove is removed once.

    Each change is applied to the recorded model. So their order does not matter, and duplicate or nested changes add
    nothing.
    """
    columns: dict[str, Any] = model._asdict()
    for other in [change(model) for change in changes]:
        for name, column in other._asdict().items():
            recorded, least = getattr(model, name), columns[name]
            if column is recorded:  # most changes leave most columns
                continue
            # The smallest changed value where any change touches it, though that may exceed the recorded one.
            differs = column != recorded
            first = differs & (least == recorded)
            columns[name] = np.where(differs, np.where(first, column, np.minimum(least, column)), least)
    return Model(**columns)


def graph_times(profile: Profile, changing: bool | None = None) -> Times:
    """Return when each thread ran compiled graphs: all, those with changing sizes, or those with fixed sizes."""
    dynamic = profile.of(changing_graphs)
    runs = [run[1:] for run in profile.of(_graph_runs) if changing is None or changing == (run[0] in dynamic)]
    return on_tracks(profile, *np.array(runs, np.int64).reshape(-1, 3).T)


def changing_graphs(profile: Profile) -> dict[str, list[str]]:
    """Return the compiled graphs that ran with changing sizes, and their symbols: {"0/0": ["s77"]}."""
    symbols_by_graph = profile.data.of(changing_sizes) if profile.data else {}
    ran = {compile_id for compile_id, *_ in profile.of(_graph_runs)}
    return {compile_id: symbols for compile_id, symbols in symbols_by_graph.items() if compile_id in ran}


def _graph_runs(profile: Profile) -> list[tuple[str, int, int, int]]:
    """Return (compile id, row of the thread, begin, end) of graphs; a region is one unless it calls others."""
    trace, ownership = profile.trace, profile.of(Ownership)
    runs = []
    for call in all_calls(profile.of(region_calls)):
        times = call.graphs if call.nested else call.graphs and [(call.start, call.end)]
        runs += [(call.compile_id, call.index, *interval) for interval in times]
    for row, code in ownership.backwards:
        begin = int(trace.ts[row])
        runs.append((ownership.names[code], row, begin, begin + int(trace.dur[row])))
    return runs


def compiled_times(profile: Profile) -> Times:
    """Return when each thread ran compiled code: regions with operations, and graphs of backwards."""
    rows = [call.index for call in profile.of(compiled_calls)]
    rows += [row for row, _ in profile.of(Ownership).backwards]
    return slice_times(profile, np.array(rows, np.int64))


def slice_times(profile: Profile, rows: Int64s) -> Times:
    """Return when each thread ran these slices."""
    begin = profile.trace.ts[rows]
    return on_tracks(profile, rows, begin, begin + profile.trace.dur[rows])


def on_tracks(profile: Profile, rows: npt.ArrayLike, begins: npt.ArrayLike, ends: npt.ArrayLike) -> Times:
    """Return the union of these intervals for each thread; `rows` are slices of the threads."""
    slices, begin, end = (np.asarray(column, np.int64) for column in (rows, begins, ends))
    tracks = profile.trace.track[slices]
    return {int(track): union(begin[tracks == track], end[tracks == track]) for track in np.unique(tracks)}


def points_inside(profile: Profile, times: Times) -> tuple[Bools, Bools]:
    """Return whether each point is inside one of these times of its thread, and is the first launch there."""
    lane = profile.of(launch_sequence)
    interval = np.full(len(lane), -1)
    for track, intervals in times.items():
        points = np.flatnonzero(lane.track == track)
        index = within(intervals, lane.begin[points])
        interval[points] = np.where(index >= 0, index + (track << 32), -1)
    inside = interval >= 0
    launches = np.flatnonzero(inside & lane.launches)
    _, earliest = np.unique(interval[launches], return_index=True)
    return inside, mask_at(launches[earliest], len(lane))


def time_inside(profile: Profile, times: Times) -> Int64s:
    """Return the part of each host segment inside these times of the thread that ran it."""
    lane, pieces = profile.of(launch_sequence), profile.of(host_segments)
    tracks = np.where(pieces.row >= 0, profile.trace.track[pieces.row], lane.track[pieces.point])
    ns = np.zeros(len(pieces.point), np.int64)
    for track, intervals in times.items():
        segments = np.flatnonzero(tracks == track)
        segments = segments[within(intervals, pieces.begin[segments]) >= 0]
        ns[segments] = pieces.ns[segments]
    return ns


def without_host_work(profile: Profile, times: Times, kept: Bools | None = None) -> Change:
    """Remove host work in these times, except the calls that are kept."""
    inside, _ = points_inside(profile, times)
    return without_calls(time_inside(profile, times), inside, inside if kept is None else inside & ~kept)


def as_one_call(profile: Profile, times: Times, ns: int) -> Change:
    """Replace host work in each of these times with one call, which takes this long and launches all GPU work."""
    inside, first = points_inside(profile, times)
    launches = inside & profile.of(launch_sequence).launches
    gone = without_host_time(time_inside(profile, times))
    return in_sequence(gone, with_call_time(launches, np.where(first, ns, 0)))


def without_work(profile: Profile, times: Times, needed: Bools | None = None) -> Change:
    """Remove host work in these times, and the GPU work that it launches, except for needed work."""
    inside, _ = points_inside(profile, times)
    queue = profile.of(gpu_queue)
    work = inside[queue.point] if needed is None else inside[queue.point] & ~needed
    kept = None if needed is None else mask_at(queue.point[inside[queue.point] & needed], len(inside))
    return in_sequence(without_host_work(profile, times, kept), with_durations(np.flatnonzero(work), 0))


def enclosing(trace: Trace, rows: Int64s, matches: Callable[[str], bool]) -> Int64s:
    """Return the innermost slice at or around each of these whose name matches; -1 for none."""
    return first_ancestor(trace.parent, rows, mask_of(trace.names, matches)[trace.name])


def longest_call(profile: Profile, points: Bools) -> str:
    """Return the name of the longest of these calls."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    longest = np.where(points, lane.end - lane.begin, -1).argmax()
    return str(trace.names[trace.name[lane.row[longest]]])


def are_kernels(profile: Profile) -> Bools:
    """Return which work of the queue is a kernel, not a copy or fill."""
    trace = profile.trace
    return np.asarray(mask_of(trace.cats, KERNEL.__eq__)[trace.cat[profile.of(gpu_queue).row]])


def work_named(profile: Profile, matches: Callable[[str], bool]) -> Bools:
    """Return which work of the queue has a name that matches."""
    trace = profile.trace
    return np.asarray(mask_of(trace.names, matches)[trace.name[profile.of(gpu_queue).row]])


def communicating(profile: Profile) -> Bools:
    """Return which work of the queue exchanges data between ranks."""
    return work_named(profile, lambda kernel: category_of(kernel, KERNEL) == "communication")


def launches_kernels(profile: Profile) -> Bools:
    """Return which points launch kernels: these stay if only waiting is removed."""
    return mask_at(profile.of(gpu_queue).point[profile.of(are_kernels)], len(profile.of(launch_sequence)))


def outermost_operator(trace: Trace, rows: Int64s) -> Int64s:
    """Return the outermost operator around each slice, inside compiled code or a Python function; -1 for none."""
    operator = mask_of(trace.cats, OPERATOR.__eq__)
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))
    return outermost_ancestor(trace.parent, rows, lambda at: operator[trace.cat[at]] & aten[trace.name[at]])


def compiled_whole(profile: Profile, points: Bools) -> Change:
    """Turn each run of these points into one graph, including its copies and fills."""
    return as_one_graph(profile, points, profile.of(work_named, is_fusible) | ~profile.of(are_kernels))


def as_one_graph(
    profile: Profile,
    points: Bools,
    fusible: Bools,
    unfused: float = 0.0,
    is_called: bool = True,
    as_before: bool = False,
) -> Change:
    """Turn each run of these points into one graph, as inductor would: fuse kernels, launch the rest back to back.

    `fusible`: which work of the queue can be fused with its neighbors. `unfused`: the share of the kernels of a run
    that remains in addition to the longest. `is_called`: False if it is part of a graph that runs anyway. `as_before`:
    remaining launches take as much host time as now, not only one call.
    """
    queue, pieces = profile.of(gpu_queue), profile.of(host_segments)
    if is_called:
        points = _worth_a_call(profile, points)
    first = points & ~np.concatenate(([False], points[:-1]))
    work, longest = _fusible_runs(profile, points[queue.point] & fusible)
    dur = np.where(longest > 0, longest + (unfused * (queue.dur[work] - longest)).astype(np.int64), 0)
    fused_away = mask_at(queue.point[work[longest == 0]], len(points))
    called = first & is_called
    quicker = points & ~first & (fused_away | (not as_before))
    before_quicker = np.isin(pieces.point, np.flatnonzero(quicker))
    return in_sequence(
        without_host_time(np.where(before_quicker, np.minimum(pieces.ns, thresholds.USUAL_CALL_NS), 0)),
        with_call_time((points & fused_away & ~first) | called, np.where(called, CALL_OF_GRAPH_NS, 0)),
        lambda model: model._replace(
            own=np.where(quicker & ~fused_away, np.minimum(model.own, CALL_NS), model.own)
        ),
        fused(work, dur),
    )


def _worth_a_call(profile: Profile, points: Bools) -> Bools:
    """Exclude runs that take no more host time than a call of their graph."""
    pieces = profile.of(host_segments)
    begins = points & ~np.concatenate(([False], points[:-1]))
    leading = np.where(begins, 0, sums(pieces.point, pieces.ns, len(points)))
    run = np.cumsum(begins)  # 0 before the first
    run_ns = np.bincount(run, points * (leading + profile.of(model).own))
    return np.asarray(points & (run_ns[run] > CALL_OF_GRAPH_NS))


def _fusible_runs(profile: Profile, fusible: Bools) -> tuple[Int64s, Int64s]:
    """Return the fusible work of the queue, and for the first of each run the longest time (ns); 0 for the others."""
    queue = profile.of(gpu_queue)
    order = np.argsort(queue.stream, kind="stable")
    in_run = fusible[order]
    other_stream = np.diff(queue.stream[order], prepend=-1) != 0
    leads = in_run & (other_stream | ~np.concatenate(([False], in_run[:-1])))
    work, run = order[in_run], np.cumsum(leads)[in_run] - 1
    longest = np.zeros(int(leads.sum()), np.int64)
    np.maximum.at(longest, run, queue.dur[work])
    return work, np.where(leads[in_run], longest[run], 0)
