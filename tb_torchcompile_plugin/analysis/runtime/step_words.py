"""Say how steps were found and by how much profiling slowed them, in the words of every sentence about a step."""

from __future__ import annotations

from typing import NamedTuple

from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.profile.model.clock import step_clock
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    StepSource,
    is_truncated,
    launch_sequence,
    loop_steps,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_step_ns, unprofiled_step_ns
from tb_torchcompile_plugin.profile.units import us


class TimeUnit(NamedTuple):
    """What times are of, in words."""

    one: str  # "a step"
    each: str  # after a number


PER_STEP, PER_SPAN = TimeUnit("a step", "a step"), TimeUnit("this span", "in this span")


def how_steps_were_found(profile: Profile) -> str:
    """Return "told by the optimizer's calls"; "" where the profiler marked the steps."""
    loop = profile.of(loop_steps)
    words: dict[StepSource, str] = {
        "profiler": "",
        "optimizer": "told by the optimizer's calls",
        "compiled_region": f"told by calls of compiled region {loop.region}",
        "span": "no steps were marked",
    }
    return words[loop.source]


def modeled_steps(profile: Profile) -> str:
    """Return "the first 2 of 39 steps", if the model has too many calls to hold all steps; "" otherwise."""
    if not profile.of(is_truncated):
        return ""
    steps, held = len(profile.of(loop_steps).moments) - 1, profile.of(launch_sequence).steps
    if steps < 1:
        return f"its first {profile.most_calls:,} calls"
    return f"the first {f'{held:,} ' if held > 1 else ''}of {steps:,} steps"


def time_base(profile: Profile) -> str:
    """Return what times of the model are of: "a step", "the span", or "the first of 39 steps"."""
    part = profile.of(modeled_steps)
    if profile.of(time_unit) is PER_SPAN:
        return f"the span, {part}" if part else "the span"
    return f"a step of {part}" if part and profile.of(launch_sequence).steps > 1 else part or "a step"


def time_unit(profile: Profile) -> TimeUnit:
    """Return what predictions are of: a step, or the span where no steps were found."""
    return PER_SPAN if profile.of(loop_steps).source == "span" else PER_STEP


def profiling_slowdown(profile: Profile, least: float = 1.0) -> str:
    """Return "Recording slowed a step from 9.80 ms to 42.5 ms"; "" for less than `least` times as long, or unknown.

    Nothing is known where the GPU is slower: the handler notes times of the host, which runs ahead. The notes of
    profiled and unprofiled steps end at the same call; without enough of the former the trace is used.
    """
    pace = profile.of(step_clock)
    if pace and pace.host_is_ahead:
        return ""
    unprofiled = profile.data.of(unprofiled_step_ns) if profile.data else None
    profiled = profile.data.of(profiled_step_ns) if profile.data else None
    profiled = profiled or (round(pace.host) if pace else 0)
    if not unprofiled or profiled <= unprofiled or profiled < least * unprofiled:
        return ""
    return f"Recording slowed a step from {duration(us(unprofiled))} to {duration(us(profiled))}"
