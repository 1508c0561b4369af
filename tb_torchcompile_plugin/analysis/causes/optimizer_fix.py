"""An optimizer that launches a few kernels instead of some for each parameter, and one that goes over those rows of an
embedding that a step looked up instead of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import (
    Change,
    at_once,
    both,
    fused,
    taking,
    waiting,
    with_durations,
    without_host_time,
)
from tb_torchcompile_plugin.analysis.causes.fix import (
    Fix,
    Times,
    on_tracks,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.analysis.runtime.dense_embeddings import (
    DenseEmbedding,
    accumulated,
    dense_embeddings,
)
from tb_torchcompile_plugin.analysis.runtime.op_shapes import launching, tensors_of
from tb_torchcompile_plugin.profile.columns import Floats, host_slices, mask_of, place_mask
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import Culprit
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.operators import (
    SUMS,
    goes_over_gradients,
    is_fused_optimizer,
    is_node,
    takes_lists,
)
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_optimizer_step, is_zeroing

_FUSED_NS = 150_000  # of an optimizer's step in a few launches
# Of SparseAdam: its operators read and write each number of a row so often, after what sorting and adding up needs,
# which a dense gradient does as well. For each embedding it launches some 40 kernels, and waits once for the GPU.
_SPARSE_PASSES = 40
_SPARSE_NS = 400_000
_ALL = 0.999  # of what one launch does
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


def _fused_launches(profile: Profile) -> Int64s:
    """When kernels of fused optimizers are launched."""
    queue, lane = profile.of(gpu_queue), profile.of(host_lane)
    work = mask_of(profile.trace.names, is_fused_optimizer)[profile.trace.name[queue.row]]
    return lane.begin[queue.point[work]]


def optimizer_times(profile: Profile) -> Times:
    """When optimizers worked: their steps, without the forward and backward of a closure that they call, and what it
    does behind these: while the host waits for the GPU before a fused optimizer's kernels, that has not begun."""
    trace, lane = profile.trace, profile.of(host_lane)
    rows = optimizer_steps(trace)
    calls = profile.of(region_calls)
    begin, end = trace.ts[rows].copy(), trace.ts[rows] + trace.dur[rows]
    track = trace.track[rows] if len(rows) else np.zeros(0, np.int64)
    own = profile.of(_fused_launches)
    for place, (first, last) in enumerate(zip(begin.tolist(), end.tolist())):
        inside = (lane.begin >= first) & (lane.begin < last)
        waits = lane.synchronises & (lane.begin < min(own[(own >= first) & (own < last)], default=0))
        inside &= waits | (lane.track != track[place])
        closure = [*lane.end[inside].tolist(), *(call.end for call in calls if first <= call.start < last)]
        begin[place] = max([first, *(moment for moment in closure if moment < last)])
    return on_tracks(profile, rows, begin, end)


