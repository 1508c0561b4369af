"""When did torch compile? By the trace's own slices; where it has none, by the clock of the compile log."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Intervals, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, is_compilation


def compiling(profile: Profile) -> Intervals:
    """On any thread, on the clock of the trace (ns)."""
    shown = profile.of(compiling_in_trace)
    if len(shown.starts) or not profile.summary:
        return shown
    return compiled_when(profile.summary.compilations, profile.trace.base_ns)


def compiling_in_trace(profile: Profile) -> Intervals:
    """When the trace itself shows compilation (ns)."""
    trace = profile.trace
    return busy(trace, host_slices(trace, is_compilation, (*CALL_CATS, PYTHON_FUNCTION)))


def compiled_when(rows: Iterable[Compilation], base_ns: int) -> Intervals:
    """When these were compiled, by the log, on the clock of a trace that begins at `base_ns` (ns)."""
    known = [row for row in rows if row.HasField("start_ns") and row.HasField("duration_ns")]
    starts = np.array([row.start_ns - base_ns for row in known], np.int64)
    return union(starts, starts + np.array([row.duration_ns for row in known], np.int64))
