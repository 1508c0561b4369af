"""The steps of one span, put together: what `report --json` prints and the route answers."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.slow_steps import SlowStep, slow_steps
from tb_torchcompile_plugin.analysis.step_breakdown import StepBreakdown, step_breakdowns, window_breakdown
from tb_torchcompile_plugin.analysis.step_times import StepTimes, step_times
from tb_torchcompile_plugin.logdir import Span

__all__ = ["StepBreakdown", "StepReport", "step_report"]


class StepReport(msgspec.Struct, frozen=True):
    """Without steps `times` is None, the lists are empty and `window` is the whole span; it is None otherwise, and
    where nothing ran."""

    times: StepTimes | None
    steps: list[StepBreakdown]
    slow: list[SlowStep]
    window: StepBreakdown | None


def step_report(_: Span, profile: Profile) -> StepReport:
    """Where the time of each step goes, how much steps vary, and why some are slow."""
    steps = step_breakdowns(profile)
    return StepReport(
        times=step_times([step.wall_us for step in steps]),
        steps=steps,
        slow=slow_steps(profile, steps),
        window=None if steps else window_breakdown(profile),
    )
