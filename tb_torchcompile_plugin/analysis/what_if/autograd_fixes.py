"""What autograd could do without: checks of every gradient, and going back through one graph again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import (
    Change,
    both,
    with_durations,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.what_if.fix import Fix, points_inside, slice_times, time_inside
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.culprits import Culprit
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices, mask_of
from tb_torchcompile_plugin.torch_names.autograd import NAN_CHECKS, is_node, keeps_stack
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

_CHECKS_LEAST = 8  # of one step: a program may look for a NaN itself, once


def _without_anomaly_mode(profile: Profile) -> Iterator[Fix]:
    """torch.autograd.set_detect_anomaly: each node keeps its stack, and each gradient is looked through for a NaN."""
    checks, lane = profile.of(nan_checks), profile.of(host_lane)
    names = profile.trace.name[checks]
    looks, asks = (
        int(mask_of(profile.trace.names, name.__eq__)[names].sum())
        for name in (NAN_CHECKS[0], NAN_CHECKS[-1])
    )
    if min(looks, asks) < _CHECKS_LEAST * lane.steps:
        return
    stacks = host_slices(profile.trace, keeps_stack, (PYTHON_FUNCTION,))
    yield Fix(
        id="anomaly_mode",
        kind="anomaly_mode",
        subject=Culprit("operator", NAN_CHECKS[0], "", 0),
        change=_without(profile, np.union1d(checks, stacks)),
        times=looks / lane.steps,
    )


def nan_checks(profile: Profile) -> Int64s:
    """Calls with which autograd's engine itself looks for a NaN."""
    trace = profile.trace
    rows = host_slices(trace, NAN_CHECKS.__contains__)
    nodes = mask_of(trace.names, is_node)
    parent = trace.parent[rows]
    return np.asarray(rows[(parent >= 0) & nodes[trace.name[np.maximum(parent, 0)]]], np.int64)


def _backward_once(profile: Profile) -> Iterator[Fix]:
    """One graph that is gone back through several times for each time it ran forward."""
    again, lane = profile.of(repeated_backwards), profile.of(host_lane)
    if not len(again):
        return
    yield Fix(
        id="repeated_backward",
        kind="repeated_backward",
        subject=Culprit("graph", "", "", 0),
        change=_without(profile, again),
        times=len(again) / lane.steps,
    )


def repeated_backwards(profile: Profile) -> Int64s:
    """Slices of the backwards of compiled graphs beyond the first of each forward, in order of time."""
    trace, ownership = profile.trace, profile.of(Ownership)
    forwards: Counter[str] = Counter()
    for call in every(profile.of(region_calls)):
        # Each graph that DDP made of a frame goes back once.
        forwards[call.compile_id] += max(len(call.graphs), 1)
    again: list[int] = []
    for code in {code for _, code in ownership.backwards}:
        rows = sorted((row for row, one in ownership.backwards if one == code), key=trace.ts.__getitem__)
        forward = forwards[ownership.name(code) or ""]
        times, rest = divmod(len(rows), forward) if forward else (0, 0)
        if times > 1 and not rest:
            again += (row for place, row in enumerate(rows) if place % times)
    return np.array(sorted(again), np.int64)


def _without(profile: Profile, rows: Int64s) -> Change:
    """Without these slices and what they launch."""
    queue = profile.of(gpu_queue)
    times = slice_times(profile, rows)
    inside, _ = points_inside(profile, times)
    work = np.flatnonzero(inside[queue.point])
    return both(
        without_host_time(time_inside(profile, times)),
        without_waiting(inside),
        without_calls(inside),
        with_durations(work, np.zeros(len(work), np.int64)),
    )


AUTOGRAD_FIXES = (_without_anomaly_mode, _backward_once)
