"""What could the host do without: time of its own, waits, blocking copies, and launching kernels one by one?"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.eager_fixes import EAGER_FIXES, closed_breaks, outside
from tb_torchcompile_plugin.analysis.causes.training_fixes import fused_optimizer
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import requested_graphs
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, joined, within
from tb_torchcompile_plugin.profile.model.attribution import (
    Attribution,
    ancestor_causes,
    culprits,
    location_of,
    most_called_at,
)
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import HostSegments, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_cell, without_direction
from tb_torchcompile_plugin.torch_names.python_frames import is_backward_call, is_torch_function
from tb_torchcompile_plugin.torch_names.slices import call_kind, is_free, is_optimizer_step

# Chosen by eye on the external programs of docs/what_if.md.
_LOOP = 4  # values per step, each read after the last
_FEW_LAUNCHES = 8  # between two of them: with more the loop is a program of its own
_FREED_OFTEN = 2  # calls that allocate for each that frees: with more of them freeing is not the reason
_PINNED_BYTES_NS = 40  # bytes that a copy from pinned memory moves in a ns, at least
_SMALL_BYTES = 1 << 16  # a smaller copy is a value that the host waits for
_CELLS = 8  # in a row: a loop of fewer costs little
_NEAR_NS = 2_000_000  # between two cells of a loop, while profiled

# From docs/what_if.md, with their bounds.
_REPLAY_NS = 60_000  # host time of one CUDA graph: copying its inputs and launching it
_SEQUENCE_NS = 250_000  # host time of the launches of a whole sequence, one way

# Causes that can go as a whole, wherever they occur: one fix each.
_WHOLE: tuple[fix.FixKind, ...] = (
    "garbage",
    "data_loading",
    "compile",
    "guards",
    "allocation",
    "module_load",
    "graph_capture",
)
# Causes that get a fix for each name and place.
_BY_NAME: tuple[fix.FixKind, ...] = ("operator", "library", "nothing")


def _without_causes(profile: Profile) -> Iterator[fix.Fix]:
    """Yield the host time of each cause taken out."""
    blamed = profile.of(culprits)
    whole: dict[fix.FixKind, list[int]] = {kind: [] for kind in _WHOLE}
    by_name: dict[tuple[fix.FixKind, str], list[int]] = defaultdict(list)
    by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
    for code, culprit in enumerate(blamed.culprits):
        # A step that does not compile tunes nothing either.
        cause = "compile" if culprit.cause == "autotuning" else culprit.cause
        of_torch = cause == "library" and is_torch_function(culprit.name)
        if cause in ("python", "library") and culprit.file and not of_torch:
            by_line[culprit.file, culprit.line].append(code)
        elif cause in whole:
            whole[cause].append(code)
        elif cause in _BY_NAME and not is_backward_call(culprit.name):
            name = without_direction(culprit.name)  # an operator and its backward have the same cause
            line = f":{culprit.file}:{culprit.line}" if name == culprit.name else ""
            by_name[cause, f"{cause}:{name or 'nothing recorded'}{line}"].append(code)
    groups: list[tuple[fix.FixKind, str, list[int]]] = [
        *((kind, kind, codes) for kind, codes in whole.items()),
        *((kind, fix_id, codes) for (kind, fix_id), codes in by_name.items()),
        *(("python", f"python:{file}:{line}", codes) for (file, line), codes in sorted(by_line.items())),
    ]
    counts = np.bincount(blamed.code, minlength=len(blamed.culprits))
    pieces = np.split(columns.order_of(blamed.code), np.cumsum(counts)[:-1])  # of each culprit
    # Calls that take long are points, too.
    trace, lane = profile.trace, profile.of(launch_sequence)
    kinds = np.array([call_kind(name) for name in trace.names], np.str_)
    is_call = (lane.row >= 0) & ~lane.launches & ~lane.synchronises
    for kind, fix_id, codes in groups:
        selected = np.sort(np.concatenate([np.zeros(0, np.int64), *(pieces[code] for code in codes)]))
        calls = is_call & (kinds[trace.name[lane.row]] == kind)
        yield from _without_host_time(profile, kind, fix_id, selected, calls)


def _without_host_time(
    profile: Profile, kind: fix.FixKind, fix_id: str, selected: Int64s, calls: fix.Bools
) -> Iterator[fix.Fix]:
    """Yield the selected pieces without their host time: all of it, or the part beyond the usual of a call.

    calls: the points that are calls of this kind.
    """
    pieces, blamed, lane = profile.of(host_segments), profile.of(culprits), profile.of(launch_sequence)
    ns, times = _excess(pieces.take(selected), kind)
    if not times and not calls.any():
        return
    if kind == "allocation":
        subject = _allocations(profile, np.union1d(pieces.row[selected], lane.row[calls]))
    elif times:
        subject = _largest(blamed.culprits, np.bincount(blamed.code[selected], ns))
    else:
        subject = fix.longest_call(profile, calls), "", 0
    lost = np.zeros(len(pieces.point), np.int64)
    lost[selected] = ns
    change = fix.without_host_time(lost)
    if calls.any():
        change = fix.in_sequence(change, fix.with_call_time(calls, 0))
    long_calls = np.unique(blamed.call[selected[ns > 0]])
    whole = _without_long_calls(profile, long_calls) if kind == "library" else None
    yield fix.Fix(
        id=fix_id,
        kind=kind,
        subject=subject,
        change=fix.in_sequence(change, whole) if whole else change,
        times=(times + int((calls & (lane.end > lane.begin)).sum())) / lane.steps,
        conservative=change if whole else None,
    )


def _excess(pieces: HostSegments, kind: fix.FixKind) -> tuple[Int64s, int]:
    """Return what each piece has beyond the usual of its slice, and how many slices have any."""
    row, ns = pieces.row, pieces.ns
    _, slice_ = np.unique(np.where(row < 0, -1 - np.arange(len(row)), row), return_inverse=True)
    total = np.bincount(slice_, ns)
    usual = thresholds.USUAL_CALL_NS if kind in _BY_NAME else 0
    share = np.maximum(total - usual, 0) / np.maximum(total, 1)
    return (ns * share[slice_]).astype(np.int64), int((total > usual).sum())


def _allocations(profile: Profile, calls: Int64s) -> fix.Subject:
    """Return the calls (rows) that allocate; with those that free where they are about as many.

    Then memory is allocated because it was freed, and the line is theirs.
    """
    names, name = profile.trace.names, profile.trace.name
    frees = columns.mask_of(names, is_free)[name[calls]]
    freeing, allocating = calls[frees], calls[~frees]
    groups = [freeing, allocating] if _FREED_OFTEN * len(freeing) >= len(allocating) else [allocating]
    called = [names[np.bincount(name[rows]).argmax()] for rows in groups if len(rows)]
    return " and ".join(called), *most_called_at(profile, groups[0])


def _largest(attributions: list[Attribution], ns: npt.NDArray[np.float64] | Int64s) -> fix.Subject:
    """Return the largest one, with the names of all, and the first line of the user's that one of them has."""
    largest = [attributions[code] for code in np.argsort(-ns) if ns[code] > 0]
    located = next((culprit for culprit in largest if culprit.file), largest[0])
    names = {culprit.name for culprit in largest}
    pair = len({without_direction(name) for name in names}) == 1 < len(names)
    name = f"{without_direction(largest[0].name)}_forward and _backward" if pair else largest[0].name
    return name, located.file, located.line