def sparse_embedding(profile: Profile) -> Iterator[Fix]:
    """Sparse gradients of embeddings: nothing fills them, and the optimizer goes over the rows that were looked up."""
    sparse = [one for one in profile.of(_whole_rows) if one.pays]
    if not sparse:
        return
    tables = sum(one.of.tables for one in sparse)
    looked_up, rows = (
        sum(each) for each in zip(*((one.of.looked_up, one.of.tables * one.of.shape[0]) for one in sparse))
    )
    name = f"{looked_up:,.0f} of {rows:,.0f} rows ({100 * looked_up / rows:.2g} %)"
    yield Fix(
        id="dense_embedding",
        kind="dense_embedding",
        subject=Culprit("operator", name, "", 0),
        change=_sparse(profile, sparse, 1.0, _SPARSE_NS),
        times=tables,
        surely=_sparse(profile, sparse, 2.0, 2 * _SPARSE_NS),
        perhaps=_sparse(profile, sparse, 0.5, _SPARSE_NS // 2, waits=False),
    )


class _WholeRows(NamedTuple):
    """Work that goes over whole embeddings of one shape. updates, gradients: of each work of the queue the part of its
    time that an optimizer takes for them, and the part that is gone of what else passes over their gradients. sparse:
    the share of those updates that one of the rows takes that were looked up."""

    of: DenseEmbedding
    updates: Floats
    gradients: Floats
    sparse: float

    @property
    def pays(self) -> bool:
        """Also where it takes twice as long as assumed."""
        return self.sparse < 0.5


def _whole_rows(profile: Profile) -> list[_WholeRows]:
    dur, made = profile.of(gpu_queue).dur, []
    for one in profile.of(dense_embeddings):
        updates = _updates(profile, one)
        row_ns = dur[one.fills].sum() / (one.calls * one.shape[0])
        sparse_ns = _SPARSE_PASSES * row_ns * one.looked_up * profile.of(host_lane).steps
        now = float((dur * updates).sum())
        if sparse_ns and now:
            made.append(_WholeRows(one, updates, _gone(profile, one), sparse_ns / now))
    return made


def _updates(profile: Profile, one: DenseEmbedding) -> Floats:
    """Of an optimizer's work by the numbers of the tensors that its operators are given; of lists that are too long to
    be recorded by those of all gradients, where there is one optimizer."""
    work = _work_in(profile, profile.of(optimizer_times))
    parts = _parts(profile, work, one)
    if not parts.any() and len(optimizer_steps(profile.trace)) <= profile.of(host_lane).steps:
        numbers = sum(map(math.prod, profile.of(accumulated)))
        tensors = tensors_of(profile, np.unique(profile.of(launching)[work]))
        lists = [row for row, shapes in tensors.items() if not shapes and _takes_lists(profile, row)]
        of_all = one.numbers * profile.of(accumulated).count(list(one.shape)) / max(numbers, 1)
        parts[np.isin(profile.of(launching), lists)] = of_all * one.share
    return parts


def _takes_lists(profile: Profile, row: int) -> bool:
    return takes_lists(profile.trace.names[profile.trace.name[row]]) if row >= 0 else False


def _gone(profile: Profile, one: DenseEmbedding) -> Floats:
    """What norms, clips, scales, adds up or zeroes whole gradients, without the rows that were looked up."""
    trace = profile.trace
    zeroing = slice_times(profile, host_slices(trace, is_zeroing, (LABEL,)))
    nodes = slice_times(profile, host_slices(trace, is_node))
    between = _called(profile, _work_in(profile, profile.of(_behind_backwards)), goes_over_gradients)
    summing = _called(profile, _work_in(profile, nodes), SUMS.__contains__)
    work = np.unique(np.concatenate((_work_in(profile, zeroing), summing, between)))
    rows = one.tables * one.shape[0]
    return _parts(profile, work, one) * (1 - min(one.looked_up / rows, 1.0))


def _behind_backwards(profile: Profile) -> Times:
    """From the end of a backward to the begin of the optimizer's step behind it."""
    trace, rows = profile.trace, optimizer_steps(profile.trace)
    nodes = host_slices(trace, is_node)
    ends = np.sort(trace.ts[nodes] + trace.dur[nodes])
    before = np.searchsorted(ends, trace.ts[rows], side="right") - 1
    rows, before = rows[before >= 0], before[before >= 0]
    return on_tracks(profile, rows, ends[before], trace.ts[rows])


def _called(profile: Profile, work: Int64s, wanted: Callable[[str], bool]) -> Int64s:
    """What operators of these names launched."""
    rows = profile.of(launching)[work]
    named = mask_of(profile.trace.names, wanted)[profile.trace.name[rows]]
    return np.asarray(work[(rows >= 0) & named])


def _work_in(profile: Profile, times: Times) -> Int64s:
    inside, _ = points_inside(profile, times)
    return np.flatnonzero(inside[profile.of(gpu_queue).point])


def _parts(profile: Profile, work: Int64s, one: DenseEmbedding) -> Floats:
    """Of each work of the queue, where it is one of these, the part that is for these embeddings, by the numbers of all
    tensors that its operator was given."""
    parts, launched = np.zeros(len(profile.of(gpu_queue))), profile.of(launching)
    rows = np.unique(launched[work])
    for row, shapes in tensors_of(profile, rows[rows >= 0]).items():
        mine = shapes.count(list(one.shape)) * one.numbers
        if mine:
            parts[work[launched[work] == row]] = one.share * mine / sum(map(math.prod, shapes))
    return parts


def _sparse(
    profile: Profile, sparse: list[_WholeRows], slower: float, host_ns: int, waits: bool = True
) -> Change:
    """slower: so many times as long as assumed. host_ns: for each embedding."""
    dur = profile.of(gpu_queue).dur
    left = np.ones(len(dur))
    for one in sparse:
        left -= one.updates * (1 - one.sparse * slower) + one.gradients
        left[one.of.fills] = 0
    shorter = with_durations(np.arange(len(dur)), (dur * left.clip(0)).astype(np.int64))
    tables = sum(one.of.tables for one in sparse)
    updates = np.sum([one.updates for one in sparse], axis=0)
    return both(shorter, *_sparse_on_host(profile, updates, int(host_ns * tables), waits))


def _sparse_on_host(profile: Profile, updates: Floats, host_ns: int, waits: bool) -> Iterator[Change]:
    """What launched updates of nothing else is gone, and its operators; the first of each step takes as long as those
    of all embeddings. It waits for the GPU, since the rows that came are counted there."""
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    work = np.flatnonzero(updates)
    points = np.unique(queue.point[work])
    _, places = np.unique(np.searchsorted(lane.marks, points, side="right"), return_index=True)
    first = place_mask(points[places], len(lane))
    alone = place_mask(np.setdiff1d(points, queue.point[updates < _ALL]), len(lane))
    rows = np.unique(profile.of(launching)[work[alone[queue.point[work]]]])
    yield without_host_time(time_inside(profile, slice_times(profile, rows)))
    yield taking(first | alone, np.where(first, host_ns, 0))
    if waits:
        before = place_mask(np.maximum(points[places] - 1, 0), len(lane))
        yield waiting(before, np.unique(queue.stream[work]))
