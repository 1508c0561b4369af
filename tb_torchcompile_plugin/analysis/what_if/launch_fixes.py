"""How the work could reach the GPU: in fewer launches, without waiting for copies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import (
    Bools,
    Change,
    at_once,
    both,
    fused,
    no_longer,
    with_durations,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    Times,
    calls_of,
    graph_times,
    launches_kernels,
    on_tracks,
    outermost_operator,
    points_inside,
    time_inside,
)
from tb_torchcompile_plugin.analysis.what_if.optimizer_fix import fused_optimizer, optimizer_times
from tb_torchcompile_plugin.profile.columns import values_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import breaks, frames, region_calls
from tb_torchcompile_plugin.profile.gpu.launch_calls import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.model.culprits import Culprit, climbed, place_of
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices, mask_of
from tb_torchcompile_plugin.torch_names.operators import is_fusible
from tb_torchcompile_plugin.torch_names.slices import is_cudagraph_recording

_REPLAY_NS = 60_000  # of one CUDA graph: copying its inputs and launching it
_EAGER_NS = 20_000  # of calling the graph that stands for a run of eager operators
_REACH_NS = 1_000_000  # a launch that is further from a break has nothing to do with it
_UNFUSED = 0.4  # of a run of kernels beside the longest, at most: so much is left once they are one
_PINNED_BYTES_NS = 40  # bytes that a copy from pinned memory moves in a ns, at least
_SMALL_BYTES = 1 << 16  # a copy of less is a value that somebody waits for


def _without_blocking_copies(profile: Profile) -> Iterator[Fix]:
    """Copies to or from memory that is not pinned: the call comes back when the GPU is done with it."""
    trace, lane, queue, made = profile.trace, profile.of(host_lane), profile.of(gpu_queue), profile.of(model)
    for way in ("Pageable -> Device", "Device -> Pageable"):
        named = mask_of(trace.names, partial(_goes, way))
        work = np.flatnonzero(named[trace.name[queue.row]])
        bytes_ = values_of(trace, "bytes", queue.row[work])
        work, bytes_ = work[bytes_ > _SMALL_BYTES], bytes_[bytes_ > _SMALL_BYTES]
        if not len(work):
            continue
        points = np.zeros(len(lane), bool)
        points[queue.point[work]] = True
        dur = np.minimum((bytes_ / _PINNED_BYTES_NS).astype(np.int64) + CALL_NS, queue.dur[work])
        behind = np.concatenate(([False], points[:-1])) & lane.synchronises & made.waits.any(axis=1)
        largest = int(np.argmax(queue.dur[work]))
        user = climbed(profile, lane.row[queue.point[work[largest : largest + 1]]]).user
        yield Fix(
            id=f"copies:{way}",
            kind="copies",
            subject=Culprit(
                "memory_copy",
                trace.names[trace.name[queue.row[work[largest]]]],
                *place_of(profile, int(user[0])),
            ),
            change=both(without_waiting(points | behind), with_durations(work, dur)),
            times=len(work) / profile.of(host_lane).steps,
        )


def _goes(way: str, copy: str) -> bool:
    return way in copy


def _cuda_graphs(profile: Profile) -> Iterator[Fix]:
    """Every compiled graph, forward and backward, launched as one: what the host does outside of them stays."""
    lane = profile.of(host_lane)
    calls = profile.of(launch_calls)
    if calls.replay.any():
        return
    graphs = profile.of(graph_times)
    if not graphs:
        return
    inside, first = points_inside(profile, graphs)
    if not inside.any():
        return
    cut = time_inside(profile, graphs)
    many = int(first.sum()) / profile.of(host_lane).steps

    def launched_at_once(replay_ns: int) -> Change:
        return both(without_host_time(cut), at_once(inside & lane.launches, first, replay_ns))

    recordings = _recordings(profile)
    yield Fix(
        id="cuda_graphs",
        kind="graph_capture" if recordings else "cuda_graphs",
        subject=Culprit("launch", "", "", 0),
        change=launched_at_once(_REPLAY_NS),
        times=recordings or many,
        surely=launched_at_once(3 * _REPLAY_NS),
        perhaps=launched_at_once(_REPLAY_NS // 3),
    )


def _recordings(profile: Profile) -> float:
    """How often a step torch prepares to record a CUDA graph, as with inputs that it has not seen."""
    lane = profile.of(host_lane)
    rows = host_slices(profile.trace, is_cudagraph_recording)
    begin = profile.trace.ts[rows]
    inside = (begin >= lane.begin[0]) & (begin < lane.begin[-1])
    return max(int(inside.sum()), int(calls_of(profile, "graph_capture").any())) / profile.of(host_lane).steps


def _closed_breaks(profile: Profile) -> Iterator[Fix]:
    """The graphs of one frame are one: what runs from the last launch of one to the first of the next is part of it."""
    broken = {frame: list(breaks(frame)) for frame in frames(profile.of(region_calls))}
    gaps = [gap for of_frame in broken.values() for gap in of_frame]
    if not gaps:
        return
    frame_of = {
        part.compile_id: frame.compile_id
        for frame, of_frame in broken.items()
        for gap in of_frame
        for part in (gap.call, gap.resumed)
    }
    lane = profile.of(host_lane)
    rows = np.array([gap.call.index for gap in gaps], np.int64)
    begin, end = (np.array(column, np.int64) for column in zip(*((gap.start, gap.end) for gap in gaps)))
    between = on_tracks(profile, rows, *_to_launches(profile, rows, begin, end))
    backward = _between_backwards(profile, frame_of)
    times = {track: _joined(between.get(track), backward.get(track)) for track in {*between, *backward}}
    inside, _ = points_inside(profile, times)
    closed = both(
        without_host_time(time_inside(profile, times)),
        without_waiting(inside & lane.synchronises),
    )
    yield Fix(
        id="graph_breaks",
        kind="graph_breaks",
        subject=Culprit("wrappers", "", "", 0),
        change=both(closed, _as_one_graph(profile, inside)),
        times=len(gaps) / profile.of(host_lane).steps,
        surely=closed,
    )


def _joined(one: Intervals | None, other: Intervals | None) -> Intervals:
    parts = [part for part in (one, other) if part is not None]
    return union(*(np.concatenate(column) for column in zip(*parts)))


def _to_launches(profile: Profile, rows: Int64s, begin: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Each gap from the last launch before it to the first behind it, where its thread made them within reach."""
    lane, track = profile.of(host_lane), profile.trace.track[rows]
    starts, ends = begin.copy(), end.copy()
    for one in np.unique(track).tolist():
        launches = np.flatnonzero(lane.launches & (lane.track == one))
        mine = np.flatnonzero(track == one)
        place = np.searchsorted(lane.begin[launches], begin[mine]) - 1
        behind = np.searchsorted(lane.begin[launches], end[mine])
        before, after = mine[place >= 0], mine[behind < len(launches)]
        starts[before] = np.maximum(lane.end[launches[place[place >= 0]]], begin[before] - _REACH_NS)
        ends[after] = np.minimum(lane.begin[launches[behind[behind < len(launches)]]], end[after] + _REACH_NS)
    return starts, np.maximum(starts, ends)