def _without_long_calls(profile: Profile, rows: Int64s) -> fix.Change | None:
    """Take out all that happens in long slices that launch no kernel, which the step does not need; None without."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    rows = rows[(rows >= 0) & (trace.dur[rows] > 2 * thresholds.USUAL_CALL_NS)]
    computing = np.flatnonzero(profile.of(fix.launches_kernels))
    for track, on_track in columns.by_track(trace, rows):
        launched = np.sort(lane.begin[computing[lane.track[computing] == track]])
        window = trace.ts[on_track], trace.ts[on_track] + trace.dur[on_track]
        needed = np.diff(np.searchsorted(launched, window), axis=0)[0] > 0
        rows = rows[~np.isin(rows, on_track[needed])]
    times = fix.slice_times(profile, rows)
    return fix.without_host_work(profile, times) if times else None


def _without_waits(profile: Profile) -> Iterator[fix.Fix]:
    """Yield values that the host waits for, by operator and the user's function, taken out with the operator."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    waits = lane.synchronises & profile.of(model).waits.any(axis=1)
    operators = fix.outermost_operator(trace, np.where(lane.row >= 0, lane.row, -1))
    callers = np.where(lane.row >= 0, trace.parent[lane.row], -1)
    asked_by = ancestor_causes(profile, np.where(operators >= 0, operators, callers))
    for name, user in sorted({*zip(asked_by.name[waits].tolist(), asked_by.user[waits].tolist())}):
        points = waits & (asked_by.name == name) & (asked_by.user == user)
        times = fix.slice_times(profile, np.unique(operators[points & (operators >= 0)]))
        inside, _ = fix.points_inside(profile, times)
        inside &= ~profile.of(fix.launches_kernels)
        file, line = location_of(profile, user)
        called = trace.names[name] if name >= 0 else fix.longest_call(profile, points)
        change = fix.in_sequence(
            fix.without_host_time(fix.time_inside(profile, times)),
            fix.without_waiting(points),
            fix.with_call_time(inside | points, 0),
        )
        loops = _in_loops(profile, points)
        yield fix.Fix(
            id=f"synchronise:{called}:{file}:{line}",
            kind="synchronise",
            subject=(called, file, line),
            change=fix.in_sequence(change, fix.compiled_whole(profile, loops)) if loops.any() else change,
            times=int(points.sum()) / lane.steps,
            conservative=change,
        )


