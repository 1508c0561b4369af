"""Which steps took much longer than the others, and what took the time?

A step is slow if it lasts longer than the median step by more than `SLOW_PERCENT` of it and by more than
`SLOW_DEVIATIONS` times the usual deviation. Its reason is what explains most of the excess; see `SlowStep`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.recompiles.moments import recompile_moments
from tb_torchcompile_plugin.analysis.step_breakdown.parts import Part, StepBreakdown
from tb_torchcompile_plugin.profile.columns import mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.slices import is_autotuning, is_collection

SLOW_PERCENT = 10
SLOW_DEVIATIONS = 3
_FEWEST = 3  # of fewer steps none is typical
_SCALE = 1.4826  # of a normal distribution: standard deviation over median absolute deviation
_EXPLAINS = 0.5  # of the excess, at least

# Nobody knows what a thread does that runs Python or nothing that was recorded.
_NO_REASON = ("python", "nothing_launched")


Reason = Part | Literal["gc", "autotune", "recompile"]
_SAID: dict[Reason | None, str] = {
    None: "no single cause was recorded",
    "gc": "garbage collection",
    "autotune": "autotuning",
    "guards_wrapper": "guards and wrapper",
    "break_eager": "graph breaks or eager operators",
    "launch_call": "operators and launches",
}


class SlowStep(msgspec.Struct, frozen=True):
    """`row`: its place among the steps. `excess_us` is the time beyond the median step. `reason` explains at least half
    of that, by `explained_us`:

    `gc` or `autotune`, where that was recorded; `recompile` (of `compile_ids`) or `compile`; else the part of the step
    that grew most (see `StepPart`). None where no single cause was recorded. `why` says it in words.
    """

    step: str
    row: int
    excess_us: float
    times_median: float
    reason: Reason | None
    explained_us: float | None
    compile_ids: list[str]
    why: str


def slow_steps(profile: Profile, steps: Sequence[StepBreakdown]) -> list[SlowStep]:
    """In order of time. steps: those of the profile."""
    limit = slow_from_us([step.wall_us for step in steps])
    slow = [number for number, step in enumerate(steps) if limit is not None and step.wall_us > limit]
    if not slow:
        return []
    usual = statistics.median(step.wall_us for step in steps)
    growth = _growth(profile, steps, slow)
    recompiled = _recompiled(profile)
    return [
        _row(
            steps[number], number, usual, {part: gains[number] for part, gains in growth.items()}, recompiled
        )
        for number in slow
    ]


def slow_from_us(walls_us: Sequence[float]) -> float | None:
    """Steps that last longer than this are slow; None where there are too few to tell, or most last no time."""
    if len(walls_us) < _FEWEST or not (usual := statistics.median(walls_us)):
        return None
    deviation = _SCALE * statistics.median(abs(wall - usual) for wall in walls_us)
    return usual + max(usual * SLOW_PERCENT / 100, SLOW_DEVIATIONS * deviation)


def _row(
    step: StepBreakdown,
    row: int,
    usual_us: float,
    growth: dict[Reason, float],
    recompiled: dict[str, list[str]],
) -> SlowStep:
    """growth: by how many µs each part is larger than in usual steps, those that say more of the cause first."""
    excess, times = step.wall_us - usual_us, step.wall_us / usual_us
    name = step.step or ""
    ids = recompiled.get(name, [])
    grown = max(growth, key=lambda part: growth[part])
    reason = next((part for part in ("gc", "autotune") if growth[part] >= _EXPLAINS * excess), grown)
    if growth[reason] < _EXPLAINS * excess or reason in _NO_REASON:
        return SlowStep(name, row, excess, times, None, None, ids, _why(None, ids))
    shown = "recompile" if reason == "compile" and ids else reason
    return SlowStep(name, row, excess, times, shown, growth[reason], ids, _why(shown, ids))


def _why(reason: Reason | None, compile_ids: Sequence[str]) -> str:
    """ "recompile of 0/1", "garbage collection", "data loading"."""
    if reason == "recompile":
        return f"recompile of {', '.join(compile_ids)}"
    return _SAID.get(reason) or str(reason).replace("_", " ")


def _growth(
    profile: Profile, steps: Sequence[StepBreakdown], slow: Sequence[int]
) -> dict[Reason, list[float]]:
    """Part → for each step by how many µs it is larger than in the median of the steps that are not slow."""
    times: dict[Reason, list[float]] = {
        "gc": _named_us(profile, is_collection),
        "autotune": _named_us(profile, is_autotuning),
    }
    for number, step in enumerate(steps):
        for part in step.parts:
            times.setdefault(part.part, [0.0] * len(steps))[number] += part.time_us
    usual = sorted(set(range(len(steps))) - set(slow))
    return {part: _beyond_median(values, usual) for part, values in times.items()}


def _beyond_median(values: Sequence[float], usual: Sequence[int]) -> list[float]:
    median = statistics.median(values[number] for number in usual)
    return [value - median for value in values]


def _named_us(profile: Profile, named: Callable[[str], bool]) -> list[float]:
    """For each step how long slices of such names ran on its thread."""
    trace, rows = profile.trace, profile.of(step_slices)
    answer: Int64s = np.zeros(len(rows), np.int64)
    wanted = np.flatnonzero(mask_of(trace.names, named)[trace.name])
    for track in np.unique(trace.track[rows]):
        mine, here = wanted[trace.track[wanted] == track], np.flatnonzero(trace.track[rows] == track)
        begins = trace.ts[rows[here]]
        ran = union(trace.ts[mine], trace.ts[mine] + trace.dur[mine])
        answer[here] = covered_ns(ran, begins, begins + trace.dur[rows[here]])
    return [us(ns) for ns in answer]


def _recompiled(profile: Profile) -> dict[str, list[str]]:
    """Step → the compile ids of the recompiles that began in it."""
    moments = profile.of(recompile_moments)
    by_step = grouped(moments or (), lambda moment: moment.step)
    return {step: [moment.compile_id for moment in rows] for step, rows in by_step.items() if step}
