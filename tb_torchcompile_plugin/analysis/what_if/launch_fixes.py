"""How the work could reach the GPU: in fewer launches, without waiting for copies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tb_torchcompile_plugin.analysis.cuda_graphs.cuda_graphs import asks_for_graphs
from tb_torchcompile_plugin.analysis.cuda_graphs.functions import graphs
from tb_torchcompile_plugin.analysis.what_if.breaks_fix import closed_breaks
from tb_torchcompile_plugin.analysis.what_if.change import (
    Change,
    at_once,
    both,
    with_durations,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.eager_fixes import EAGER_FIXES
from tb_torchcompile_plugin.analysis.what_if.fix import (
    OF_CHANGING_SIZES,
    Fix,
    FixKind,
    Times,
    graph_times,
    on_tracks,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.analysis.what_if.optimizer_fix import fused_optimizer
from tb_torchcompile_plugin.profile.columns import by_track, host_slices, mask_of, place_mask, values_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union, within
from tb_torchcompile_plugin.profile.model.attribution import Culprit, climbed, most_called_at, place_of
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_cell

_REPLAY_NS = 60_000  # of one CUDA graph: copying its inputs and launching it
_PINNED_BYTES_NS = 40  # bytes that a copy from pinned memory moves in a ns, at least
_CELLS = 8  # one behind the other: of fewer a loop costs little
_NEAR_NS = 2_000_000  # between two cells of a loop, while recorded
_SEQUENCE_NS = 250_000  # of the launches of a whole sequence, one way
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
        points = place_mask(queue.point[work], len(lane))
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
    """Every compiled graph, forward and backward, launched as one: what the host does outside of them stays. Where some
    are, those that are not; those whose sizes change by themselves, as one would be recorded for each."""
    asked, replayed = profile.of(asks_for_graphs), bool(profile.of(launch_calls).replay.any())
    if asked:
        times = profile.of(not_replayed) if replayed else profile.of(graph_times)
        yield from _at_once(profile, "cuda_graphs", "graph_capture", times, replayed)
    elif not replayed:
        yield from _at_once(profile, "cuda_graphs", "cuda_graphs", profile.of(graph_times, False))
        yield from _at_once(profile, OF_CHANGING_SIZES, "cuda_graphs", profile.of(graph_times, True))


def _at_once(profile: Profile, fix_id: str, kind: FixKind, times: Times, anew: bool = False) -> Iterator[Fix]:
    """What runs in these times launched as one. anew: though it was to be, and was recorded again or waited."""
    lane = profile.of(host_lane)
    inside, first = points_inside(profile, times)
    if not inside.any():
        return
    gone = without_host_time(time_inside(profile, times))
    busy = inside & ~lane.launches & anew  # captures, and waiting for the GPU

    def launched_at_once(replay_ns: int) -> Change:
        return both(
            gone,
            without_waiting(busy & lane.synchronises),
            without_calls(busy),
            at_once(inside & lane.launches, first, replay_ns),
        )

    yield Fix(
        id=fix_id,
        kind=kind,
        subject=Culprit("launch", "", "", 0),
        change=launched_at_once(_REPLAY_NS),
        times=int(first.sum()) / lane.steps,
        surely=launched_at_once(3 * _REPLAY_NS),
        perhaps=launched_at_once(_REPLAY_NS // 3),
    )


def not_replayed(profile: Profile) -> Times:
    """When each thread ran graphs that are to be replayed and were not: recorded, or run kernel by kernel."""
    runs, names = profile.of(graph_runs), profile.of(Ownership).names
    asked = set(profile.of(graphs))
    owners = zip(runs.compile_id.tolist(), runs.backward.tolist())
    mine = [code >= 0 and (names[code], "backward" if back else "forward") in asked for code, back in owners]
    rows, whole = runs.row[np.array(mine, bool) & ~runs.replayed], profile.of(graph_times)
    return {track: _widened(one, whole.get(track)) for track, one in slice_times(profile, rows).items()}


def _widened(inner: Intervals, outer: Intervals | None) -> Intervals:
    """With the whole of the outer ones that hold any: behind a recording torch goes on, with metrics of it."""
    if outer is None:
        return inner
    held = np.unique(within(outer, inner.starts))
    held = held[held >= 0]
    starts, ends = np.append(inner.starts, outer.starts[held]), np.append(inner.ends, outer.ends[held])
    return union(starts, ends)


def _whole_sequence(profile: Profile) -> Iterator[Fix]:
    """A recurrent network that gets its whole sequence at once: its kernels, and those of what reads each state, in a
    few launches each way."""
    trace, lane = profile.trace, profile.of(host_lane)
    cells = host_slices(trace, is_cell)
    loops = [loop for _, rows in by_track(trace, cells) for loop in _near_each_other(profile, rows)]
    if not loops:
        return
    first, last = (np.array([loop[end] for loop in loops], np.int64) for end in (0, -1))
    times = on_tracks(profile, first, trace.ts[first], trace.ts[last] + trace.dur[last])
    inside, begins = points_inside(profile, times)

    def in_few(call_ns: int) -> Change:
        return both(
            without_host_time(time_inside(profile, times)),
            at_once(inside & lane.launches, begins, call_ns),
        )

    forward = np.concatenate(loops)
    forward = forward[mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name[forward]]]
    yield Fix(
        id="recurrent_cells",
        kind="recurrent_cells",
        subject=Culprit("operator", "", *most_called_at(profile, forward)),
        change=in_few(_SEQUENCE_NS),
        # The model holds the first of very many steps.
        times=int(points_inside(profile, slice_times(profile, forward))[1].sum()) / lane.steps,
        surely=in_few(_SEQUENCE_NS * 4),
    )


def _near_each_other(profile: Profile, rows: Int64s) -> list[Int64s]:
    """Cells of one thread, run by run: between two of one loop little else happens."""
    trace = profile.trace
    rows = rows[np.argsort(trace.ts[rows], kind="stable")]
    gap = trace.ts[rows][1:] - (trace.ts[rows] + trace.dur[rows])[:-1]
    other_step = np.diff(np.searchsorted(profile.of(StepWindows).starts, trace.ts[rows], "right")) > 0
    runs = np.split(rows, np.flatnonzero((gap > _NEAR_NS) | other_step) + 1)
    return [run for run in runs if len(run) >= _CELLS]


LAUNCH_FIXES = (
    *(_without_blocking_copies, _cuda_graphs, closed_breaks, fused_optimizer, _whole_sequence),
    *EAGER_FIXES,
)
