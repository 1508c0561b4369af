"""The steps of one span, put together: what `report --json` prints and the route answers."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.step_breakdown.parts import (
    StepBreakdown,
    step_breakdowns,
    window_breakdown,
)
from tb_torchcompile_plugin.analysis.step_breakdown.slow_steps import SlowStep, slow_steps
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import StepTimes, step_times
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import pace

__all__ = ["StepBreakdown", "StepReport", "step_breakdown"]


class StepReport(msgspec.Struct, frozen=True):
    """All by the host's clock. Without steps `times` is None, the lists are empty and `window` is the whole span; it is
    None otherwise, and where nothing ran. `gpu_us`: the mean step on the GPU that sets the pace, None where the host
    does."""

    times: StepTimes | None
    gpu_us: float | None
    steps: list[StepBreakdown]
    slow: list[SlowStep]
    window: StepBreakdown | None


def step_breakdown(profile: Profile) -> StepReport:
    """Where the time of each step goes, how much steps vary, and why some are slow."""
    steps, gpu = profile.of(step_breakdowns), profile.of(pace)
    return StepReport(
        times=step_times([step.wall_us for step in steps]),
        gpu_us=gpu.mean / 1000 if gpu else None,
        steps=steps,
        slow=slow_steps(profile, steps),
        window=None if steps else profile.of(window_breakdown),
    )
