"""What runs eager next to compiled code, and what would it be if it were compiled?"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np

from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.profile.columns import Int64s, host_slices, mask_at
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.host.eager_roots import lookups_in_vain
from tb_torchcompile_plugin.profile.model.attribution import lines_in_closures, most_called_at
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_on_device, is_optimizer_step

# Chosen on the external programs of docs/benchmarks.md.
_FEW_MOVES = 4  # copies and fills between two kernels
# Of the kernels of a run, at most, in addition to the longest; see docs/concepts/predictions.md.
_UNFUSED = 0.4


def compiled_operators(profile: Profile, points: fix.Bools) -> Iterator[fix.Fix]:
    """Yield the fix that compiles the launches at these points, one graph for each run.

    Kernels that only pass over data are fused. The remaining launches (matrix products, convolutions) take as much host
    time as before: in ten programs that were measured both ways, a compiled launch took 1.1 times as long (median), and
    never less than 0.8 times. At best each takes one call. At worst the host gains nothing: calling graphs and checking
    guards takes as long as the launches that were fused; see docs/concepts/predictions.md.
    """
    if not points.any():
        return
    fusible = profile.of(fix.work_named, operators.is_fusible) | profile.of(fix.work_named, is_on_device)
    yield fix.Fix(
        int(points.sum()) / profile.of(launch_sequence).steps,
        fix.as_one_graph(profile, points, fusible, as_before=True),
        _only_on_gpu(fix.as_one_graph(profile, points, fusible, _UNFUSED, as_before=True)),
        fix.as_one_graph(profile, points, fusible),
        subject=main_operator(profile, points),
    )


def _only_on_gpu(change: fix.Change) -> fix.Change:
    return lambda model: change(model)._replace(host=model.host, own=model.own)


def captured_only(profile: Profile) -> list[str]:
    """Return the compilations that ran operations if inductor was used in none of them."""
    rows = profile.data.of(compilations) if profile.data else []
    by_inductor = any("inductor" in (row.phases_s or {}) or row.cache for row in rows)
    if by_inductor or regions.marks_graphs(profile.trace):
        return []
    ran = {call.compile_id for call in regions.all_calls(profile.of(regions.region_calls))}
    with_operations = {row.compile_id for row in rows if row.graph_ops}
    return sorted(ran & with_operations & {row.compile_id for row in rows if row.phases_s})


def calls_in_given_up(profile: Profile) -> list[regions.RegionCall]:
    """Return each call of a frame that torch cannot resume, as the regions that it calls.

    These are consecutive regions that were compiled below it, until a backward, a step or another region.
    """
    caller, calls = _callers_given_up(profile), profile.of(regions.region_calls)
    backward_rows = np.array([row for row, _ in profile.of(Ownership).backwards], np.int64)
    backwards = np.sort(profile.trace.ts[backward_rows])
    begins = np.array([call.start for call in calls], np.int64)
    part = np.searchsorted(backwards, begins) + np.searchsorted(profile.of(StepWindows).starts, begins)
    runs = groupby(zip(calls, part.tolist()), lambda pair: (caller.get(pair[0].compile_id), pair[1]))
    return [
        replace(rows[0], compile_id=frame, end=rows[-1].end, graphs=[], nested=rows)
        for (frame, _), pairs in runs
        if frame and len(rows := [call for call, _ in pairs]) > 1
    ]


def _callers_given_up(profile: Profile) -> dict[str, str]:
    """Return by compile id the calling frame that torch cannot resume.

    The stack of the compilation starts with the stack of that frame; the frame itself is not in every stack.
    """
    data = profile.data
    skipped = {row.compile_id for row in data.of(problems) if row.kind == "skipped"} if data else set()
    rows = data.of(compilations) if data and skipped else []
    frames = [row for row in rows if row.compile_id in skipped and len(row.stack) > 1]
    return {
        row.compile_id: frame.compile_id
        for row in rows
        for frame in frames
        if row.compile_id not in skipped and row.stack[: len(frame.stack) - 1] == frame.stack[:-1]
    }


def given_up(profile: Profile) -> bool:
    """Whether torch runs frames eagerly, according to the compile data or to cache lookups without a result."""
    rows = profile.data.of(problems) if profile.data else []
    steps = max(len(profile.of(StepWindows)), 1)
    return any(row.ran_eager for row in rows) or profile.of(lookups_in_vain) >= steps


def eager_points(profile: Profile) -> fix.Bools:
    """Return the launches of kernels outside compiled code and optimizers.

    Includes the copies and fills between two of them if they are few: many are a copy that the program needs.
    """
    lane = profile.of(launch_sequence)
    eager = lane.launches & profile.of(fix.launches_kernels) & profile.of(outside)
    moves = mask_at(profile.of(gpu_queue).point[profile.of(fix.work_named, is_on_device)], len(lane)) & ~eager
    others = lane.launches & ~moves
    behind = np.cumsum(others)
    is_eager = np.concatenate(([False], eager[others], [False]))
    between = is_eager[behind] & is_eager[behind + 1] & (np.bincount(behind, moves)[behind] <= _FEW_MOVES)
    return np.asarray(eager | (moves & between))


def outside(profile: Profile) -> fix.Bools:
    """Return the points outside compiled code and optimizers."""
    compiled, _ = fix.points_inside(profile, profile.of(fix.compiled_times))
    optimizing, _ = fix.points_inside(profile, profile.of(optimizer_times))
    return np.asarray(~(compiled | optimizing))


def optimizer_steps(trace: Trace) -> Int64s:
    """Return the rows of optimizer steps."""
    return host_slices(trace, is_optimizer_step, (LABEL,))


def optimizer_times(profile: Profile) -> fix.Times:
    """Return when optimizers worked: their steps, from the end of the closure that they call (also by samples).

    While the host waits for the GPU before the kernels of a fused optimizer, its work has not started.
    """
    trace, lane, queue = profile.trace, profile.of(launch_sequence), profile.of(gpu_queue)
    rows = optimizer_steps(trace)
    calls = profile.of(regions.region_calls)
    begin, end = trace.ts[rows].copy(), trace.ts[rows] + trace.dur[rows]
    tracks = trace.track[rows]
    launched = lane.begin[queue.point[fix.work_named(profile, operators.is_fused_optimizer)]]
    in_closure = lines_in_closures(profile, lane.track.astype(np.int64), lane.begin) >= 0
    for index, (first, last) in enumerate(zip(begin.tolist(), end.tolist())):
        inside = (lane.begin >= first) & (lane.begin < last)
        own_launches = launched[(launched >= first) & (launched < last)]
        waits = lane.synchronises & (lane.begin < min(own_launches, default=0))
        inside &= waits | (lane.track != tracks[index]) | in_closure
        closure = [*lane.end[inside].tolist(), *(call.end for call in calls if first <= call.start < last)]
        begin[index] = max([first, *(moment for moment in closure if moment < last)])
    return fix.on_tracks(profile, rows, begin, end)


def main_operator(profile: Profile, points: fix.Bools) -> fix.Subject:
    """Return the operator with most of these launches, and the line of the user's with most of them.

    Without any operator, it is the call that launched.
    """
    trace, rows = profile.trace, profile.of(launch_sequence).row[points]
    operators = fix.outermost_operator(trace, rows)
    names = trace.name[operators[operators >= 0] if (operators >= 0).any() else rows[rows >= 0]]
    name = trace.names[np.bincount(names).argmax()] if len(names) else ""
    return name, *most_called_at(profile, rows)