def _between_backwards(profile: Profile, frame_of: dict[str, str]) -> Times:
    """From one backward graph to the next of the same frame. frame_of: the frame of each compile id that broke."""
    ownership, trace = profile.of(Ownership), profile.trace
    owned = {row: frame_of.get(ownership.name(code) or "") for row, code in ownership.backwards}
    rows = np.array(
        sorted((row for row, frame in owned.items() if frame), key=trace.ts.__getitem__), np.int64
    )
    if len(rows) < 2:
        return {}
    same = [owned[one] == owned[other] for one, other in pairwise(rows.tolist())]
    begin, end = (trace.ts[rows] + trace.dur[rows])[:-1], trace.ts[rows][1:]
    near = (end >= begin) & (end - begin < _REACH_NS) & (np.diff(trace.track[rows]) == 0) & same
    kept = rows[:-1][near]
    return on_tracks(profile, kept, *_to_launches(profile, kept, begin[near], end[near]))


def _compiled_eager(profile: Profile) -> Iterator[Fix]:
    """What runs eager, compiled: one graph for each run of launches, and kernels that only pass over data are one."""
    mine = profile.of(eager_points)
    if not mine.any():
        return
    yield Fix(
        id="eager",
        kind="eager",
        subject=_largest_eager(profile, mine),
        change=_as_one_graph(profile, mine),
        times=int(mine.sum()) / profile.of(host_lane).steps,
        surely=_as_one_graph(profile, mine, _UNFUSED),
    )


