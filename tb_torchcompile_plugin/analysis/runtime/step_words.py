"""What tells the steps, and by how much recording slowed them: the words of every sentence about a step."""

from __future__ import annotations

from typing import NamedTuple

from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.profile.model.clock import step_clock
from tb_torchcompile_plugin.profile.model.launch_sequence import StepSource, host_lane, is_cut, loop_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import recorded_step_ns, unrecorded_step_ns
from tb_torchcompile_plugin.profile.units import us


class Paced(NamedTuple):
    """Of what times are, where steps are known or where the span is one. one: "a step"; each: behind a number."""

    one: str
    each: str


A_STEP, THE_SPAN = Paced("a step", "a step"), Paced("this span", "in this span")


def told_by(profile: Profile) -> str:
    """ "told by the optimizer's calls"; "" where the profiler marked the steps."""
    loop = profile.of(loop_steps)
    words: dict[StepSource, str] = {
        "profiler": "",
        "optimizer": "told by the optimizer's calls",
        "compiled_region": f"told by calls of compiled region {loop.region}",
        "span": "no steps were marked",
    }
    return words[loop.source]


def only(profile: Profile) -> str:
    """ "the first 2 of 39 steps": all that the model holds where there are very many calls; "" where it holds all."""
    if not profile.of(is_cut):
        return ""
    steps, held = len(profile.of(loop_steps).moments) - 1, profile.of(host_lane).steps
    if steps < 1:
        return f"its first {profile.most_calls:,} calls"
    return f"the first {f'{held:,} ' if held > 1 else ''}of {steps:,} steps"


def idle_of(profile: Profile) -> str:
    """Of what times of the model are: "a step", "the span", or "the first of 39 steps"."""
    part = profile.of(only)
    if profile.of(paced) is THE_SPAN:
        return f"the span, {part}" if part else "the span"
    held = profile.of(host_lane).steps
    return f"a step of {part}" if part and held > 1 else part or "a step"


def paced(profile: Profile) -> Paced:
    """What predictions are of: a step, or the span where nothing tells steps."""
    return THE_SPAN if profile.of(loop_steps).source == "span" else A_STEP


def slowed(profile: Profile, least: float = 1.0) -> str:
    """ "Recording slowed a step from 9.80 ms to 42.5 ms"; "" where it took less than `least` times as long, or nobody
    noted it, and where a GPU sets the pace: the notes are the host's, which runs ahead.

    The notes of recorded steps and of others end at the same call; without enough of the former the trace tells.
    """
    pace = profile.of(step_clock)
    if pace and pace.host_is_ahead:
        return ""
    unrecorded = profile.data.of(unrecorded_step_ns) if profile.data else None
    recorded = (profile.data and profile.data.of(recorded_step_ns)) or profile.of(_recorded_ns)
    if not unrecorded or recorded <= unrecorded or recorded < least * unrecorded:
        return ""
    return f"Recording slowed a step from {duration(us(unrecorded))} to {duration(us(recorded))}"


def _recorded_ns(profile: Profile) -> int:
    pace = profile.of(step_clock)
    return round(pace.host) if pace else 0
