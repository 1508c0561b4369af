"""Compiled regions: how often each ran, and the host and GPU time of its own.

A region nested in another (a resume function, a called frame) is not counted in the outer one. Backward is apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import (
    RegionCall,
    every,
    marks_graphs,
    marks_overhead,
    region_calls,
)
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import Cover, host_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import BACKWARD_GRAPH


class CompiledRegion(msgspec.Struct, frozen=True):
    """One compile id that ran. `guard_us` is the cache lookups before its calls, `overhead_us` pregraph and prologue,
    `graph_us` its graph executions; these two are None where the trace does not mark them. `gpu_us` sums the GPU events
    that it launched, `backward_gpu_us` those of its backward, which are part of it, None without GPU; `backward_calls`
    and `backward_cpu_us` are its backward graphs."""

    compile_id: str
    calls: int
    cpu_us: float
    guard_us: float
    overhead_us: float | None
    graph_us: float | None
    backward_calls: int
    backward_cpu_us: float
    gpu_us: float | None
    backward_gpu_us: float | None


def compiled_regions(profile: Profile) -> list[CompiledRegion]:
    """One row a compile id, in order of first call."""
    trace, ownership = profile.trace, profile.of(Ownership)
    by_id: dict[str, list[RegionCall]] = defaultdict(list)
    for call in sorted(every(profile.of(region_calls)), key=lambda call: call.start):
        by_id[call.compile_id].append(call)
    backward_ns, backward_calls = Counter[str](), Counter[str]()
    for index, code in ownership.backwards:
        backward_ns[ownership.names[code]] += int(trace.dur[index])
        backward_calls[ownership.names[code]] += 1
    gpus = [row for row in profile.of(kernel_launches) if row.device != "cpu"]
    gpu, backward_gpu = _gpu_time(trace, gpus, ownership)
    return [
        CompiledRegion(
            compile_id=compile_id,
            calls=len(of_region),
            cpu_us=us(sum(call.own_ns for call in of_region)),
            guard_us=us(sum(call.guard_ns for call in of_region)),
            overhead_us=us(sum(call.overhead_ns for call in of_region)) if marks_overhead(trace) else None,
            graph_us=graph_us(trace, of_region),
            backward_calls=backward_calls[compile_id],
            backward_cpu_us=us(backward_ns[compile_id]),
            gpu_us=us(gpu[compile_id]) if gpus else None,
            backward_gpu_us=us(backward_gpu[compile_id]) if gpus else None,
        )
        for compile_id, of_region in by_id.items()
    ]


def graph_us(trace: Trace, calls: list[RegionCall]) -> float | None:
    """Host time of the graphs of some calls of one region, None where the trace does not mark them."""
    known = marks_graphs(trace) or any(call.graphs for call in calls)
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
