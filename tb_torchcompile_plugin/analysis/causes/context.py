"""Facts about a profiled span that several causes share."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_points import eager_points
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.analysis.compile.compile_time import frames_us_in
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.step_picture import time_unit
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.columns import host_slices
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, compiled_calls, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import ran_packages
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns, share_percent, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time, step_ns
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import kernels, python_frames, slices

Row = TypeVar("Row")


class SpanContext:
    """A profiled span, with facts that several causes share."""

    def __init__(self, profile: Profile, predicted: Callable[[Profile], list[WhatIf]]) -> None:
        """Take the function that predicts fixes."""
        self.profile, self._predicted = profile, predicted
        self.summary = profile.summary  # of what the worker compiled
        self.compiler_calls = list(self.summary.compiler_calls) if self.summary else []
        self.found: list[Finding] = []  # by causes that were evaluated before
        # Whether the trace is complete: otherwise an absent event may have been lost.
        self.whole = not profile.trace.is_lossy
        self.steps = len(profile.of(StepWindows))  # that the profiler marked
        self.step_count = max(self.steps, 1)  # to divide by: without steps, the span is one
        self.where = "per step" if self.steps else "in this span"  # after a number
        self.time_unit = profile.of(time_unit)  # of predictions: a step, or the span
        self.windows = union(*profile.of(profiled_time))  # the steps, or the span where there are none
        # On the clock of the bottleneck.
        wall_ns = float(profile.of(step_ns).sum()) if self.steps else self.windows.total_ns
        self.wall_us = wall_ns / 1000
        self._gpu_ns = int(profile.trace.dur[profile.of(gpu_work).index].sum())
        # The share of the profiled time of eager operators, on the host or, if more, on the GPUs.
        eager = profile.of(eager_time)
        self.eager_percent = max(eager.share_percent or 0.0, eager.device_share_percent or 0.0)
        # Frames that torch runs eagerly because it cannot resume them or compiled them too often.
        self.given_up = [row for row in self.rows(problems) if row.ran_eager]
        # Profiler hooks that torch compiled.
        self.hooks = [row for row in self.rows(compilations) if python_frames.is_profiler_hook(row.function)]
        compiled, again = (self.summary.compilations, self.summary.recompiles) if self.summary else ((), ())
        keys = {key_of(row.key) for row in again}
        self.recompilations = [row for row in compiled if key_of(row.key) in keys]
        # Compile ids of all regions that were called, also of empty ones.
        self.regions_that_ran = {call.compile_id for call in all_calls(profile.of(region_calls))}
        self.nothing_compiled = self._is_all_eager()

    def _is_all_eager(self) -> bool:
        """Return whether eager operators but no compiled code ran in the profiled time.

        Eager operators count if they launched GPU work or, without a GPU, took a share of the time. Compiled code is
        regions with operations, and graphs (for example of a forward before the profiled time).
        """
        profile, trace = self.profile, self.profile.trace
        if len(profile.of(gpu_work).index):
            eager = bool(profile.of(eager_points).any())
        else:
            # Operators inside a region count as compiled here, even if the region has no operations.
            eager = self.eager_percent >= thresholds.gain_percent or bool(self.regions_that_ran)
        generated = kernels.GENERATED.intersection(profile.of(gpu_work).categories)
        if not eager or generated or profile.of(ran_packages):
            return False
        if not profile.of(region_calls) and any(map(slices.is_region, trace.names)):
            return False  # of torch before 2.6: regions without ids
        regions = [call.index for call in profile.of(compiled_calls)]
        rows = np.array([*regions, *host_slices(trace, slices.is_graph).tolist()], np.int64)
        return not self.inside_us(union(trace.ts[rows], trace.ts[rows] + trace.dur[rows]))

    def rows(self, question: Callable[[CompileData], list[Row]]) -> list[Row]:
        """Return the answer of the worker's compile data, [] without any."""
        return self.profile.data.of(question) if self.profile.data else []

    def best(self, kind: str, name: str = "") -> WhatIf | None:
        """Return the fix with the largest gain of this kind, or for this kernel; None without a prediction."""
        return next((row for row in self.fixes_of(kind) if name in ("", row.name)), None)

    def fixes_of(self, kind: str) -> list[WhatIf]:
        """Return the fixes of a kind with their predicted gains, largest gain first."""
        return [row for row in self.profile.of(self._predicted) if row.kind == kind]

    def share(self, us: float | None) -> float:
        """Return the percentage of the profiled time, 0 if it is unknown."""
        return 100 * us / self.wall_us if us is not None and self.wall_us else 0.0

    def gpu_share(self, us: float) -> float:
        """Return the percentage of the summed GPU event time, 0 without any."""
        return share_percent(round(us * 1000), self._gpu_ns) or 0.0

    def inside_us(self, intervals: Intervals) -> float:
        """Return how much of the profiled time these intervals cover."""
        return float(covered_ns(intervals, *self.windows).sum()) / 1000

    def compiling_us(self, rows: Iterable[Compilation]) -> float:
        """Return how much of the profiled time these were compiled."""
        return frames_us_in(rows, self.profile.trace.base_ns, self.windows)
