"""The profiled steps: host `user_annotation` slices named `ProfilerStep#N`.

Without a schedule torch writes none; then the span is one window and `steps` is empty.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.gpu_utilization import GpuWork, busy
from tb_torchcompile_plugin.analysis.intervals import Int64s, Intervals, covered_ns, within
from tb_torchcompile_plugin.analysis.units import us
from tb_torchcompile_plugin.reader.kineto import Trace

_STEP = re.compile(r"^ProfilerStep\s*#\s*\d+$")


class Step(msgspec.Struct, frozen=True):
    """`start_us` counts from the span's first event; `gpu_busy_us` is the GPU work that ran inside its window."""

    name: str
    start_us: float
    wall_us: float
    gpu_busy_us: float | None


def step_slices(trace: Trace) -> Int64s:
    """Indices of the steps' slices in order of time."""
    codes = np.array([code for code, name in enumerate(trace.names) if _STEP.match(name)], np.int64)
    host = trace.select(cat=("user_annotation",))
    index = host[np.isin(trace.name[host], codes)]
    return index[np.argsort(trace.ts[index], kind="stable")]


def steps(trace: Trace, work: GpuWork) -> list[Step]:
    """One row a step. GPU busy is the union over the devices of the process, None where there was no GPU work."""
    index = step_slices(trace)
    start, wall = trace.ts[index], trace.dur[index]
    gpu = covered_ns(busy(trace, work.index), start, start + wall)
    first = trace.window()[0]
    return [
        Step(trace.names[name], us(begin - first), us(length), us(inside) if len(work.index) else None)
        for name, begin, length, inside in zip(trace.name[index], start, wall, gpu)
    ]


class StepWindows:
    """The profiled steps as windows; none without a schedule."""

    def __init__(self, trace: Trace) -> None:
        index = step_slices(trace)
        self.names = [trace.names[name] for name in trace.name[index]]
        self.starts: Int64s = trace.ts[index]
        self.ends: Int64s = self.starts + trace.dur[index]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def total_ns(self) -> int:
        return int((self.ends - self.starts).sum())

    def of(self, moments: Int64s) -> Int64s:
        """The step around each moment, -1 outside of all."""
        return within(Intervals(self.starts, self.ends), moments)
