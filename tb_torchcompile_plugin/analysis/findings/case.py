"""What the rules look at: one profiled span with the compile data of its worker, or that data alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_torchcompile_plugin.analysis.findings.words import duration
from tb_torchcompile_plugin.analysis.gpu_utilization import busy
from tb_torchcompile_plugin.analysis.graph_break_costs import GraphBreakCost
from tb_torchcompile_plugin.analysis.intervals import Intervals, covered_ns, union
from tb_torchcompile_plugin.analysis.pauses import is_autotuning, is_collection
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.units import percent
from tb_torchcompile_plugin.summary_pb2 import Compilation, CompileSummary

_COMPILING = re.compile(
    r"^(?:_compile\.compile_inner|entire_(?:frame|backward)_compile)(?: \(dynamo_timed\))?$"
)


@dataclass(eq=False)
class Case:
    """`profile` is None where only compile data is looked at."""

    profile: Profile | None
    summary: CompileSummary | None

    @cached_property
    def windows(self) -> Intervals:
        """The profiled time: the steps, or the whole span where there are none."""
        if self.profile is None:
            return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
        trace, steps = self.profile.trace, self.profile.step_slices
        if len(steps):
            return union(trace.ts[steps], trace.ts[steps] + trace.dur[steps])
        first, last = trace.window()
        return Intervals(np.array([first]), np.array([last]))

    @property
    def wall_us(self) -> float:
        """How long the profiled time is."""
        return self.windows.total_ns / 1000

    @cached_property
    def steps(self) -> int:
        return len(self.profile.step_slices) if self.profile else 0

    @property
    def where(self) -> str:
        """What the profiled time is, behind a number: "a step" or "in this span"."""
        return "a step" if self.steps else "in this span"

    def each_us(self, us: float) -> float:
        """A step's part of a time that was summed over all of them."""
        return us / max(self.steps, 1)

    def each(self, us: float) -> str:
        """ "166 µs a step" """
        return f"{duration(self.each_us(us))} {self.where}"

    def share(self, us: float | None) -> float | None:
        """Percent of the profiled time."""
        return None if us is None or not self.wall_us else 100 * us / self.wall_us

    @cached_property
    def costs(self) -> list[GraphBreakCost]:
        """What graph breaks cost, dearest first."""
        return (self.profile and self.profile.graph_break_costs) or []

    def inside_us(self, found: Intervals) -> float:
        """How much of the profiled time these cover."""
        return float(covered_ns(found, *self.windows).sum()) / 1000

    def compiling(self, rows: Iterable[Compilation]) -> Intervals:
        """When these were compiled, on the clock of the trace."""
        known = [row for row in rows if row.HasField("start_ns") and row.HasField("duration_ns")]
        base = self.profile.trace.base_ns if self.profile else 0
        starts = np.array([row.start_ns - base for row in known], np.int64)
        return union(starts, starts + np.array([row.duration_ns for row in known], np.int64))

    @cached_property
    def compiling_in_trace(self) -> Intervals:
        """When the trace itself shows compilation."""
        return self._named(lambda name: _COMPILING.match(name) is not None)

    @cached_property
    def autotuning(self) -> Intervals:
        """When kernels were tuned."""
        return self._named(is_autotuning)

    @cached_property
    def collecting(self) -> Intervals:
        """When Python collected garbage, as far as that was recorded."""
        return self._named(is_collection)

    def _named(self, wanted: Callable[[str], bool]) -> Intervals:
        if self.profile is None:
            return self.windows
        trace = self.profile.trace
        codes = [code for code, name in enumerate(trace.names) if wanted(name)]
        rows = trace.select(cat=("cpu_op", "user_annotation", "python_function"))
        return busy(trace, rows[np.isin(trace.name[rows], codes)])

    def gpu_share(self, us: float) -> float | None:
        """Percent of the summed GPU event time."""
        if self.profile is None:
            return None
        return percent(round(us * 1000), int(self.profile.trace.dur[self.profile.work.index].sum()))
