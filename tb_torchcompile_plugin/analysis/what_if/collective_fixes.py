"""Many small collectives of parameters and gradients, as few large ones."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import (
    Bools,
    Change,
    both,
    shortened,
    with_durations,
    without_host_time,
)
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    are_collectives,
    are_kernels,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.profile.columns import codes_of, host_slices, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import Culprit
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import (
    MERGEABLE,
    PARAM_COMMS,
    element_bytes,
    is_group_call,
    is_of_fsdp,
    operation_of,
)
from tb_torchcompile_plugin.torch_names.operators import reduces_gradients
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_SMALL_BYTES = 4 << 20  # a message of less is mostly the call
_BUCKET_BYTES = 25 << 20  # what DDP puts into one by default
_MANY = 16  # of a step


def _fewer_collectives(profile: Profile) -> Iterator[Fix]:
    """Small ones that move parameters and gradients, as if they were put together to those of a usual size."""
    trace, lane, queue = profile.trace, profile.of(host_lane), profile.of(gpu_queue)
    calls, moved = _movable(profile)
    small = moved < _SMALL_BYTES
    if small.sum() < _MANY * lane.steps:
        return
    left = ceil(moved[small].sum() / lane.steps / _BUCKET_BYTES) * lane.steps / float(small.sum())
    around = _handled(trace, calls[small])
    times = slice_times(profile, np.unique(around))
    points, _ = points_inside(profile, times)
    work = np.flatnonzero(points[queue.point] & profile.of(are_collectives))
    on_host = both(
        without_host_time((time_inside(profile, times) * (1 - left)).astype(np.int64)),
        shortened(points, left),
    )

    def on_gpu(share: float) -> Change:
        return both(on_host, with_durations(work, (queue.dur[work] * share).astype(np.int64)))

    yield Fix(
        id="small_collectives",
        kind="small_collectives",
        subject=Culprit("communication", trace.names[trace.name[calls[small][0]]], "", 0),
        change=on_gpu(left),
        times=float(small.sum()) / lane.steps,
        surely=on_gpu(1.0),
    )


def _movable(profile: Profile) -> tuple[Int64s, Int64s]:
    """The calls of c10d that no operator of a model asks for, and the bytes that each gives or takes; those are left
    out of which torch does not tell."""
    trace, lane = profile.trace, profile.of(host_lane)
    described = host_slices(trace, PARAM_COMMS.__eq__)
    described = described[(trace.ts[described] >= lane.begin[0]) & (trace.ts[described] < lane.begin[-1])]
    call = climb(trace.parent, described, mask_of(trace.names, is_group_call)[trace.name])
    types = [element_bytes(text) or -1 for text in [*(trace.texts.get("dtype") or ()), ""]]
    element = np.array(types)[codes_of(trace, "dtype", described)]
    moved = (
        np.maximum(codes_of(trace, "in_elements", described), codes_of(trace, "out_elements", described))
        * element
    )
    known = (call >= 0) & (moved >= 0) & (element > 0)
    order = np.argsort(trace.ts[call[known]], kind="stable")
    call, moved = call[known][order], moved[known][order]
    free = _is_free(profile, call)
    return call[free], moved[free]


def _is_free(profile: Profile, call: Int64s) -> Bools:
    """Whether it may be put together with others: DDP and FSDP2 do, and a loop of the user's that computes nothing
    between two of them. What an operator of a model asks for comes one after the other."""
    trace = profile.trace
    operator = climb(trace.parent, trace.parent[call], mask_of(trace.cats, OPERATOR.__eq__)[trace.cat])
    handed = climb(trace.parent, call, mask_of(trace.names, _hands_on)[trace.name])
    mergeable = mask_of(trace.names, lambda name: operation_of(name) in MERGEABLE)[trace.name[call]]
    return np.asarray(mergeable & ((handed >= 0) | ((operator < 0) & _in_a_row(profile, call))))


def _in_a_row(profile: Profile, call: Int64s) -> Bools:
    """Whether nothing is computed between a call and the one before or behind it. call: in order of time."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    computing = profile.of(are_kernels) & ~profile.of(are_collectives)
    launches = np.sort(lane.begin[queue.point[computing]])
    before = np.searchsorted(launches, profile.trace.ts[call])
    same = np.concatenate(([False], before[1:] == before[:-1], [False]))
    return np.asarray((same[1:] | same[:-1])[: len(call)])


def _hands_on(name: str) -> bool:
    return is_of_fsdp(name) or reduces_gradients(name)


def _handled(trace: Trace, call: Int64s) -> Int64s:
    """All that FSDP2 does about each: its outermost label around it; the call itself where there is none."""
    labels, around = mask_of(trace.names, is_of_fsdp)[trace.name], call
    label = climb(trace.parent, call, labels)
    while (label >= 0).any():
        around = np.where(label >= 0, label, around)
        label = climb(trace.parent, np.where(label >= 0, trace.parent[label], -1), labels)
    return around


COLLECTIVE_FIXES = (_fewer_collectives,)
