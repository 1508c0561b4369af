"""The profiled steps: host `user_annotation` slices named `ProfilerStep#N`.

Without a schedule torch writes none; then the span is one window and `steps` is empty.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_step


class Step(msgspec.Struct, frozen=True):
    """`start_us` counts from the span's first event; `gpu_busy_us` is the GPU work that ran inside its window."""

    name: str
    start_us: float
    wall_us: float
    gpu_busy_us: float | None


def step_slices(profile: Profile) -> Int64s:
    """Indices of the steps' slices in order of time."""
    trace = profile.trace
    index = host_slices(trace, is_step, (LABEL,))
    return index[np.argsort(trace.ts[index], kind="stable")]


def profiled_steps(profile: Profile) -> list[Step]:
    """One row a step. GPU busy is the union over the devices of the process, None where there was no GPU work."""
    trace, work, index = profile.trace, profile.of(gpu_work), profile.of(step_slices)
    start, wall = trace.ts[index], trace.dur[index]
    gpu = covered_ns(busy(trace, work.index), start, start + wall)
    first = trace.window()[0]
    return [
        Step(trace.names[name], us(begin - first), us(length), us(inside) if len(work.index) else None)
        for name, begin, length, inside in zip(trace.name[index], start, wall, gpu)
    ]


class StepWindows:
    """The profiled steps as windows; none without a schedule."""

    def __init__(self, profile: Profile) -> None:
        trace, self.rows = profile.trace, profile.of(step_slices)
        index = self.rows
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
