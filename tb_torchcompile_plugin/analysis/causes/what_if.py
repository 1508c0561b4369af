"""How long would a step take after each fix? The model of the steps is changed and replayed."""

from typing import NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes.fix import Change, Fix
from tb_torchcompile_plugin.analysis.finding import Predicted, prediction
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, launch_sequence
from tb_torchcompile_plugin.profile.model.model import (
    Model,
    clock,
    least_step,
    model,
    profiler_overhead,
    recorded_clock,
    replay,
    without_overhead,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time, unprofiled_steps

# Difference of the replayed step from the recorded one; see docs/concepts/predictions.md.
MAX_ERROR_PERCENT = 2.0


def why_nothing(profile: Profile) -> str | None:
    """Return why nothing can be predicted, as a sentence; None where something can."""
    if profile.trace.is_cut_off:
        return "The trace is cut off, so the length of a step is unknown and no fix is predicted."
    covered = profile.of(coverage)
    if covered.level == "insufficient" and (lost := covered.worst()):
        return f"{lost.sentence} No fix is predicted from that."
    if not len(profile.of(gpu_work).index):
        return "Fixes are predicted only for programs that use a GPU, and this trace has no GPU work."
    if len(profile.of(launch_sequence)) < 2 or not len(profile.of(gpu_queue)):
        return "The calls that launched the GPU's work were not recorded, so why the GPU was idle is unknown."
    if not profile.of(recorded_clock).step:
        return "The calls that launched the GPU's work take no measurable time: there is nothing to gain."
    error = profile.of(replay_error_percent)
    if error > MAX_ERROR_PERCENT:
        return f"The replayed step differs from the recorded one by {error:.1f} %, so no fix is predicted."
    return None


def replay_error_percent(profile: Profile) -> float:
    """Return how far the replayed length of a step is from the recorded one."""
    recorded_ns = profile.of(recorded_clock).step
    replayed_ns = clock(profile.of(launch_sequence), profile.of(gpu_queue), replay(profile.of(model))).step
    return 100 * abs(replayed_ns - recorded_ns) / recorded_ns


class WhatIf(msgspec.Struct, frozen=True):
    """One fix with its predicted gain."""

    id: str
    kind: str  # of its cause
    name: str
    file: str
    line: int
    times: float  # per step
    predicted: Predicted


class StepCost(NamedTuple):
    """How long a step takes (ns), what writing a slice added to it, and how replayed times become step times."""

    step: float  # the step time of the span
    slice_ns: int  # 0 where it is unknown
    scale: float  # the step time, in steps as they are replayed; within `MAX_ERROR_PERCENT` and the overhead it is 1


def step_cost(profile: Profile) -> StepCost:
    """Return the step that all predictions start from: unprofiled where that is known."""
    ns = 1000 * profile.of(step_time).step_us
    # Where a GPU is the limit, profiling slows the host all the same, and a step that is faster may show it.
    is_noted = profile.data is not None and bool(profile.data.of(unprofiled_steps))
    slice_ns = profiler_overhead(profile, ns) if is_noted else 0
    return StepCost(ns, slice_ns, ns / _replayed(profile, profile.of(model), slice_ns)[0])


def after_ns(profile: Profile, change: Change) -> float:
    """Return the mean length of a step after a change, as a step time: nothing changed, it is that of the span.

    Never less than the work of the busiest stream, which takes as long unprofiled; nor more because of that than now.
    """
    cost = profile.of(step_cost)
    ns, least_ns = _replayed(profile, change(profile.of(model)), cost.slice_ns)
    return max(cost.scale * ns, min(least_ns, cost.step))


def predict_fix(profile: Profile, fix: Fix) -> WhatIf:
    """Return what a fix brings, for an unprofiled step where its length is known."""
    changes = [change for change in (fix.change, fix.conservative, fix.optimistic) if change is not None]
    predicted = prediction(profile.of(step_cost).step, *(after_ns(profile, change) for change in changes))
    return WhatIf(fix.id, fix.kind, *fix.subject, float(fix.times), predicted)


def _replayed(profile: Profile, changed: Model, slice_ns: int) -> tuple[float, float]:
    """Return the length of a replayed step, and what it takes at least (ns)."""
    sequence, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    times = replay(without_overhead(profile, changed, slice_ns))
    return clock(sequence, queue, times).step, least_step(sequence, queue, times)
