"""How long is a recorded step, and which clock sets the pace: the host's, or that of a GPU?

Of all whole steps, marked by the profiler or told by what each step of a loop does once. Steps before the first and
behind the last that launched GPU work are cut by the ends of the recording.
"""

from __future__ import annotations

from typing import NamedTuple

from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.model.loop import StepSource, loop_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import (
    GpuSteps,
    StepWindows,
    gpu_steps_of,
    is_ahead,
    slowest,
)


class StepPace(NamedTuple):
    """Mean lengths of `steps` steps (ns). gpu: on the slowest device, None where they launched nothing; device: its
    number, -1 without. gpu_steps: of how many that is the mean. source: what tells the steps. host_is_ahead:
    whether the GPU sets the pace."""

    host: float
    gpu: float | None
    device: int
    steps: int
    gpu_steps: int
    source: StepSource
    host_is_ahead: bool

    @property
    def step(self) -> float:
        """By the clock that sets the pace."""
        return self.gpu if self.gpu is not None and self.host_is_ahead else self.host

    @property
    def averaged(self) -> int:
        """Of how many steps that is the mean."""
        return self.gpu_steps if self.host_is_ahead else self.steps


class PacedSteps(NamedTuple):
    """The whole steps by the host's clock, by that of the slowest GPU or None, and what tells them."""

    host: Intervals
    gpu: GpuSteps | None
    source: StepSource


def paced_steps(profile: Profile) -> PacedSteps | None:
    """None where nothing tells steps."""
    loop = profile.of(loop_steps)
    if not len(loop.moments):
        return None
    marked = profile.of(StepWindows)
    windows = (
        Intervals(marked.starts, marked.ends)
        if loop.source == "profiler"
        else Intervals(loop.moments[:-1], loop.moments[1:])
    )
    gpu = slowest(gpu_steps_of(profile, windows))
    return (
        PacedSteps(_whole(windows, gpu.step), gpu, loop.source)
        if gpu
        else PacedSteps(windows, None, loop.source)
    )


def _whole(windows: Intervals, launched: Int64s) -> Intervals:
    kept = slice(launched[0], launched[-1] + 1) if len(launched) else slice(0, 0)
    return Intervals(windows.starts[kept], windows.ends[kept])


def step_clock(profile: Profile) -> StepPace | None:
    """None where nothing tells steps."""
    steps = profile.of(paced_steps)
    if steps is None or not len(steps.host.starts):
        return None
    number = len(steps.host.starts)
    host = steps.host.total_ns / number
    if steps.gpu is None:
        return StepPace(host, None, -1, number, 0, steps.source, False)
    gpu = steps.gpu
    launching = (steps.host.ends - steps.host.starts)[gpu.step - gpu.step[0]]
    ahead = is_ahead(gpu, launching)
    return StepPace(host, gpu.mean, gpu.device, number, gpu.averaged, steps.source, ahead)
