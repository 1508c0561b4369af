"""How the work could reach the GPU: in fewer launches, without waiting for copies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.breaks_fix import closed_breaks
from tb_torchcompile_plugin.analysis.what_if.change import (
    Change,
    at_once,
    both,
    with_durations,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.eager_fixes import EAGER_FIXES
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    calls_of,
    graph_times,
    points_inside,
    time_inside,
)
from tb_torchcompile_plugin.analysis.what_if.optimizer_fix import fused_optimizer
from tb_torchcompile_plugin.profile.columns import values_of
from tb_torchcompile_plugin.profile.gpu.launch_calls import launch_calls
from tb_torchcompile_plugin.profile.model.culprits import Culprit, climbed, place_of
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices, mask_of
from tb_torchcompile_plugin.torch_names.cuda_graphs import is_preparation

_REPLAY_NS = 60_000  # of one CUDA graph: copying its inputs and launching it
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
    rows = host_slices(profile.trace, is_preparation)
    begin = profile.trace.ts[rows]
    inside = (begin >= lane.begin[0]) & (begin < lane.begin[-1])
    return max(int(inside.sum()), int(calls_of(profile, "graph_capture").any())) / profile.of(host_lane).steps


LAUNCH_FIXES = (_without_blocking_copies, _cuda_graphs, closed_breaks, fused_optimizer, *EAGER_FIXES)
