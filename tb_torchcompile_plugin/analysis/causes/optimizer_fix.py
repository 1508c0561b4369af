"""What would an optimizer cost in a few launches, and over only those rows of an embedding that a step looked up?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import (
    Change,
    fused,
    in_sequence,
    waiting_for,
    with_call_time,
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
    work_named,
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
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_optimizer_step, is_zeroing

_FUSED_NS = 150_000  # host time of an optimizer step in a few launches; see docs/what_if.md
_MANY_LAUNCHES = 20  # of one optimizer step: with fewer there is little to gain
# AdamW's 8 kernels read and write each tensor 21 times, its fused kernel 7 times.
_FUSED_PASSES = 1 / 3
# SparseAdam reads and writes each number of a row this often, not counting the sorting and adding that a dense gradient
# needs as well. For each embedding it launches some 40 kernels, and waits once for the GPU.
_SPARSE_PASSES = 40
# Host time for each embedding, an estimate: 220 µs of Python and dispatch (see docs/what_if.md), the rest launches.
_SPARSE_NS = 400_000
_ALL = 0.999  # of what one launch does


def fused_optimizer(profile: Profile) -> Iterator[Fix]:
    """Yield an optimizer that launches a few kernels instead of some for each parameter."""
    trace, lane, queue = profile.trace, profile.of(host_lane), profile.of(gpu_queue)
    inside, first = points_inside(profile, profile.of(optimizer_times))
    launches = int((inside & lane.launches).sum())
    if not launches or launches < _MANY_LAUNCHES * max(int(first.sum()), 1):
        return
    is_fused = work_named(profile, operators.is_fused_optimizer) & inside[queue.point]
    if 2 * int(is_fused.sum()) > int(inside[queue.point].sum()):
        return
    yield Fix(
        kind="fused_optimizer",
        subject=(trace.names[trace.name[optimizer_steps(trace)[0]]], "", 0),
        change=_in_few_launches(profile, _FUSED_PASSES),
        times=launches / lane.steps,
        conservative=_in_few_launches(profile, 1.0),
    )


def _in_few_launches(profile: Profile, passes: float) -> Change:
    """Make each optimizer step one launch: each kernel takes as long as the shortest one, and then for its data."""
    lane, queue, times = profile.of(host_lane), profile.of(gpu_queue), profile.of(optimizer_times)
    inside, first = points_inside(profile, times)
    work = np.flatnonzero(inside[queue.point] & ~first[queue.point])
    data_ns = queue.dur[work] - queue.dur[work].min(initial=np.iinfo(np.int64).max)
    return in_sequence(
        without_host_time(time_inside(profile, times)),
        with_call_time(inside & lane.launches, np.where(first, _FUSED_NS, 0)),
        fused(work, (data_ns * passes).astype(np.int64)),
    )


def optimizer_steps(trace: Trace) -> Int64s:
    """Return the rows of the optimizers' steps."""
    return host_slices(trace, is_optimizer_step, (LABEL,))


def optimizer_times(profile: Profile) -> Times:
    """Return when optimizers worked: their steps, from the end of the closure that they call.

    While the host waits for the GPU before the kernels of a fused optimizer, its work has not begun.
    """
    trace, lane, queue = profile.trace, profile.of(host_lane), profile.of(gpu_queue)
    rows = optimizer_steps(trace)
    calls = profile.of(region_calls)
    begin, end = trace.ts[rows].copy(), trace.ts[rows] + trace.dur[rows]
    tracks = trace.track[rows]
    launched = lane.begin[queue.point[work_named(profile, operators.is_fused_optimizer)]]
    for index, (first, last) in enumerate(zip(begin.tolist(), end.tolist())):
        inside = (lane.begin >= first) & (lane.begin < last)
        own_launches = launched[(launched >= first) & (launched < last)]
        waits = lane.synchronises & (lane.begin < min(own_launches, default=0))
        inside &= waits | (lane.track != tracks[index])
        closure = [*lane.end[inside].tolist(), *(call.end for call in calls if first <= call.start < last)]
        begin[index] = max([first, *(moment for moment in closure if moment < last)])
    return on_tracks(profile, rows, begin, end)


class _DenseUpdate(NamedTuple):
    """Work that goes over whole embeddings of one shape."""

    of: DenseEmbedding
    updates: Floats  # of each work of the queue, the share of its time in which an optimizer updates them
    gradients: Floats  # of each work of the queue, the share that sparse gradients would save elsewhere
    sparse: float  # time of updating only the rows that were looked up, as a share of the time of `updates`