def _as_one_graph(profile: Profile, mine: Bools, rest: float = 0.0) -> Change:
    """Each run of these points as a graph: its kernels are fused, and one launch follows the other. rest: share of the
    kernels of a run that is left beside the longest."""
    queue, pieces = profile.of(gpu_queue), profile.of(host_pieces)
    first = mine & ~np.concatenate(([False], mine[:-1]))
    led = np.isin(pieces.point, np.flatnonzero(mine & ~first))
    places, longest = _fusible_runs(profile, mine)
    dur = np.where(longest > 0, longest + (rest * (queue.dur[places] - longest)).astype(np.int64), 0)
    gone = np.zeros(len(mine), bool)
    gone[queue.point[places[longest == 0]]] = True
    return both(
        without_host_time(np.where(led, pieces.ns, 0)),
        at_once(mine & gone & ~first, first, _EAGER_NS),
        no_longer(mine & ~gone & ~first, CALL_NS),
        fused(places, dur),
    )


def _fusible_runs(profile: Profile, mine: Bools) -> tuple[Int64s, Int64s]:
    """Places in the queue of kernels that could be fused, and for the first of each run of them the time of the longest
    (ns); 0 for the others."""
    queue = profile.of(gpu_queue)
    order = np.argsort(queue.stream, kind="stable")
    fusible = (mine[queue.point] & profile.of(_fusible)[queue.row])[order]
    other_stream = np.diff(queue.stream[order], prepend=-1) != 0
    leads = fusible & (other_stream | ~np.concatenate(([False], fusible[:-1])))
    places, run = order[fusible], np.cumsum(leads)[fusible] - 1
    longest = np.zeros(int(leads.sum()), np.int64)
    np.maximum.at(longest, run, queue.dur[places])
    return places, np.where(leads[fusible], longest[run], 0)


def eager_points(profile: Profile) -> Bools:
    """Launches of kernels outside of compiled code, of what graph breaks leave, and of optimizers."""
    trace, lane = profile.trace, profile.of(host_lane)
    regions = [call.index for call in profile.of(region_calls)]
    regions += [index for index, _ in profile.of(Ownership).backwards]
    rows = np.array(regions, np.int64)
    times = on_tracks(profile, rows, trace.ts[rows], trace.ts[rows] + trace.dur[rows])
    inside = points_inside(profile, times)[0] | points_inside(profile, profile.of(optimizer_times))[0]
    return np.asarray(lane.launches & profile.of(launches_kernels) & ~inside)


def _fusible(profile: Profile) -> Bools:
    """Whether a slice is a kernel that inductor would fuse: by row of the trace."""
    trace = profile.trace
    named = mask_of(trace.names, is_fusible)
    return np.asarray(named[trace.name])


def _largest_eager(profile: Profile, points: Bools) -> Culprit:
    """The operator that most of these launches are of, with the user's function that made most of them."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = lane.row[points]
    asks = outermost_operator(trace, rows)
    users = climbed(profile, rows).user
    name = np.bincount(trace.name[asks[asks >= 0]]).argmax() if (asks >= 0).any() else -1
    user = np.bincount(users[users >= 0]).argmax() if (users >= 0).any() else -1
    return Culprit("operator", trace.names[name] if name >= 0 else "", *place_of(profile, int(user)))


LAUNCH_FIXES = (_without_blocking_copies, _cuda_graphs, _closed_breaks, fused_optimizer, _compiled_eager)
