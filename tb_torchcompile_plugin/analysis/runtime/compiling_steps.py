"""Tell steps that compile from the others: how many there are, and how long the others take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.job.digest.host_costs import compile_ns, compile_ns_in
from tb_torchcompile_plugin.profile.columns import Floats
from tb_torchcompile_plugin.profile.model.launch_sequence import loop_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_ns

# Share of a step spent compiling from which on it is not a steady one; a judgement without a recorded source.
_COMPILING_SHARE = 0.1


class Compiling(NamedTuple):
    """The profiled steps that compile, and the others."""

    steps: int  # how many compile
    compile_us: float  # that they spend compiling, together
    others_us: Floats  # how long each other step takes


def compiling(profile: Profile) -> Compiling:
    """Return the steps that compile, on the clock of host or GPU, whichever is slower."""
    spent = np.array([profile.of(compile_ns)[name] for name in profile.of(StepWindows).names], np.int64)
    length = profile.of(step_ns)
    compiles = spent > _COMPILING_SHARE * length
    return Compiling(int(compiles.sum()), int(spent[compiles].sum()) / 1000, length[~compiles] / 1000)


def steps_that_compile(profile: Profile) -> int:
    """Return how many steps compile or tune a kernel, marked by the profiler or inferred from the loop."""
    if len(profile.of(StepWindows)):
        return profile.of(compiling).steps
    moments = profile.of(loop_steps).moments
    spent = compile_ns_in(profile, moments[:-1], moments[1:])
    return int((spent > _COMPILING_SHARE * np.diff(moments)).sum())


def span_compiles(profile: Profile) -> bool:
    """Return whether anything is compiled in a span without steps: then it is not steady."""
    if len(profile.of(StepWindows)) or len(profile.of(loop_steps).moments):
        return False
    first, last = (np.array([moment], np.int64) for moment in profile.trace.window())
    return bool(compile_ns_in(profile, first, last).any())
