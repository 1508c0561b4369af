"""Compiled regions: how often each ran, and the host and GPU time of its own.

A region nested in another (a resume function, a called frame) is not counted in the outer one. Backward is apart.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compilations.rows import Compilation, compilations
from tb_torchcompile_plugin.profile.columns import Cover, host_slices
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
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
