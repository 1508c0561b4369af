"""Steps that compile say little of how fast a program is: how long are the others?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.host_costs import compile_ns, compile_ns_in
from tb_torchcompile_plugin.profile.columns import Floats
from tb_torchcompile_plugin.profile.model.launch_sequence import loop_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_ns

_MOSTLY = 0.1  # of a step, from which on compiling makes it another one


class Compiling(NamedTuple):
    """Of the steps of one side: how many compile, for how long in all, and how long the others are (us)."""

    steps: int
    compile_us: float
    others_us: Floats


def compiling(profile: Profile) -> Compiling:
    """By the clock that sets the pace."""
    spent = np.array([profile.of(compile_ns)[name] for name in profile.of(StepWindows).names], np.int64)
    length = profile.of(step_ns)
    those = spent > _MOSTLY * length
    return Compiling(int(those.sum()), int(spent[those].sum()) / 1000, length[~those] / 1000)


def unmarked_compiling(profile: Profile) -> int:
    """How many steps compile, or tune a kernel, where the profiler marked none and the loop tells them."""
    if len(profile.of(StepWindows)):
        return 0
    moments = profile.of(loop_steps).moments
    spent = compile_ns_in(profile, moments[:-1], moments[1:])
    return int((spent > _MOSTLY * np.diff(moments)).sum())


def span_compiles(profile: Profile) -> bool:
    """Whether something is compiled in a span in which nothing tells steps: it is as little a steady one."""
    if len(profile.of(StepWindows)) or len(profile.of(loop_steps).moments):
        return False
    first, last = (np.array([moment], np.int64) for moment in profile.trace.window())
    return bool(compile_ns_in(profile, first, last).any())


def steps_that_compile(profile: Profile) -> int:
    """How many of the steps, whatever tells them: they are no steady ones."""
    return profile.of(compiling).steps + profile.of(unmarked_compiling)