def _in_loops(profile: Profile, waits: fix.Bools) -> fix.Bools:
    """Return the points of loops that read one value after the other with a few eager operators in between.

    Read at once, those are one graph. Where compiled code runs in between the values decide what comes next.
    """
    lane, indices = profile.of(launch_sequence), np.flatnonzero(waits)
    behind = np.searchsorted(indices, np.arange(len(lane)), side="right")
    compiled = np.bincount(behind, ~profile.of(outside), len(indices) + 1) > 0
    compiled |= np.bincount(behind, lane.launches, len(indices) + 1) > _FEW_LAUNCHES
    step = np.searchsorted(lane.marks, indices, side="right")
    repeats = np.concatenate(([False], step[1:] == step[:-1], [False])) & ~compiled
    if repeats.sum() < _LOOP * lane.steps:
        return np.zeros(len(lane), bool)
    return np.asarray(repeats[behind] & (lane.launches | lane.synchronises))


def _without_blocking_copies(profile: Profile) -> Iterator[fix.Fix]:
    """Yield copies with pinned memory: without it the call returns when the GPU is done with the copy."""
    trace, lane, queue = profile.trace, profile.of(launch_sequence), profile.of(gpu_queue)
    for direction in ("Pageable -> Device", "Device -> Pageable"):
        named = np.array([direction in name for name in trace.names], bool)
        work = np.flatnonzero(named[trace.name[queue.row]])
        bytes_ = columns.values_of(trace, "bytes", queue.row[work])
        work, bytes_ = work[bytes_ > _SMALL_BYTES], bytes_[bytes_ > _SMALL_BYTES]
        if not len(work):
            continue
        points = columns.mask_at(queue.point[work], len(lane))
        dur = np.minimum((bytes_ / _PINNED_BYTES_NS).astype(np.int64) + CALL_NS, queue.dur[work])
        behind = np.concatenate(([False], points[:-1])) & lane.synchronises
        behind &= profile.of(model).waits.any(axis=1)
        largest = work[[np.argmax(queue.dur[work])]]
        user = ancestor_causes(profile, lane.row[queue.point[largest]]).user
        name = trace.names[trace.name[queue.row[largest[0]]]]
        yield fix.Fix(
            id=f"copies:{direction}",
            kind="copies",
            subject=(name, *location_of(profile, int(user[0]))),
            change=fix.in_sequence(fix.without_waiting(points | behind), fix.with_durations(work, dur)),
            times=len(work) / lane.steps,
        )


