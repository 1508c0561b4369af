"""The steps that the model of a profile is of: marked by the profiler, or told by what every step of a loop does once.

Without a schedule nobody marks steps. Then a step lasts from the end of one call of the optimizer to that of the next;
in a loop without one, from one call of the outermost compiled region to the next.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.slices import LABEL, is_optimizer_step

StepSource = Literal["profiler", "optimizer", "compiled_region", "span"]
_FEWEST = 3  # calls: two steps at least, or nothing says that it is a loop


class LoopSteps(NamedTuple):
    """moments: the begins of the steps in order of time and the end of the last one (ns); [] where nothing tells steps:
    then the span is one. track: of the thread that runs the loop, -1 without steps. source: what tells them; region:
    the compile id of the region whose calls do, "" otherwise."""

    moments: Int64s
    track: int
    source: StepSource
    region: str = ""


def loop_steps(profile: Profile) -> LoopSteps:
    """The steps, one behind the other."""
    return _marked(profile) or _optimized(profile) or _called(profile) or LoopSteps(_NONE, -1, "span")


_NONE = np.zeros(0, np.int64)


def _marked(profile: Profile) -> LoopSteps | None:
    steps = profile.of(StepWindows)
    if not len(steps):
        return None
    moments = np.append(steps.starts, steps.ends[-1])
    return LoopSteps(moments, int(profile.trace.track[steps.rows[0]]), "profiler")


def _optimized(profile: Profile) -> LoopSteps | None:
    """By the optimizer that is called most often."""
    trace = profile.trace
    rows = host_slices(trace, is_optimizer_step, (LABEL,))
    if not len(rows):
        return None
    names, calls = np.unique(trace.name[rows], return_counts=True)
    rows = rows[trace.name[rows] == names[calls.argmax()]]
    ends = np.sort(trace.ts[rows] + trace.dur[rows])
    return LoopSteps(ends, int(trace.track[rows[0]]), "optimizer") if len(rows) >= _FEWEST else None


def _called(profile: Profile) -> LoopSteps | None:
    """By the outermost region that is called most often; of several the first."""
    calls = profile.of(region_calls)
    ((most, times),) = Counter(call.compile_id for call in calls).most_common(1) or ((None, 0),)
    if times < _FEWEST:
        return None
    mine = [call for call in calls if call.compile_id == most]
    moments = np.array([call.begin for call in mine], np.int64)
    return LoopSteps(moments, int(profile.trace.track[mine[0].index]), "compiled_region", most or "")
