"""Steps that go forward and backward several times before the optimizer does: as one batch, and with gradients that
are reduced once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.launch_config import share_of_gpu
from tb_torchcompile_plugin.analysis.what_if.change import (
    Bools,
    Change,
    both,
    fused,
    with_durations,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    are_collectives,
    are_kernels,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.analysis.what_if.optimizer_fix import optimizer_times
from tb_torchcompile_plugin.profile.columns import host_slices, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import Culprit, most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import PAIRED, is_group_call, operation_of
from tb_torchcompile_plugin.torch_names.operators import reduces_gradients

_BATCHED = 4  # rounds of a step, from which on a larger batch is worth a word
_ALIKE = 0.1  # by such a share of their launches rounds may differ


def rounds(profile: Profile) -> list[Int64s]:
    """Of each step where its rounds of a forward and a backward begin, and where the last one ends, as points.

    [] where steps have one round, or an optimizer works between two of them, or they do not launch as much. The first
    one begins no earlier than if it launched what the second one does; it may launch less: it adds to no gradients.
    """
    lane = profile.of(host_lane)
    backward = profile.of(_of_backward)
    optimizing, _ = points_inside(profile, profile.of(optimizer_times))
    steps = [
        _edges(lane.launches, backward, begin, end)
        for begin, end in zip(lane.marks[:-1].tolist(), lane.marks[1:].tolist())
    ]
    if not steps or len({len(edges) for edges in steps}) > 1 or len(steps[0]) < 3:
        return []
    return [] if any(optimizing[edges[0] : edges[-1]].any() for edges in steps) else steps


def _of_backward(profile: Profile) -> Bools:
    """The launches of backward passes."""
    lane = profile.of(host_lane)
    known = np.flatnonzero(lane.launches & (lane.row >= 0))
    backward = np.zeros(len(lane), bool)
    backward[known] = profile.of(Ownership).is_backward(lane.row[known].astype(np.int64))
    return backward


def _edges(launches: Bools, backward: Bools, begin: int, end: int) -> Int64s:
    """The rounds of one step, one that is not like the others ends the step's; fewer than three edges for none."""
    places = begin + np.flatnonzero(launches[begin:end])
    ends = np.flatnonzero(backward[places] & ~np.append(backward[places][1:], False)) + 1
    if len(ends) < 2:
        return np.zeros(0, np.int64)
    many = np.diff(ends)
    if np.ptp(many) > _ALIKE * many.max() or 2 * ends[0] < many[0]:
        return np.zeros(0, np.int64)
    return np.concatenate((places[[max(ends[0] - many[0], 0)]], places[ends - 1] + 1))


def _one_batch(profile: Profile) -> Iterator[Fix]:
    """The rounds of a step as one: its kernels do the work of all, those that do not fill the GPU in the same time."""
    steps, lane, queue = profile.of(rounds), profile.of(host_lane), profile.of(gpu_queue)
    if not steps or len(steps[0]) - 1 < _BATCHED or profile.of(_is_stage):
        return
    again, kept = np.zeros(len(lane), bool), np.zeros(len(lane), bool)
    for edges in steps:
        kept[edges[0] : edges[1]] = True
        again[edges[1] : edges[-1]] = True
    work = np.flatnonzero(kept[queue.point] & profile.of(are_kernels) & ~profile.of(are_collectives))
    filled = share_of_gpu(profile.trace, queue.row[work])
    many = len(steps[0]) - 1

    def batched(share: np.ndarray[tuple[int], np.dtype[np.float64]] | float) -> Change:
        dur = (queue.dur[work] * np.maximum(1.0, many * share)).astype(np.int64)
        return both(_gone(profile, again), with_durations(work, dur))

    yield Fix(
        id="batch",
        kind="batch",
        subject=_called_at(profile, kept),
        change=batched(filled),
        times=many,
        surely=batched(1.0),
        perhaps=batched(0.0),
    )


def _is_stage(profile: Profile) -> bool:
    """Whether a stage of a pipeline runs the rounds: several are what keeps the other stages busy."""
    return (
        len(host_slices(profile.trace, lambda name: is_group_call(name) and operation_of(name) in PAIRED)) > 0
    )


def _called_at(profile: Profile, points: Bools) -> Culprit:
    """The user's line that most of these points are called at."""
    lane = profile.of(host_lane)
    return Culprit("graph", "", *most_called_at(profile, lane.row[points & (lane.row >= 0)]))


def _gone(profile: Profile, points: Bools) -> Change:
    """Without these points, what they launch and the time on the way to them."""
    pieces, queue = profile.of(host_pieces), profile.of(gpu_queue)
    work = np.flatnonzero(points[queue.point])
    return both(
        without_host_time(np.where(points[pieces.point], pieces.ns, 0)),
        without_waiting(points),
        without_calls(points),
        fused(work, np.zeros(len(work), np.int64)),
    )


def _reduced_once(profile: Profile) -> Iterator[Fix]:
    """Gradients that are reduced over the ranks in each round: in the last one is enough."""
    steps, lane, queue = profile.of(rounds), profile.of(host_lane), profile.of(gpu_queue)
    early = np.zeros(len(lane), bool)
    for edges in steps:
        early[edges[0] : edges[-2]] = True
    work = np.flatnonzero(early[queue.point] & profile.of(are_collectives))
    call = _reducing(profile, lane.row[queue.point[work]].astype(np.int64))
    work, call = work[call >= 0], np.unique(call[call >= 0])
    if not len(work):
        return
    times = slice_times(profile, call)
    points = points_inside(profile, times)[0] & early
    yield Fix(
        id="reduced_once",
        kind="reduced_once",
        subject=Culprit("communication", profile.trace.names[profile.trace.name[call[0]]], "", 0),
        change=both(
            without_host_time(time_inside(profile, times)),
            without_calls(points),
            with_durations(work, np.zeros(len(work), np.int64)),
        ),
        times=len(steps[0]) - 1,
    )


def _reducing(profile: Profile, rows: Int64s) -> Int64s:
    """The call of c10d around each launch that reduces a gradient, -1 for others."""
    trace = profile.trace
    call = climb(trace.parent, rows, mask_of(trace.names, is_group_call)[trace.name])
    around = climb(trace.parent, rows, mask_of(trace.names, reduces_gradients)[trace.name])
    return np.where(around >= 0, call, -1)


ROUNDS_FIXES = (_one_batch, _reduced_once)
