"""What could autograd do without: micro-batches, checks, repeated backwards, recomputed forwards, zeroed gradients?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import (
    Bools,
    Change,
    fused,
    in_sequence,
    with_call_time,
    with_durations,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.causes.fix import (
    Fix,
    Times,
    are_kernels,
    enclosing,
    is_communication,
    merged_times,
    on_tracks,
    points_inside,
    slice_times,
    time_inside,
    without_host_work,
    work_named,
)
from tb_torchcompile_plugin.analysis.causes.optimizer_fix import optimizer_times
from tb_torchcompile_plugin.analysis.runtime.kernel_code import share_of_gpu
from tb_torchcompile_plugin.analysis.runtime.recomputed import Recomputed, recomputed
from tb_torchcompile_plugin.generated_code.user_lines import checkpoint_lines
from tb_torchcompile_plugin.profile.columns import called_by, host_slices
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.collectives import PAIRED, is_group_call, operation_of
from tb_torchcompile_plugin.torch_names.slices import LABEL, PYTHON_FUNCTION, is_zeroing

_BATCHED = 4  # micro-batches of a step, from which on a larger batch is worth a word
_ALIKE = 0.1  # micro-batches may differ by this share of their launches
_MIN_CHECKS = 8  # for NaNs in one step: a program may look for a NaN itself, once


def micro_batches(profile: Profile) -> list[Int64s]:
    """Return for each step the points at which its micro-batches begin, and where the last one ends.

    A micro-batch is a forward and a backward. [] where steps have only one, where an optimizer works between two, or
    where they do not launch as much. The first one may launch less, as it adds to no gradients: it begins no earlier
    than if it launched as much as the second.
    """
    lane = profile.of(host_lane)
    launches = np.flatnonzero(lane.launches & (lane.row >= 0))
    backward = np.zeros(len(lane), bool)
    backward[launches] = profile.of(Ownership).is_backward(lane.row[launches].astype(np.int64))
    optimizing, _ = points_inside(profile, profile.of(optimizer_times))
    steps = [_edges(lane.launches, backward, begin, end) for begin, end in pairwise(lane.marks.tolist())]
    if not steps or len({len(edges) for edges in steps}) > 1 or len(steps[0]) < 3:
        return []
    return [] if any(optimizing[edges[0] : edges[-1]].any() for edges in steps) else steps


def _edges(launches: Bools, backward: Bools, begin: int, end: int) -> Int64s:
    """Return the edges of the micro-batches of one step; an empty array where they are not alike."""
    points = begin + np.flatnonzero(launches[begin:end])
    ends = np.flatnonzero(backward[points] & ~np.append(backward[points][1:], False)) + 1
    if len(ends) < 2:
        return np.zeros(0, np.int64)
    counts = np.diff(ends)
    if np.ptp(counts) > _ALIKE * counts.max() or 2 * ends[0] < counts[0]:
        return np.zeros(0, np.int64)
    return np.concatenate((points[[max(ends[0] - counts[0], 0)]], points[ends - 1] + 1))


def _one_batch(profile: Profile) -> Iterator[Fix]:
    """Yield the micro-batches of a step as one: those of its kernels that do not fill the GPU take no longer."""
    steps, lane, queue = profile.of(micro_batches), profile.of(host_lane), profile.of(gpu_queue)
    count = len(steps[0]) - 1 if steps else 0
    calls = host_slices(profile.trace, lambda name: is_group_call(name) and operation_of(name) in PAIRED)
    if count < _BATCHED or len(calls):
        return  # a stage of a pipeline needs several micro-batches, which keep the other stages busy
    first, others = np.zeros((2, len(lane)), bool)
    for edges in steps:
        first[edges[0] : edges[1]] = True
        others[edges[1] : edges[-1]] = True
    work = np.flatnonzero(
        first[queue.point] & profile.of(are_kernels) & ~profile.of(work_named, is_communication)
    )
    pieces, dropped = profile.of(host_pieces), np.flatnonzero(others[queue.point])
    gone = in_sequence(
        without_host_time(np.where(others[pieces.point], pieces.ns, 0)),
        without_waiting(others),
        with_call_time(others, 0),
        fused(dropped, 0),
    )
    change, conservative, optimistic = (
        in_sequence(
            gone,
            with_durations(work, (queue.dur[work] * np.maximum(1.0, count * filled)).astype(np.int64)),
        )
        for filled in (share_of_gpu(profile.trace, queue.row[work]), 1.0, 0.0)
    )
    yield Fix(
        kind="batch",
        subject=("", *most_called_at(profile, lane.row[first & (lane.row >= 0)])),
        change=change,
        times=count,
        conservative=conservative,
        optimistic=optimistic,
    )


def _reduced_once(profile: Profile) -> Iterator[Fix]:
    """Yield gradients that are reduced over the ranks only in the last micro-batch."""
    steps, lane, queue = profile.of(micro_batches), profile.of(host_lane), profile.of(gpu_queue)
    early = np.zeros(len(lane), bool)
    for edges in steps:
        early[edges[0] : edges[-2]] = True
    work = np.flatnonzero(early[queue.point] & profile.of(work_named, is_communication))
    rows = lane.row[queue.point[work]].astype(np.int64)
    call = enclosing(profile.trace, rows, is_group_call)
    reducing = (enclosing(profile.trace, rows, operators.reduces_gradients) >= 0) & (call >= 0)
    work, call = work[reducing], np.unique(call[reducing])
    if not len(work):
        return
    times = slice_times(profile, call)
    yield Fix(
        kind="reduced_once",
        subject=(profile.trace.names[profile.trace.name[call[0]]], "", 0),
        change=in_sequence(
            without_host_time(time_inside(profile, times)),
            with_call_time(points_inside(profile, times)[0] & early, 0),
            with_durations(work, 0),
        ),
        times=len(steps[0]) - 1,
    )


def _without_anomaly_mode(profile: Profile) -> Iterator[Fix]:
    """Yield torch.autograd.set_detect_anomaly off: each node keeps its stack, each gradient is searched for a NaN."""
    trace, steps = profile.trace, profile.of(host_lane).steps
    checks = host_slices(trace, operators.NAN_CHECKS.__contains__)
    checks = checks[called_by(trace, checks, operators.is_node)]
    names = [trace.names[name] for name in trace.name[checks]]
    compares, reads = names.count(operators.NAN_CHECKS[0]), names.count(operators.NAN_CHECKS[-1])
    if min(compares, reads) < _MIN_CHECKS * steps:
        return
    stacks = host_slices(trace, operators.keeps_stack, (PYTHON_FUNCTION,))
    yield Fix(
        kind="anomaly_mode",
        subject=(operators.NAN_CHECKS[0], "", 0),
        change=_without(profile, slice_times(profile, np.union1d(checks, stacks))),
        times=compares / steps,
    )


def _backward_once(profile: Profile) -> Iterator[Fix]:
    """Yield one backward of each compiled graph for each time that it ran forward."""
    trace, ownership = profile.trace, profile.of(Ownership)
    forwards: Counter[str] = Counter()
    for call in every(profile.of(region_calls)):
        # Each graph that DDP made of a frame has a backward.
        forwards[call.compile_id] += max(len(call.graphs), 1)
    repeated: list[int] = []
    for code, pairs in grouped(ownership.backwards, lambda pair: pair[1]).items():
        rows = sorted((row for row, _ in pairs), key=trace.ts.__getitem__)
        forward = forwards[ownership.name(code) or ""]
        times, rest = divmod(len(rows), forward) if forward else (0, 0)
        if times > 1 and not rest:
            repeated += (row for index, row in enumerate(rows) if index % times)
    if repeated:
        yield Fix(
            kind="repeated_backward",
            change=_without(profile, slice_times(profile, np.array(sorted(repeated), np.int64))),
            times=len(repeated) / profile.of(host_lane).steps,
        )


def _checkpointed(profile: Profile) -> Iterator[Fix]:
    """Yield forwards kept in memory that checkpoints compute again in the backward, eager or compiled."""
    eager, compiled = profile.of(recomputing), profile.of(recomputed)
    times = merged_times(eager, _compiled_times(profile, compiled))
    inside, first = points_inside(profile, times)
    if not inside.any():
        return
    heavy = slice_times(profile, np.array([row for part in compiled for row in part.rows], np.int64))
    least, most = (
        merged_times(eager, heavy),
        merged_times(eager, _compiled_times(profile, compiled, widest=True)),
    )
    yield Fix(
        kind="recomputed",
        subject=("torch.utils.checkpoint", *_checkpoint_line(profile, compiled)),
        change=_without(profile, times),
        times=int(first.sum()) / profile.of(host_lane).steps,
        conservative=_without(profile, least) if compiled else None,
        optimistic=_without(profile, most) if compiled else None,
    )


def _compiled_times(profile: Profile, parts: list[Recomputed], widest: bool = False) -> Times:
    """Return when compiled backwards recomputed: from the first heavy operator to the last.

    At most from the heavy one of the gradient before to the one after: cheap kernels in between may belong to either.
    """
    rows = [part.rows[0] for part in parts]
    begins = [part.earliest if widest else part.begin for part in parts]
    return on_tracks(profile, rows, begins, [part.latest if widest else part.end for part in parts])


def _checkpoint_line(profile: Profile, compiled: list[Recomputed]) -> tuple[str, int]:
    """Return where the first checkpoint of the compiled graphs is called; "" and 0 where unknown."""
    names = dict.fromkeys(part.compile_id for part in compiled) if profile.data else {}
    for name in names:
        for frame in profile.data.of(checkpoint_lines, name) if profile.data else ():
            return frame.file, frame.line
    return "", 0


def recomputing(profile: Profile) -> Times:
    """Return when checkpoints computed a forward again.

    The function that does it, where stacks were recorded. Otherwise what a checkpoint's own node does before the
    backward inside it, and operators of a forward with which a node begins.
    """
    trace = profile.trace
    functions = host_slices(trace, operators.recomputes, (PYTHON_FUNCTION,))
    if len(functions):
        return slice_times(profile, functions)
    nodes = host_slices(trace, operators.is_node)
    ends: dict[int, int] = {}
    for row in host_slices(trace, operators.CHECKPOINT_BACKWARD.__eq__).tolist():
        begin, end = int(trace.ts[row]), int(trace.ts[row] + trace.dur[row])
        begins = trace.ts[nodes[trace.track[nodes] == trace.track[row]]]
        ends[row] = int(begins[(begins > begin) & (begins < end)].min(initial=end))
    forwards = profile.of(_forwards_in_nodes)
    rows = [*ends, *forwards]
    return on_tracks(
        profile, rows, [int(trace.ts[row]) for row in rows], [*ends.values(), *forwards.values()]
    )


def _forwards_in_nodes(profile: Profile) -> dict[int, int]:
    """Return the backward nodes that begin with a forward, and when its last operator ends."""
    trace = profile.trace
    rows = host_slices(trace, operators.only_forward)
    # Operators that a user's own backward calls were not recorded for autograd, and have no sequence number.
    rows = rows[trace.sequence[rows] >= 0]
    nodes = enclosing(trace, rows, operators.is_plain_node)
    ends: dict[int, int] = {}
    for node, row in zip(nodes[nodes >= 0].tolist(), rows[nodes >= 0].tolist()):
        ends[node] = max(ends.get(node, 0), int(trace.ts[row] + trace.dur[row]))
    return ends


def _not_zeroed(profile: Profile) -> Iterator[Fix]:
    """Yield gradients that are freed instead of set to zero and then added to."""
    trace, lane = profile.trace, profile.of(host_lane)
    zeroing = slice_times(profile, host_slices(trace, is_zeroing, (LABEL,)))
    launches = int((points_inside(profile, zeroing)[0] & lane.launches).sum())
    if not launches:
        return
    additions = host_slices(trace, operators.ADDITION.__eq__)
    additions = additions[enclosing(trace, additions, operators.ACCUMULATES.__eq__) >= 0]
    zeroed, added = _without(profile, zeroing), _without(profile, slice_times(profile, additions))
    yield Fix(
        kind="zeroed_gradients",
        subject=("zero_grad", "", 0),
        # All micro-batches but the first have to add to the gradients.
        change=zeroed if profile.of(micro_batches) else in_sequence(zeroed, added),
        times=launches / lane.steps,
        conservative=zeroed,
    )


def _without(profile: Profile, times: Times) -> Change:
    """Take out what the host does in these times, and what it launches."""
    inside, _ = points_inside(profile, times)
    work = np.flatnonzero(inside[profile.of(gpu_queue).point])
    return in_sequence(without_host_work(profile, times), with_durations(work, 0))


AUTOGRAD_FIXES = _without_anomaly_mode, _backward_once, _checkpointed, _not_zeroed, _one_batch, _reduced_once
