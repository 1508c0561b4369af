"""Compiled regions: how often each ran, and the host and GPU time of its own.

A region nested in another (a resume function, a called frame) is not counted in the outer one. Backward is apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels import Launches
from tb_torchcompile_plugin.analysis.ownership import Ownership
from tb_torchcompile_plugin.analysis.regions import Call, every
from tb_torchcompile_plugin.analysis.units import us
from tb_torchcompile_plugin.reader.kineto import Trace


class CompiledRegion(msgspec.Struct, frozen=True):
    """One compile id that ran. `guard_us` is the cache lookups before its calls, `overhead_us` pregraph and prologue,
    `graph_us` its graph executions. `gpu_us` sums the GPU events that it launched, backward too; None without GPU."""

    compile_id: str
    calls: int
    cpu_us: float
    guard_us: float
    overhead_us: float
    graph_us: float
    backward_cpu_us: float
    gpu_us: float | None


def compiled_regions(
    trace: Trace, calls: list[Call], rows: list[Launches], ownership: Ownership
) -> list[CompiledRegion]:
    """One row a compile id, in order of first call."""
    by_id: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(every(calls), key=lambda call: call.start):
        by_id[call.compile_id].append(call)
    backward = Counter[str]()
    for index, code in ownership.backwards:
        backward[ownership.names[code]] += int(trace.dur[index])
    gpu = _gpu_time(rows, ownership)
    return [
        CompiledRegion(
            compile_id=compile_id,
            calls=len(found),
            cpu_us=us(sum(call.own_ns for call in found)),
            guard_us=us(sum(call.guard_ns for call in found)),
            overhead_us=us(sum(call.overhead_ns for call in found)),
            graph_us=us(sum(call.graph_ns for call in found)),
            backward_cpu_us=us(backward[compile_id]),
            gpu_us=None if gpu is None else us(gpu[compile_id]),
        )
        for compile_id, found in by_id.items()
    ]


def _gpu_time(rows: list[Launches], ownership: Ownership) -> Counter[str] | None:
    gpus = [row for row in rows if row.device != "cpu"]
    if not gpus:
        return None
    total = Counter[str]()
    for row in gpus:
        for code in np.unique(row.compile_id[row.compile_id >= 0]):
            total[ownership.names[code]] += int(row.dur[row.compile_id == code].sum())
    return total
