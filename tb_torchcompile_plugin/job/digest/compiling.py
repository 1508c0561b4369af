"""How long did a rank compile in each of its steps?"""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.intervals import covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, compiling


def compile_ns(profile: Profile) -> dict[str, int]:
    """By step: how much of its time on the host any thread of the process was in torch's compiler."""
    trace, steps = profile.trace, profile.of(StepWindows)
    rows = trace.select(cat=CALL_CATS)
    rows = rows[_compiling(trace)[trace.name[rows]]]
    spent = covered_ns(union(trace.ts[rows], trace.ts[rows] + trace.dur[rows]), steps.starts, steps.ends)
    return dict(zip(steps.names, spent.tolist()))


def _compiling(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(compiling(trace.names) or [False], bool)
