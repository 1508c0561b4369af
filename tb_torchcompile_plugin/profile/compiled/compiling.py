"""When did torch compile? By the trace's own slices; where it has none, by the clock of the compile log."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import host_slices
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, is_compilation


def compiling(profile: Profile, track: int) -> Intervals:
    """On this thread, which the log does not tell; on the clock of the trace (ns)."""
    trace, rows = profile.trace, profile.of(_slices)
    if len(rows) or not profile.summary:
        return busy(trace, rows[trace.track[rows] == track])
    return compiled_when(profile.summary.compilations, trace.base_ns)


def compiling_in_trace(profile: Profile) -> Intervals:
    """When the trace itself shows compilation, on any thread (ns)."""
    return busy(profile.trace, profile.of(_slices))


def _slices(profile: Profile) -> Int64s:
    return host_slices(profile.trace, is_compilation, (*CALL_CATS, PYTHON_FUNCTION))


def compiled_when(rows: Iterable[Compilation], base_ns: int) -> Intervals:
    """When these were compiled, by the log, on the clock of a trace that begins at `base_ns` (ns)."""
    known = [row for row in rows if row.HasField("start_ns") and row.HasField("duration_ns")]
    starts = np.array([row.start_ns - base_ns for row in known], np.int64)
    return union(starts, starts + np.array([row.duration_ns for row in known], np.int64))
