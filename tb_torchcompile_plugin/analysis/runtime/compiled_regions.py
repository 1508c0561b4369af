"""Compiled regions: how often each ran, and the host and GPU time of its own.

A region nested in another (a resume function, a called frame) is not counted in the outer one. Backward is apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, compilations
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, significant
from tb_torchcompile_plugin.profile.columns import Cover, host_slices
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.eager_roots import EagerRoots
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import (
    compiling,
    every,
    marks_graphs,
    marks_overhead,
    region_calls,
    resumes,
)
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns, subtract, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.profile.units import share_percent as share
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import BACKWARD_GRAPH


class CompiledRegion(msgspec.Struct, frozen=True):
    """One compile id that ran. `guard_us` is the cache lookups before its calls, `overhead_us` pregraph and prologue,
    `graph_us` its graph executions; these two are None where the trace does not mark them. `gpu_us` sums the GPU events
    that it launched, `backward_gpu_us` those of its backward, which are part of it, None without GPU; `backward_calls`
    and `backward_cpu_us` are its backward graphs. `beside_percent`: guards and overhead as a share of guards, overhead
    and graphs. `guard_us_per_step`: of the calls in profiled steps, None without any. `compilation` is the key of what
    it was compiled by, the latest of its compile id; with its `epoch`, `function` and `guards`, None without a log."""

    compile_id: str
    epoch: int
    compilation: str | None
    function: str | None
    guards: int | None
    calls: int
    cpu_us: float
    guard_us: float
    overhead_us: float | None
    graph_us: float | None
    guard_us_per_call: float
    overhead_us_per_call: float | None
    graph_us_per_call: float | None
    guard_us_per_step: float | None
    beside_percent: float | None
    backward_calls: int
    backward_cpu_us: float
    gpu_us: float | None
    backward_gpu_us: float | None


def compiled_regions(profile: Profile) -> list[CompiledRegion]:
    """One row a compile id, in order of first call."""
    trace, ownership = profile.trace, profile.of(Ownership)
    in_order = sorted(regions.every(profile.of(regions.region_calls)), key=lambda call: call.start)
    by_id = grouped(in_order, lambda call: call.compile_id)
    backward_ns, backward_calls = Counter[str](), Counter[str]()
    for index, code in ownership.backwards:
        backward_ns[ownership.names[code]] += int(trace.dur[index])
        backward_calls[ownership.names[code]] += 1
    gpus = [row for row in profile.of(kernel_launches) if row.device != "cpu"]
    steps, marked = profile.of(StepWindows), regions.marks_overhead(trace)
    gpu, backward_gpu = _gpu_time(trace, gpus, ownership)
    known = _forwards(profile)

    def row(compile_id: str, calls: list[regions.RegionCall]) -> CompiledRegion:
        compilation = known.get(compile_id)
        guards, graphs = sum(call.guard_ns for call in calls), graph_us(trace, calls)
        overhead = sum(call.overhead_ns for call in calls)
        return CompiledRegion(
            compile_id=compile_id,
            epoch=compilation.epoch if compilation else 0,
            compilation=compilation.key if compilation else None,
            function=compilation.function if compilation else None,
            guards=compilation.guards if compilation else None,
            calls=len(calls),
            cpu_us=us(sum(call.own_ns for call in calls)),
            guard_us=us(guards),
            overhead_us=us(overhead) if marked else None,
            graph_us=graphs,
            guard_us_per_call=us(guards) / len(calls),
            overhead_us_per_call=us(overhead) / len(calls) if marked else None,
            graph_us_per_call=None if graphs is None else graphs / len(calls),
            guard_us_per_step=_guards_a_step(steps, calls),
            beside_percent=None if graphs is None else _share(us(guards + overhead), graphs),
            backward_calls=backward_calls[compile_id],
            backward_cpu_us=us(backward_ns[compile_id]),
            gpu_us=us(gpu[compile_id]) if gpus else None,
            backward_gpu_us=us(backward_gpu[compile_id]) if gpus else None,
        )

    return [row(compile_id, calls) for compile_id, calls in by_id.items()]


def _forwards(profile: Profile) -> dict[str, Compilation]:
    """By compile id, the latest of each."""
    rows = profile.data.of(compilations) if profile.data else []
    return {row.compile_id: row for row in rows if row.direction == "forward"}


def _guards_a_step(steps: StepWindows, calls: list[regions.RegionCall]) -> float | None:
    if not len(steps):
        return None
    return us(sum(call.guard_ns for call in calls_inside(steps, calls))) / len(steps)


def calls_inside(steps: StepWindows, calls: list[regions.RegionCall]) -> list[regions.RegionCall]:
    """Those that begin in a profiled step; all where there are none."""
    if not len(steps):
        return calls
    of = steps.of(np.array([call.begin for call in calls], np.int64))
    return [call for call, step in zip(calls, of) if step >= 0]


def _share(part: float, other: float) -> float | None:
    return 100 * part / (part + other) if part else None


def graph_us(trace: Trace, calls: list[regions.RegionCall]) -> float | None:
    """Host time of the graphs of some calls of one region, None where the trace does not mark them."""
    known = regions.marks_graphs(trace) or any(call.graphs for call in calls)
    return us(sum(call.graph_ns for call in calls)) if known else None


def _gpu_time(trace: Trace, rows: list[Launches], ownership: Ownership) -> tuple[Counter[str], Counter[str]]:
    """compile id → ns of the GPU events that it launched, and of those launched in a backward graph."""
    backwards = Cover(trace, host_slices(trace, BACKWARD_GRAPH.__eq__))
    whole, backward = Counter[str](), Counter[str]()
    for row in rows:
        launch = trace.launch_of()[row.index]
        inside = backwards.holds(np.where(launch >= 0, launch, trace.op_of()[row.index]))
        for code in np.unique(row.compile_id[row.compile_id >= 0]):
            mine = row.compile_id == code
            whole[ownership.names[code]] += int(row.dur[mine].sum())
            backward[ownership.names[code]] += int(row.dur[mine & inside].sum())
    return whole, backward


# How much of the profiled time runs compiled?


class Coverage(msgspec.Struct, frozen=True):
    """Of the profiled steps, or of the span where there are none, without what graph breaks leave eager.

    gpu_percent: of the GPU time that they launched, None where no GPU worked. host_percent: of the time in which any
    thread runs a compiled region or its backward. compilations: that made a graph, empty_compilations: those of them
    whose graph holds no operator; None without compile data.
    """

    gpu_percent: float | None
    host_percent: float | None
    compilations: int | None
    empty_compilations: int | None


def coverage(profile: Profile) -> Coverage:
    """What share of a step torch.compile is about."""
    graphs = [row.graph_ops for row in profile.data.of(compilations)] if profile.data else None
    known = None if graphs is None else [ops for ops in graphs if ops is not None]
    return Coverage(
        gpu_percent=_gpu_percent(profile) if len(profile.of(gpu_work).index) else None,
        host_percent=_host_percent(profile),
        compilations=None if known is None else len(known),
        empty_compilations=None if known is None else known.count(0),
    )


def _gpu_percent(profile: Profile) -> float | None:
    roots, steps = profile.of(EagerRoots), profile.of(StepWindows)
    launched = roots.launched_ns(steps)
    eager = sum(
        int((part.where(steps.of(part.start) >= 0) if len(steps) else part).device_ns.sum())
        for part in (roots.outside, roots.in_regions)
    )
    return share_percent(launched - eager, launched)


def _host_percent(profile: Profile) -> float | None:
    trace, roots = profile.trace, profile.of(EagerRoots)
    ownership = profile.of(Ownership)
    rows = np.array([row for row, _ in (*ownership.regions, *ownership.backwards)], np.int64)
    compiled = union(trace.ts[rows], trace.ts[rows] + trace.dur[rows])
    broken = union(roots.in_regions.start, roots.in_regions.end)
    windows = profile.of(profiled_time)
    inside = covered_ns(subtract(compiled, broken), *windows)
    return share_percent(int(inside.sum()), windows.total_ns)


# Where does the host time of a compiled frame go? Frame time runs from the start of the outermost lookup to
# the end of its region. Each nanosecond of it belongs to the first that holds of: graph execution, guards,
# overhead, called frames, breaks, other. So the parts sum to the frame time whatever crosses or nests;
# where nothing crosses they are the plain sums.


_OTHER = "other"


class FrameTime(msgspec.Struct, frozen=True):
    """One row per compile id that begins a frame, its resumes included. `breaks_us` is the gaps between graphs less the
    guards and the overhead of the regions that resume; `called_us` is other compiled frames called from this one.
    Where the trace does not mark overhead (None), it is part of the others."""

    compile_id: str
    calls: int
    frame_us: float
    guards_us: float
    overhead_us: float | None
    graphs_us: float
    breaks_us: float
    called_us: float
    other_us: float


def frame_times(profile: Profile) -> list[FrameTime] | None:
    """Rows in order of first call; None where nothing tells resumes from called frames."""
    if profile.of(resumes) is None:
        return None
    overhead_marked = regions.marks_overhead(profile.trace)
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    count, whole = Counter[str](), Counter[str]()
    for frame in regions.frames(profile.of(regions.region_calls)):
        count[frame.compile_id] += 1
        whole[frame.compile_id] += frame.end - frame.begin
        parts[frame.compile_id].update(
            _parts(frame, profile.of(compiling, int(profile.trace.track[frame.index])))
        )
    for compile_id, of_frame in parts.items():
        assert sum(of_frame.values()) == whole[compile_id]
    return [
        _row(name, count[name], whole[name], of_frame, overhead_marked) for name, of_frame in parts.items()
    ]


def frame_parts(frame: regions.RegionCall, compiled: Intervals) -> Iterator[tuple[str, int, int]]:
    """(part, start, end) in ns: the time of one frame cut into the parts of `FrameTime`, in order of time.

    They neither overlap nor leave a gap. What was compiled while a graph was broken is no part of the break.
    """
    chain = list(frame.chain())
    first, last = np.searchsorted(compiled.ends, frame.begin), np.searchsorted(compiled.starts, frame.end)
    here = (edges[first:last].tolist() for edges in compiled)
    layers: list[tuple[str, list[regions.Moment]]] = [
        ("graphs", [moment for call in chain for moment in call.graphs]),
        ("guards", [moment for call in chain for moment in call.lookups]),
        ("overhead", [moment for call in chain for moment in call.overhead]),
        ("called", [(one.begin, one.end) for call in chain for one in call.nested if not one.resume]),
        (_OTHER, list(zip(*here, strict=True))),
        ("breaks", [(gap.start, gap.end) for gap in regions.breaks(frame)]),
    ]
    return _split(frame.begin, frame.end, layers)


def _parts(frame: regions.RegionCall, compiled: Intervals) -> Counter[str]:
    parts = Counter[str]()
    for part, start, end in frame_parts(frame, compiled):
        parts[part] += end - start
    return parts


def _split(
    begin: int, end: int, layers: Sequence[tuple[str, list[regions.Moment]]]
) -> Iterator[tuple[str, int, int]]:
    """[begin, end) in pieces, each of the first layer that covers it."""
    changes = [(begin, len(layers), 1), (end, len(layers), -1)]
    for rank, (_, moments) in enumerate(layers):
        for start, stop in moments:
            start, stop = max(start, begin), min(stop, end)
            if start < stop:
                changes += [(start, rank, 1), (stop, rank, -1)]
    names = [*(name for name, _ in layers), _OTHER]
    depth = [0] * len(names)
    last = begin
    for time, rank, change in sorted(changes):
        if time > last:
            yield names[next(index for index, running in enumerate(depth) if running)], last, time
            last = time
        depth[rank] += change


def _row(compile_id: str, calls: int, whole: int, parts: Counter[str], overhead_marked: bool) -> FrameTime:
    return FrameTime(
        compile_id=compile_id,
        calls=calls,
        frame_us=us(whole),
        guards_us=us(parts["guards"]),
        overhead_us=us(parts["overhead"]) if overhead_marked else None,
        graphs_us=us(parts["graphs"]),
        breaks_us=us(parts["breaks"]),
        called_us=us(parts["called"]),
        other_us=us(parts[_OTHER]),
    )


# What do calls of compiled code cost beside the graphs that they run: guards and wrappers against useful
# work? Of the calls that begin in the profiled steps; where there are none, of all calls in the span.


class CallOverhead(msgspec.Struct, frozen=True):
    """`window`: the profiled steps, or the span without any; `steps` counts them. `guard_percent` and
    `overhead_percent` are shares of the window; `beside_percent` is guards and overhead as a share of guards, overhead
    and graphs, forward and backward. None is what the trace does not mark."""

    window: Literal["steps", "span"]
    steps: int
    window_us: float
    calls: int
    guard_us: float
    overhead_us: float | None
    graph_us: float | None
    backward_us: float
    guard_percent: float | None
    overhead_percent: float | None
    beside_percent: float | None


def call_overhead(profile: Profile) -> CallOverhead | None:
    """None where no compiled region ran."""
    trace, calls = profile.trace, profile.of(region_calls)
    if not calls:
        return None
    steps = profile.of(StepWindows)
    first, last = trace.window()
    window = steps.total_ns if len(steps) else last - first
    in_steps = calls_inside(steps, sorted(every(calls), key=lambda call: call.start))
    marked = marks_graphs(trace) or all(call.graphs for call in in_steps)
    guards, overhead = sum(call.guard_ns for call in in_steps), sum(call.overhead_ns for call in in_steps)
    graphs = sum(call.graph_ns for call in in_steps)
    backward = _backward_ns(trace, steps, profile.of(Ownership))
    return CallOverhead(
        window="steps" if len(steps) else "span",
        steps=len(steps),
        window_us=us(window),
        calls=len(in_steps),
        guard_us=us(guards),
        overhead_us=us(overhead) if marks_overhead(trace) else None,
        graph_us=us(graphs) if marked else None,
        backward_us=us(backward),
        guard_percent=share(guards, window),
        overhead_percent=share(overhead, window) if marks_overhead(trace) else None,
        beside_percent=share(guards + overhead, guards + overhead + graphs + backward) if marked else None,
    )


def _backward_ns(trace: Trace, steps: StepWindows, ownership: Ownership) -> int:
    rows = np.array([row for row, _ in ownership.backwards], np.int64)
    inside = steps.of(trace.ts[rows]) >= 0 if len(steps) else np.ones(len(rows), bool)
    return int(trace.dur[rows[inside]].sum())


def headline(profile: Profile) -> str:
    """ "Guards and wrappers take 275 µs a step, 4.56 % of it: …" """
    cost = profile.of(call_overhead)
    if cost is None:
        return "No compiled region ran inside this span."
    each = cost.steps or 1
    beside = cost.guard_us + (cost.overhead_us or 0)
    what, parts = "Guards", ""
    if cost.overhead_us is not None:
        what = "Guards and wrappers"
        parts = f": guards {duration(cost.guard_us / each)}, wrappers {duration(cost.overhead_us / each)}"
    calls = cost.calls / each
    often = plural(int(calls), "call") if calls.is_integer() else f"{significant(calls)} calls"
    share = f", {percent(100 * beside / cost.window_us)} of it" if cost.window_us else ""
    return (
        f"{what} take {duration(beside / each)} {'a step' if cost.steps else 'in this span'}"
        f"{share}{parts}, for {often}. {_useful(cost, each)}"
    )


def _useful(cost: CallOverhead, each: int) -> str:
    if cost.graph_us is None or cost.beside_percent is None:
        return "The trace does not mark all of their graphs."
    backward = f" and backward for {duration(cost.backward_us / each)}" if cost.backward_us else ""
    share = percent(cost.beside_percent)
    graphs = duration(cost.graph_us / each)
    return f"Their graphs run for {graphs}{backward}; {share} of all this is overhead of the calls."