def _cuda_graphs(profile: Profile) -> Iterator[fix.Fix]:
    """Yield every compiled graph launched as one; what the host does outside of them stays.

    Where CUDA graphs are in use, those that are not replayed. Graphs whose sizes change have a fix of their own, as one
    CUDA graph would be recorded for each size.
    """
    lane, replayed = profile.of(launch_sequence), bool(profile.of(launch_calls).replay.any())
    rows: list[tuple[str, fix.FixKind, fix.Times]] = []
    if profile.of(requested_graphs):
        times = profile.of(not_replayed) if replayed else profile.of(fix.graph_times)
        rows = [("cuda_graphs", "graph_capture", times)]
    elif not replayed:
        rows = [
            ("cuda_graphs", "cuda_graphs", profile.of(fix.graph_times, False)),
            (fix.DYNAMIC_CUDA_GRAPHS, "cuda_graphs", profile.of(fix.graph_times, True)),
        ]
    for fix_id, kind, times in rows:
        inside, first = fix.points_inside(profile, times)
        if not inside.any():
            continue
        gone = fix.without_host_time(fix.time_inside(profile, times))
        busy = inside & ~lane.launches & replayed  # recording again, and waiting for the GPU
        change, conservative, optimistic = (
            fix.in_sequence(
                gone,
                fix.without_waiting(busy & lane.synchronises),
                fix.with_call_time(busy, 0),
                fix.with_call_time(inside & lane.launches, np.where(first, replay_ns, 0)),
            )
            for replay_ns in (_REPLAY_NS, 3 * _REPLAY_NS, _REPLAY_NS // 3)
        )
        yield fix.Fix(
            id=fix_id,
            kind=kind,
            change=change,
            times=int(first.sum()) / lane.steps,
            conservative=conservative,
            optimistic=optimistic,
        )


def not_replayed(profile: Profile) -> fix.Times:
    """Return when each thread ran graphs that should be replayed and were recorded, or run kernel by kernel."""
    runs, names = profile.of(graph_runs), profile.of(Ownership).names
    asked = set(profile.of(requested_graphs))
    owners = zip(runs.compile_id.tolist(), runs.backward.tolist())
    selected = [
        code >= 0 and (names[code], "backward" if backward else "forward") in asked
        for code, backward in owners
    ]
    times = fix.slice_times(profile, runs.row[np.array(selected, bool) & ~runs.replayed])
    # Each is widened to the graph that holds it: torch goes on after a recording, with metrics of it.
    for track, whole in profile.of(fix.graph_times).items():
        if track in times:
            inner = times[track]
            held = np.unique(within(whole, inner.starts))
            held = held[held >= 0]
            times[track] = joined(inner, Intervals(whole.starts[held], whole.ends[held]))
    return times


def _whole_sequence(profile: Profile) -> Iterator[fix.Fix]:
    """Yield a recurrent network that gets its whole sequence at once: a few launches each way."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    cells = columns.host_slices(trace, is_cell)
    loops = [loop for _, rows in columns.by_track(trace, cells) for loop in _loops_of(profile, rows)]
    if not loops:
        return
    first, last = (np.array([loop[end] for loop in loops], np.int64) for end in (0, -1))
    times = fix.on_tracks(profile, first, trace.ts[first], trace.ts[last] + trace.dur[last])
    inside, begins = fix.points_inside(profile, times)
    gone = fix.without_host_time(fix.time_inside(profile, times))
    change, conservative = (
        fix.in_sequence(gone, fix.with_call_time(inside & lane.launches, np.where(begins, call_ns, 0)))
        for call_ns in (_SEQUENCE_NS, _SEQUENCE_NS * 4)
    )
    forward = np.concatenate(loops)
    forward = forward[columns.mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name[forward]]]
    yield fix.Fix(
        kind="recurrent_cells",
        subject=("", *most_called_at(profile, forward)),
        change=change,
        # The model holds only the first of very many steps.
        times=int(fix.points_inside(profile, fix.slice_times(profile, forward))[1].sum()) / lane.steps,
        conservative=conservative,
    )


def _loops_of(profile: Profile, rows: Int64s) -> list[Int64s]:
    """Split the cells of one thread into loops, within which little else happens."""
    trace = profile.trace
    rows = rows[np.argsort(trace.ts[rows], kind="stable")]
    gap = trace.ts[rows][1:] - (trace.ts[rows] + trace.dur[rows])[:-1]
    other_step = np.diff(np.searchsorted(profile.of(StepWindows).starts, trace.ts[rows], "right")) > 0
    loops = np.split(rows, np.flatnonzero((gap > _NEAR_NS) | other_step) + 1)
    return [loop for loop in loops if len(loop) >= _CELLS]


HOST_FIXES = (
    fix.FixMaker(_without_causes),
    fix.FixMaker(_without_waits),
    fix.FixMaker(_without_blocking_copies, fix.occurs(lambda name: "Pageable" in name)),
    fix.FixMaker(_cuda_graphs),
    fix.FixMaker(closed_breaks),
    fix.FixMaker(fused_optimizer, fix.occurs(is_optimizer_step)),
    fix.FixMaker(_whole_sequence, fix.occurs(is_cell)),
    *EAGER_FIXES,
)
