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

__all__ = ["StepBreakdown", "StepReport", "step_breakdown"]


class StepReport(msgspec.Struct, frozen=True):
    """Without steps `times` is None, the lists are empty and `window` is the whole span; it is None otherwise, and
    where nothing ran."""

    times: StepTimes | None
    steps: list[StepBreakdown]
    slow: list[SlowStep]
    window: StepBreakdown | None


def step_breakdown(profile: Profile) -> StepReport:
    """Where the time of each step goes, how much steps vary, and why some are slow."""
    steps = profile.of(step_breakdowns)
    return StepReport(
        times=step_times([step.wall_us for step in steps]),
        steps=steps,
        slow=slow_steps(profile, steps),
        window=None if steps else profile.of(window_breakdown),
    )
