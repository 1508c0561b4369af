"""Compiled regions: how often each ran, and the host and GPU time of its own.

A region nested in another (a resume function, a called frame) is not counted in the outer one. Backward is apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels import Launches
from tb_torchcompile_plugin.analysis.ownership import Ownership
from tb_torchcompile_plugin.analysis.units import us
from tb_torchcompile_plugin.reader.kineto import Trace


class CompiledRegion(msgspec.Struct, frozen=True):
    """One compile id that ran. `gpu_us` sums the GPU events it launched, forward and backward; None without a GPU."""

    compile_id: str
    calls: int
    cpu_us: float
    backward_cpu_us: float
    gpu_us: float | None


def compiled_regions(trace: Trace, rows: list[Launches], ownership: Ownership) -> list[CompiledRegion]:
    """One row a compile id, in order of first call."""
    own = _own_time(trace, [index for index, _ in ownership.regions])
    calls, cpu = Counter[int](), Counter[int]()
    for index, code in ownership.regions:
        calls[code] += 1
        cpu[code] += own[index]
    backward = Counter[int]()
    for index, code in ownership.backwards:
        backward[code] += int(trace.dur[index])
    gpu = _gpu_time(rows)
    return [
        CompiledRegion(
            compile_id=ownership.names[code],
            calls=calls[code],
            cpu_us=us(cpu[code]),
            backward_cpu_us=us(backward[code]),
            gpu_us=us(gpu[code]) if gpu is not None else None,
        )
        for code in calls
    ]


def _own_time(trace: Trace, regions: list[int]) -> dict[int, int]:
    """Duration of each region less the regions directly inside it; a crossing one counts up to the end."""
    own = {index: int(trace.dur[index]) for index in regions}
    by_track: dict[int, list[int]] = defaultdict(list)
    for index in regions:
        by_track[int(trace.track[index])].append(index)
    for rows in by_track.values():
        stack: list[tuple[int, int]] = []  # (end, index)
        for index in sorted(rows, key=lambda row: (trace.ts[row], -trace.dur[row])):
            start, end = int(trace.ts[index]), int(trace.ts[index] + trace.dur[index])
            while stack and stack[-1][0] <= start:
                stack.pop()
            if stack:
                own[stack[-1][1]] -= min(end, stack[-1][0]) - start
            stack.append((end, index))
    return own


def _gpu_time(rows: list[Launches]) -> Counter[int] | None:
    gpus = [row for row in rows if row.device != "cpu"]
    if not gpus:
        return None
    total = Counter[int]()
    for row in gpus:
        for code in np.unique(row.compile_id):
            total[int(code)] += int(row.dur[row.compile_id == code].sum())
    return total
