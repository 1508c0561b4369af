"""What autograd could do without: checks of every gradient, going back through one graph again and again, computing a
forward for the second time, and adding to gradients that are zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import (
    Bools,
    Change,
    both,
    fused,
    with_durations,
    without_calls,
    without_host_time,
    without_waiting,
)
from tb_torchcompile_plugin.analysis.causes.fix import (
    Fix,
    Times,
    are_collectives,
    are_kernels,
    on_tracks,
    points_inside,
    slice_times,
    time_inside,
)
from tb_torchcompile_plugin.analysis.causes.optimizer_fix import optimizer_times
from tb_torchcompile_plugin.analysis.runtime.kernel_code import share_of_gpu
from tb_torchcompile_plugin.analysis.runtime.recomputed import Recomputed, recomputed
from tb_torchcompile_plugin.generated_code.user_lines import checkpoint_lines
from tb_torchcompile_plugin.profile.columns import called_by, host_slices, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, joined
from tb_torchcompile_plugin.profile.model.attribution import Culprit, most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import PAIRED, is_group_call, operation_of
from tb_torchcompile_plugin.torch_names.operators import (
    ACCUMULATES,
    ADDITION,
    CHECKPOINT_BACKWARD,
    NAN_CHECKS,
    is_node,
    is_plain_node,
    keeps_stack,
    only_forward,
    recomputes,
    reduces_gradients,
)
from tb_torchcompile_plugin.torch_names.slices import LABEL, PYTHON_FUNCTION, is_zeroing

# Steps that go forward and backward several times before the optimizer does: as one batch, and with
# gradients that are reduced once.


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
    return np.asarray(rows[called_by(trace, rows, is_node)], np.int64)


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


def _checkpointed(profile: Profile) -> Iterator[Fix]:
    """Forwards that checkpoints run once more while going back, eager or inside of compiled graphs: kept instead, where
    memory allows."""
    eager, compiled = profile.of(recomputing), profile.of(recomputed)
    times = _joined(eager, _stretch_times(profile, compiled))
    inside, first = points_inside(profile, times)
    if not inside.any():
        return
    heavy = slice_times(profile, np.array([row for one in compiled for row in one.rows], np.int64))
    least, most = _joined(eager, heavy), _joined(eager, _stretch_times(profile, compiled, around=True))
    yield Fix(
        id="recomputed",
        kind="recomputed",
        subject=Culprit("operator", "torch.utils.checkpoint", *_asked_for(profile, compiled)),
        change=_without_times(profile, times),
        times=int(first.sum()) / profile.of(host_lane).steps,
        surely=_without_times(profile, least) if compiled else None,
        perhaps=_without_times(profile, most) if compiled else None,
    )


def _stretch_times(profile: Profile, compiled: list[Recomputed], around: bool = False) -> Times:
    """When compiled backwards computed anew: from the first heavy operator to the last; around: from the heavy one of
    the gradient before to that behind, where cheap kernels may belong to either."""
    moments = [(one.earliest, one.latest) if around else (one.begin, one.end) for one in compiled]
    rows, begins, ends = ([one.rows[0] for one in compiled], *zip(*moments)) if compiled else ([], [], [])
    return on_tracks(profile, *(np.array(column, np.int64) for column in (rows, begins, ends)))


def _joined(one: Times, other: Times) -> Times:
    """The time of both."""
    return {
        track: joined(*(times[track] for times in (one, other) if track in times)) for track in {*one, *other}
    }


def _asked_for(profile: Profile, compiled: list[Recomputed]) -> tuple[str, int]:
    """Where the first checkpoint of the compiled graphs is asked for; "" and 0 where nothing tells."""
    if profile.data is None:
        return "", 0
    names = dict.fromkeys(one.compile_id for one in compiled)
    lines = (frame for name in names for frame in profile.data.of(checkpoint_lines, name))
    frame = next(lines, None)
    return (frame.file, frame.line) if frame else ("", 0)


def recomputing(profile: Profile) -> Times:
    """When checkpoints computed a forward for the second time: the function that does it, where stacks were recorded;
    else what a checkpoint's own node does before the backward inside of it; else operators of a forward inside of a
    node, which computes them first."""
    trace = profile.trace
    functions = host_slices(trace, recomputes, (PYTHON_FUNCTION,))
    if len(functions):
        return slice_times(profile, functions)
    whole = host_slices(trace, CHECKPOINT_BACKWARD.__eq__)
    inner = host_slices(trace, is_node)
    rows, ends = [], []
    for row in whole.tolist():
        begin, end = int(trace.ts[row]), int(trace.ts[row] + trace.dur[row])
        mine = (trace.track[inner] == trace.track[row]) & (trace.ts[inner] > begin) & (trace.ts[inner] < end)
        rows.append(row)
        ends.append(int(trace.ts[inner[mine]].min(initial=end)))
    begins = [int(trace.ts[row]) for row in rows]
    last = profile.of(_forward_inside_of_nodes)
    rows += list(last)
    begins += [int(trace.ts[row]) for row in last]
    ends += list(last.values())
    return on_tracks(profile, *(np.array(column, np.int64) for column in (rows, begins, ends)))


def _forward_inside_of_nodes(profile: Profile) -> dict[int, int]:
    """Slices of backward nodes that begin with a forward, and when that ends, by its last operator."""
    trace = profile.trace
    rows = host_slices(trace, only_forward)
    # what a backward of somebody's own calls is not recorded for going back, and has no sequence number
    rows = rows[trace.sequence[rows] >= 0]
    above = climb(trace.parent, rows, mask_of(trace.names, is_plain_node)[trace.name])
    ends: dict[int, int] = {}
    for node, row in zip(above[above >= 0].tolist(), rows[above >= 0].tolist()):
        ends[node] = max(ends.get(node, 0), int(trace.ts[row] + trace.dur[row]))
    return ends


def _not_zeroed(profile: Profile) -> Iterator[Fix]:
    """Gradients that are set to zero, and then added to: given back instead, a backward puts its own in their place."""
    zeroing = slice_times(profile, host_slices(profile.trace, is_zeroing, (LABEL,)))
    inside, _ = points_inside(profile, zeroing)
    launches = int((inside & profile.of(host_lane).launches).sum())
    if not launches:
        return
    zeroed, added = _without_times(profile, zeroing), _without(profile, profile.of(additions))
    # Of several rounds for one step of the optimizer all but the first add to what is there.
    often = bool(profile.of(rounds))
    yield Fix(
        id="zeroed_gradients",
        kind="zeroed_gradients",
        subject=Culprit("optimizer", "zero_grad", "", 0),
        change=zeroed if often else both(zeroed, added),
        times=launches / profile.of(host_lane).steps,
        surely=zeroed,
    )


def additions(profile: Profile) -> Int64s:
    """Where a gradient is added to one that is there."""
    trace = profile.trace
    rows = host_slices(trace, ADDITION.__eq__)
    return rows[climb(trace.parent, rows, mask_of(trace.names, ACCUMULATES.__eq__)[trace.name]) >= 0]


def _without(profile: Profile, rows: Int64s) -> Change:
    """Without these slices and what they launch."""
    return _without_times(profile, slice_times(profile, rows))


def _without_times(profile: Profile, times: Times) -> Change:
    """Without what the host does in these times, and what that launches."""
    queue = profile.of(gpu_queue)
    inside, _ = points_inside(profile, times)
    work = np.flatnonzero(inside[queue.point])
    return both(
        without_host_time(time_inside(profile, times)),
        without_waiting(inside),
        without_calls(inside),
        with_durations(work, np.zeros(len(work), np.int64)),
    )


AUTOGRAD_FIXES = (_without_anomaly_mode, _backward_once, _checkpointed, _not_zeroed)
