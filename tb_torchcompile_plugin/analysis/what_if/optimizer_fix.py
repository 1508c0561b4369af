"""An optimizer that launches a few kernels instead of some for each parameter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.what_if.change import Change, at_once, both, fused, without_host_time
from tb_torchcompile_plugin.analysis.what_if.fix import (
    Fix,
    Times,
    on_tracks,
    points_inside,
    time_inside,
)
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.culprits import Culprit
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices, mask_of
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.operators import is_fused_optimizer
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_optimizer_step

_FUSED_NS = 150_000  # of an optimizer's step in a few launches
_PASSES = 1 / 3  # over the same tensors: AdamW's 8 kernels read and write 21 times, its fused one 7


def fused_optimizer(profile: Profile) -> Iterator[Fix]:
    """An optimizer that launches a few kernels."""
    trace, lane = profile.trace, profile.of(host_lane)
    inside, first = points_inside(profile, profile.of(optimizer_times))
    launches = int((inside & lane.launches).sum())
    if not launches or launches < 20 * max(int(first.sum()), 1) or profile.of(_is_fused):
        return
    yield Fix(
        id="fused_optimizer",
        kind="fused_optimizer",
        subject=Culprit("optimizer", trace.names[trace.name[optimizer_steps(trace)[0]]], "", 0),
        change=_in_few(profile, _PASSES),
        times=launches / profile.of(host_lane).steps,
        surely=_in_few(profile, 1.0),
    )


def _is_fused(profile: Profile) -> bool:
    """Whether the optimizer is fused already: each of its launches takes as many tensors as one can."""
    queue, (inside, _) = profile.of(gpu_queue), points_inside(profile, profile.of(optimizer_times))
    fused_ = mask_of(profile.trace.names, is_fused_optimizer)[profile.trace.name[queue.row]]
    return bool(2 * int((fused_ & inside[queue.point]).sum()) > int(inside[queue.point].sum()))


def _in_few(profile: Profile, passes: float) -> Change:
    """One launch each time. A kernel takes as long as the shortest of them, whatever it does, and then for its data."""
    lane, queue, times = profile.of(host_lane), profile.of(gpu_queue), profile.of(optimizer_times)
    inside, first = points_inside(profile, times)
    work = np.flatnonzero(inside[queue.point] & ~first[queue.point])
    of_data = queue.dur[work] - queue.dur[work].min(initial=np.iinfo(np.int64).max)
    return both(
        without_host_time(time_inside(profile, times)),
        at_once(inside & lane.launches, first, _FUSED_NS),
        fused(work, (of_data * passes).astype(np.int64)),
    )


def optimizer_steps(trace: Trace) -> Int64s:
    """Rows of the optimizers' steps."""
    return host_slices(trace, is_optimizer_step, (LABEL,))


def optimizer_times(profile: Profile) -> Times:
    """When optimizers worked: their steps, without the forward and backward of a closure that they call, and what it
    does behind these: where the host waits for the GPU, it is not the optimizer that works yet."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = optimizer_steps(trace)
    calls = profile.of(region_calls)
    begin, end = trace.ts[rows].copy(), trace.ts[rows] + trace.dur[rows]
    track = trace.track[rows] if len(rows) else np.zeros(0, np.int64)
    for place, (first, last) in enumerate(zip(begin.tolist(), end.tolist())):
        inside = (lane.begin >= first) & (lane.begin < last)
        inside &= lane.synchronises | (lane.track != track[place])
        closure = [*lane.end[inside].tolist(), *(call.end for call in calls if first <= call.start < last)]
        begin[place] = max([first, *(moment for moment in closure if moment < last)])
    return on_tracks(profile, rows, begin, end)
