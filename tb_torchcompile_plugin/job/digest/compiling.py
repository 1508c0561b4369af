"""How long did a rank compile in each of its steps?"""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import compiling


def compile_ns(profile: Profile) -> dict[str, int]:
    """By step: how much of its time on the host any thread of the process was in torch's compiler."""
    steps = profile.of(StepWindows)
    return dict(zip(steps.names, compile_ns_in(profile, steps.starts, steps.ends).tolist()))


def compile_ns_in(profile: Profile, starts: Int64s, ends: Int64s) -> Int64s:
    """The same of any windows."""
    trace = profile.trace
    rows = trace.call_rows
    rows = rows[_compiling(trace)[trace.name[rows]]]
    return covered_ns(union(trace.ts[rows], trace.ts[rows] + trace.dur[rows]), starts, ends)


def _compiling(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(compiling(trace.names) or [False], bool)
