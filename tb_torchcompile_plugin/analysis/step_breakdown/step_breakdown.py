"""The steps of one span, put together: what `report --json` prints and the route answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tb_torchcompile_plugin.analysis.step_breakdown.parts import (
    Part,
    PartKind,
    StepBreakdown,
    StepPart,
    step_breakdowns,
    window_breakdown,
)
from tb_torchcompile_plugin.analysis.step_breakdown.slow_steps import SlowStep, slow_steps
from tb_torchcompile_plugin.analysis.step_breakdown.step_times import StepTimes, step_times
from tb_torchcompile_plugin.analysis.words import duration, plural
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import pace

__all__ = ["StepBreakdown", "StepReport", "step_breakdown"]


class MeanPart(StepPart, frozen=True):
    """A part of the mean step, or of the window; `percent`: of all parts."""

    percent: float


class StepReport(msgspec.Struct, frozen=True):
    """All by the host's clock. Without steps `times` is None, the lists are empty and `window` is the whole span; it is
    None otherwise, and where nothing ran. `gpu_us`: the mean step on the GPU that sets the pace, None where the host
    does. `mean_parts`: kernels first, the largest in front; of the window too."""

    headline: str
    times: StepTimes | None
    gpu_us: float | None
    steps: list[StepBreakdown]
    slow: list[SlowStep]
    window: StepBreakdown | None
    mean_parts: list[MeanPart]


def step_breakdown(profile: Profile) -> StepReport:
    """Where the time of each step goes, how much steps vary, and why some are slow."""
    steps, gpu = profile.of(step_breakdowns), profile.of(pace)
    times = step_times([step.wall_us for step in steps])
    gpu_us = gpu.mean / 1000 if gpu else None
    window = None if steps else profile.of(window_breakdown)
    slow = slow_steps(profile, steps)
    return StepReport(
        headline=_lasts(times, gpu_us) + _slow(slow) if times else _unmarked(window),
        times=times,
        gpu_us=gpu_us,
        steps=steps,
        slow=slow,
        window=window,
        mean_parts=_mean_parts(steps or ([window] if window else [])),
    )


def _mean_parts(steps: Sequence[StepBreakdown]) -> list[MeanPart]:
    sums: dict[tuple[PartKind, Part], float] = {}
    for part in (part for step in steps for part in step.parts):
        sums[part.kind, part.part] = sums.get((part.kind, part.part), 0.0) + part.time_us
    whole = sum(sums.values())
    parts = [MeanPart(*key, time / len(steps), 100 * time / whole) for key, time in sums.items()]
    return sorted(parts, key=lambda part: (part.kind != "gpu", -part.time_us))


def _lasts(times: StepTimes, gpu_us: float | None) -> str:
    """ "A step takes 22.4 ms, the median of 3: 22.1 ms to 23.0 ms, mean 22.5 ms ± 300 µs." """
    where = "" if gpu_us is None else " on the host"
    said = f"A step takes {duration(times.median_us)}{where}"
    if times.deviation_us is not None:
        mean = f"mean {duration(times.mean_us)} ± {duration(times.deviation_us)}"
        said += (
            f", the median of {times.steps:,}: {duration(times.min_us)} to {duration(times.max_us)}, {mean}"
        )
    ahead = f" The host runs ahead: on the GPU a step takes {duration(gpu_us)}." if gpu_us is not None else ""
    return f"{said}.{ahead}"


def _slow(rows: Sequence[SlowStep]) -> str:
    """ " 2 slow steps: ProfilerStep#7, recompile of 0/1 …" """
    if not rows:
        return ""
    more = " …" if rows[1:] else "."
    return f" {plural(len(rows), 'slow step')}: {rows[0].step}, {rows[0].why}{more}"


def _unmarked(window: StepBreakdown | None) -> str:
    return f"No steps were marked in {duration(window.wall_us)}." if window else "Nothing ran in this span."
