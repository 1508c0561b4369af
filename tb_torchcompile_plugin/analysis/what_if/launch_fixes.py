"""How the work could reach the GPU: in fewer launches, without waiting for copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import (
    CALL_NS,
    Bools,
    Change,
    at_once,
    both,
    with_durations,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    calls_of,
    graph_times,
    launches_kernels,
    on_tracks,
    outermost_operator,
    place_of,
    points_inside,
    step_count,
    time_inside,
)
from tb_torchcompile_plugin.profile.columns import values_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import breaks, frames, region_calls
from tb_torchcompile_plugin.profile.gpu.launch_calls import launch_calls
from tb_torchcompile_plugin.profile.model.culprits import Culprit, climbed
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices
from tb_torchcompile_plugin.torch_names.operators import is_elementwise
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_optimizer_step

_REPLAY_NS = 60_000  # of one CUDA graph: copying its inputs and launching it
_EAGER_NS = 20_000  # of launching what stands for a run of eager operators
_FUSED_NS = 150_000  # of an optimizer's step in a few launches
_FUSED_SHARE, _FUSED_BOUNDS = (
    0.25,
    (0.6, 0.1),
)  # of the time of elementwise kernels that is left once they are one
_PINNED_BYTES_NS = 40  # bytes that a copy from pinned memory moves in a ns, at least
_SMALL_BYTES = 1 << 16  # a copy of less is a value that somebody waits for


def _without_blocking_copies(profile: Profile) -> Iterator[Fix]:
    """Copies to or from memory that is not pinned: the call comes back when the GPU is done with it."""
    trace, lane, queue, made = profile.trace, profile.of(host_lane), profile.of(gpu_queue), profile.of(model)
    for way in ("Pageable -> Device", "Device -> Pageable"):
        named = np.array([way in name for name in trace.names] or [False], bool)
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
        user = climbed(trace, lane.row[queue.point[work[largest : largest + 1]]]).user
        yield Fix(
            id=f"copies:{way}",
            kind="copies",
            subject=Culprit(
                "memory_copy",
                trace.names[trace.name[queue.row[work[largest]]]],
                *place_of(profile, int(user[0])),
            ),
            change=both(without_waiting(points | behind), with_durations(work, dur)),
            times=len(work) / profile.of(step_count),
        )


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
    pieces = profile.of(host_pieces)
    many = int(first.sum()) / profile.of(step_count)

    def launched_at_once(replay_ns: int) -> Change:
        return both(without_host_time(pieces.point, cut), at_once(inside & lane.launches, first, replay_ns))

    captures = calls_of(profile, "graph_capture").any()
    yield Fix(
        id="cuda_graphs",
        kind="graph_capture" if captures else "cuda_graphs",
        subject=Culprit("launch", "", "", 0),
        change=launched_at_once(_REPLAY_NS),
        times=many,
        surely=launched_at_once(3 * _REPLAY_NS),
        perhaps=launched_at_once(_REPLAY_NS // 3),
    )


def _closed_breaks(profile: Profile) -> Iterator[Fix]:
    """What runs between the graphs of one frame is part of one graph."""
    found = [gap for frame in frames(profile.of(region_calls)) for gap in breaks(frame)]
    if not found:
        return
    rows = np.array([gap.call.index for gap in found], np.int64)
    begin, end = (np.array(column, np.int64) for column in zip(*((gap.start, gap.end) for gap in found)))
    times = on_tracks(profile, rows, begin, end)
    inside, _ = points_inside(profile, times)
    pieces, lane = profile.of(host_pieces), profile.of(host_lane)
    yield Fix(
        id="graph_breaks",
        kind="graph_breaks",
        subject=Culprit("wrappers", "", "", 0),
        change=both(
            without_host_time(pieces.point, time_inside(profile, times)),
            without_waiting(inside & lane.synchronises),
        ),
        times=len(found) / profile.of(step_count),
    )


def _fused_optimizer(profile: Profile) -> Iterator[Fix]:
    """An optimizer that launches a few kernels."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = host_slices(trace, is_optimizer_step, (LABEL,))
    times = on_tracks(profile, rows, trace.ts[rows], trace.ts[rows] + trace.dur[rows])
    inside, first = points_inside(profile, times)
    launches = int((inside & lane.launches).sum())
    if not launches or launches < 20 * max(int(first.sum()), 1):
        return
    pieces = profile.of(host_pieces)
    yield Fix(
        id="fused_optimizer",
        kind="fused_optimizer",
        subject=Culprit("optimizer", trace.names[trace.name[rows[0]]], "", 0),
        change=both(
            without_host_time(pieces.point, time_inside(profile, times)),
            at_once(inside & lane.launches, first, _FUSED_NS),
        ),
        times=launches / profile.of(step_count),
    )


def _compiled_eager(profile: Profile) -> Iterator[Fix]:
    """What runs eager, compiled: runs of launches become few, elementwise kernels become one."""
    queue, pieces, mine = profile.of(gpu_queue), profile.of(host_pieces), profile.of(eager_points)
    if not mine.any():
        return
    first = mine & ~np.concatenate(([False], mine[:-1]))
    led = np.isin(pieces.point, np.flatnonzero(mine & ~first))
    fused = np.flatnonzero(mine[queue.point] & profile.of(_elementwise)[queue.row])
    host = both(without_host_time(pieces.point, np.where(led, pieces.ns, 0)), at_once(mine, first, _EAGER_NS))

    def left(share: float) -> Change:
        return both(host, with_durations(fused, (queue.dur[fused] * share).astype(np.int64)))

    yield Fix(
        id="eager",
        kind="eager",
        subject=_largest_eager(profile, mine),
        change=left(_FUSED_SHARE),
        times=int(mine.sum()) / profile.of(step_count),
        surely=left(_FUSED_BOUNDS[0]),
        perhaps=left(_FUSED_BOUNDS[1]),
    )


def eager_points(profile: Profile) -> Bools:
    """Launches of kernels outside of compiled code, of what graph breaks leave, and of optimizers."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = host_slices(trace, is_optimizer_step, (LABEL,))
    regions = [call.index for call in profile.of(region_calls)]
    regions += [index for index, _ in profile.of(Ownership).backwards]
    rows = np.concatenate((rows, np.array(regions, np.int64)))
    times = on_tracks(profile, rows, trace.ts[rows], trace.ts[rows] + trace.dur[rows])
    inside, _ = points_inside(profile, times)
    return np.asarray(lane.launches & profile.of(launches_kernels) & ~inside)


def _elementwise(profile: Profile) -> Bools:
    """Whether a slice is a kernel of ATen's that treats each number apart: by row of the trace."""
    trace = profile.trace
    named = np.array([is_elementwise(name) for name in trace.names] or [False], bool)
    return np.asarray(named[trace.name])


def _largest_eager(profile: Profile, points: Bools) -> Culprit:
    """The operator that most of these launches are of, with the user's function that made most of them."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = lane.row[points]
    asks = outermost_operator(trace, rows)
    users = climbed(trace, rows).user
    name = np.bincount(trace.name[asks[asks >= 0]]).argmax() if (asks >= 0).any() else -1
    user = np.bincount(users[users >= 0]).argmax() if (users >= 0).any() else -1
    return Culprit("operator", trace.names[name] if name >= 0 else "", *place_of(profile, int(user)))


LAUNCH_FIXES = (_without_blocking_copies, _cuda_graphs, _closed_breaks, _fused_optimizer, _compiled_eager)