def sparse_embedding(profile: Profile) -> Iterator[Fix]:
    """Yield sparse gradients of embeddings: nothing fills them, and only rows that were looked up are updated."""
    dur, rows = profile.of(gpu_queue).dur, []
    for embedding in profile.of(dense_embeddings):
        updates = _optimizer_shares(profile, embedding)
        row_ns = dur[embedding.fills].sum() / (embedding.calls * embedding.shape[0])
        sparse_ns = _SPARSE_PASSES * row_ns * embedding.looked_up * profile.of(host_lane).steps
        dense_ns = float((dur * updates).sum())
        # Below a half it is faster even where it takes twice as long as assumed.
        if sparse_ns and dense_ns and sparse_ns / dense_ns < 0.5:
            saved = _gradient_shares(profile, embedding)
            rows.append(_DenseUpdate(embedding, updates, saved, sparse_ns / dense_ns))
    if not rows:
        return
    looked_up = sum(row.of.looked_up for row in rows)
    total = sum(row.of.tables * row.of.shape[0] for row in rows)
    name = f"{looked_up:,.0f} of {total:,.0f} rows ({100 * looked_up / total:.2g} %)"
    yield Fix(
        kind="dense_embedding",
        subject=(name, "", 0),
        change=_sparse(profile, rows, 1.0, _SPARSE_NS),
        times=sum(row.of.tables for row in rows),
        conservative=_sparse(profile, rows, 2.0, 2 * _SPARSE_NS),
        optimistic=_sparse(profile, rows, 0.5, _SPARSE_NS // 2, waits=False),
    )


def _optimizer_shares(profile: Profile, embedding: DenseEmbedding) -> Floats:
    """Return the share of an optimizer's work for these embeddings, by the numbers of its operators' tensors.

    Lists that are too long to be recorded are taken to hold all gradients, where there is one optimizer.
    """
    trace, launched = profile.trace, profile.of(launching)
    work = _work_in(profile, profile.of(optimizer_times))
    shares = _shares(profile, work, embedding)
    if not shares.any() and len(optimizer_steps(trace)) <= profile.of(host_lane).steps:
        numbers = sum(map(math.prod, profile.of(accumulated)))
        tensors = tensors_of(profile, np.unique(launched[work]))
        lists = [
            row
            for row, shapes in tensors.items()
            if not shapes and row >= 0 and operators.takes_lists(trace.names[trace.name[row]])
        ]
        of_all = embedding.numbers * profile.of(accumulated).count(list(embedding.shape)) / max(numbers, 1)
        shares[np.isin(launched, lists)] = of_all * embedding.share
    return shares


def _gradient_shares(profile: Profile, embedding: DenseEmbedding) -> Floats:
    """Return the share of passes over whole gradients (norms, clips, sums, zeroing) for rows not looked up."""
    trace = profile.trace
    zeroing = slice_times(profile, host_slices(trace, is_zeroing, (LABEL,)))
    nodes = slice_times(profile, host_slices(trace, operators.is_node))
    after_backwards = _work_in(profile, profile.of(_after_backwards))
    between = _launched_by(profile, after_backwards, operators.goes_over_gradients)
    summing = _launched_by(profile, _work_in(profile, nodes), operators.SUMS.__contains__)
    work = np.unique(np.concatenate((_work_in(profile, zeroing), summing, between)))
    rows = embedding.tables * embedding.shape[0]
    return _shares(profile, work, embedding) * (1 - min(embedding.looked_up / rows, 1.0))


def _after_backwards(profile: Profile) -> Times:
    """Return the times from the end of a backward to the begin of the optimizer step after it."""
    trace, rows = profile.trace, optimizer_steps(profile.trace)
    nodes = host_slices(trace, operators.is_node)
    ends = np.sort(trace.ts[nodes] + trace.dur[nodes])
    before = np.searchsorted(ends, trace.ts[rows], side="right") - 1
    rows, before = rows[before >= 0], before[before >= 0]
    return on_tracks(profile, rows, ends[before], trace.ts[rows])


def _launched_by(profile: Profile, work: Int64s, matches: Callable[[str], bool]) -> Int64s:
    """Return the work that operators with matching names launched."""
    rows = profile.of(launching)[work]
    named = mask_of(profile.trace.names, matches)[profile.trace.name[rows]]
    return np.asarray(work[(rows >= 0) & named])


def _work_in(profile: Profile, times: Times) -> Int64s:
    inside, _ = points_inside(profile, times)
    return np.flatnonzero(inside[profile.of(gpu_queue).point])


def _shares(profile: Profile, work: Int64s, embedding: DenseEmbedding) -> Floats:
    """Return for each work of the queue the share for these embeddings, by the numbers of its operator's tensors."""
    shares, launched = np.zeros(len(profile.of(gpu_queue))), profile.of(launching)
    rows = np.unique(launched[work])
    for row, shapes in tensors_of(profile, rows[rows >= 0]).items():
        numbers = shapes.count(list(embedding.shape)) * embedding.numbers
        if numbers:
            shares[work[launched[work] == row]] = embedding.share * numbers / sum(map(math.prod, shapes))
    return shares


def _sparse(
    profile: Profile, rows: list[_DenseUpdate], slower: float, host_ns: int, waits: bool = True
) -> Change:
    """Make the updates sparse: `slower` times as long as assumed, with `host_ns` for each embedding."""
    dur = profile.of(gpu_queue).dur
    left = np.ones(len(dur))
    for row in rows:
        left -= row.updates * (1 - row.sparse * slower) + row.gradients
        left[row.of.fills] = 0
    shorter = with_durations(np.arange(len(dur)), (dur * left.clip(0)).astype(np.int64))
    host_ns = int(host_ns * sum(row.of.tables for row in rows))
    updates = np.sum([row.updates for row in rows], axis=0)
    return in_sequence(shorter, *_sparse_on_host(profile, updates, host_ns, waits))


def _sparse_on_host(profile: Profile, updates: Floats, host_ns: int, waits: bool) -> Iterator[Change]:
    """Take out the launches of updates of nothing else, and their operators; the first of each step takes `host_ns`.

    It waits for the GPU, because the rows that were looked up are counted there.
    """
    lane, queue = profile.of(host_lane), profile.of(gpu_queue)
    work = np.flatnonzero(updates)
    points = np.unique(queue.point[work])
    _, indices = np.unique(np.searchsorted(lane.marks, points, side="right"), return_index=True)
    first = place_mask(points[indices], len(lane))
    alone = place_mask(np.setdiff1d(points, queue.point[updates < _ALL]), len(lane))
    rows = np.unique(profile.of(launching)[work[alone[queue.point[work]]]])
    yield without_host_time(time_inside(profile, slice_times(profile, rows)))
    yield with_call_time(first | alone, np.where(first, host_ns, 0))
    if waits:
        before = place_mask(np.maximum(points[indices] - 1, 0), len(lane))
        yield waiting_for(before, np.unique(queue.stream[work]))
