"""What the rules look at: one profiled span with the compile data of its worker, or that data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import eager_points, given_up
from tb_torchcompile_plugin.analysis.causes.fix import FixKind, changing_graphs
from tb_torchcompile_plugin.analysis.causes.scenario import priced
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf, why_nothing
from tb_torchcompile_plugin.analysis.compile.break_costs import GraphBreakCost, graph_break_costs
from tb_torchcompile_plugin.analysis.compile.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, function_at
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import asks_for_graphs
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.launch_stats import cudagraph_skip_reasons, cudagraph_skips
from tb_torchcompile_plugin.analysis.runtime.step_words import A_STEP, Paced, paced
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary, Frame
from tb_torchcompile_plugin.profile.columns import host_slices
from tb_torchcompile_plugin.profile.compiled.regions import (
    compiled_calls,
    compiled_when,
    compiling_in_trace,
    every,
    region_calls,
)
from tb_torchcompile_plugin.profile.gpu.launches import ran_packages
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_time, step_ns, step_slices
from tb_torchcompile_plugin.profile.units import share_percent
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.slices import (
    CALL_CATS,
    PYTHON_FUNCTION,
    is_autotuning,
    is_collection,
    is_graph,
    is_region,
)


@dataclass(eq=False)
class RuleContext:
    """`profile` is None where only compile data is looked at."""

    profile: Profile | None
    data: CompileData | None

    @property
    def summary(self) -> CompileSummary | None:
        return self.data.summary if self.data else None

    @once
    def windows(self) -> Intervals:
        """The profiled time: the steps, or the whole span where there are none."""
        if self.profile is None:
            return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return union(*self.profile.of(profiled_time))

    @property
    def wall_us(self) -> float:
        """How long the profiled time is, by the clock that sets the pace of the steps."""
        if self.profile is not None and self.steps:
            return float(self.profile.of(step_ns).sum()) / 1000
        return self.windows.total_ns / 1000

    @once
    def steps(self) -> int:
        return len(self.profile.of(step_slices)) if self.profile else 0

    def fixes(self, kind: FixKind) -> list[WhatIf]:
        """What mending things of this kind would bring, largest gain first."""
        return [row for row in self.profile.of(priced) if row.kind == kind] if self.profile else []

    def best(self, kind: FixKind, name: str = "") -> WhatIf | None:
        """The largest gain of this kind, or of this operator or kernel; None where no model tells."""
        return next((row for row in self.fixes(kind) if name in ("", row.name)), None)

    @once
    def predicts(self) -> bool:
        """Whether a model tells what mending something brings; then what it does not price brings nothing."""
        return self.profile is not None and self.profile.of(why_nothing) is None

    @property
    def cuda_graphs_asked(self) -> bool:
        """Whether inductor was told to use CUDA graphs."""
        skips = self.data and (self.data.of(cudagraph_skips) or self.data.of(cudagraph_skip_reasons))
        return bool(skips or (self.profile and self.profile.of(asks_for_graphs)))

    @once
    def changing(self) -> dict[str, list[str]]:
        """The compiled graphs that ran and whose sizes are not fixed, with these: {"0/0": ["s77"]}."""
        return self.profile.of(changing_graphs) if self.profile else {}

    @once
    def given_up(self) -> list[Problem]:
        """Frames that torch runs eager: it cannot resume them, or compiled them too often."""
        rows = self.data.of(problems) if self.data else []
        return [row for row in rows if row.given_up]

    @once
    def nothing_compiled(self) -> bool:
        """Whether eager operators launched work in the profiled time, or where there is no GPU took a share of it, and
        nothing compiled ran in it: no region that holds operations, and no graph, as of a forward before it."""
        if self.profile is None:
            return False
        if len(self.profile.of(gpu_work).index):
            eager = bool(self.profile.of(eager_points).any())
        else:
            eager = (self.eager_percent or 0.0) >= thresholds.gain_percent
        if not eager or self.profile.of(ran_packages):
            return False
        if not self.profile.of(region_calls) and any(map(is_region, self.profile.trace.names)):
            return False  # of torch before 2.6: regions without ids
        regions = [call.index for call in self.profile.of(compiled_calls)]
        ran = [*regions, *host_slices(self.profile.trace, is_graph).tolist()]
        rows, trace = np.array(ran, np.int64), self.profile.trace
        return not self.inside_us(union(trace.ts[rows], trace.ts[rows] + trace.dur[rows]))

    @once
    def regions_that_ran(self) -> set[str]:
        """Compile ids of the regions that were called, whatever they hold."""
        return {call.compile_id for call in every(self.profile.of(region_calls))} if self.profile else set()

    @once
    def calls_of_one_graph(self) -> float:
        """How often a step the compiled region is called that is called most."""
        calls = (
            Counter(call.compile_id for call in every(self.profile.of(region_calls)))
            if self.profile
            else Counter()
        )
        return max(calls.values(), default=0) / max(self.steps, 1)

    @property
    def whole(self) -> bool:
        """Whether there is a trace of which nothing is missing: of another one nobody knows what it does not hold."""
        return self.profile is not None and not self.profile.trace.notices

    @property
    def eager_percent(self) -> float | None:
        """What share of the profiled time eager operators run, on the host or, if more, of the GPUs' work."""
        if self.profile is None:
            return None
        eager = self.profile.of(eager_time)
        return max(eager.share_percent or 0.0, eager.device_share_percent or 0.0)

    @property
    def runs_eager(self) -> bool:
        return self.profile is not None and (self.nothing_compiled or self.profile.of(given_up))

    @property
    def paced(self) -> Paced:
        """Of what predictions are."""
        return A_STEP if self.profile is None else self.profile.of(paced)

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

    @once
    def costs(self) -> list[GraphBreakCost]:
        """What graph breaks cost, dearest first."""
        return (self.profile and self.profile.of(graph_break_costs)) or []

    def inside_us(self, intervals: Intervals) -> float:
        """How much of the profiled time these cover."""
        return float(covered_ns(intervals, *self.windows).sum()) / 1000

    def compiling(self, rows: Iterable[Compilation]) -> Intervals:
        """When these were compiled, on the clock of the trace."""
        return compiled_when(rows, self.profile.trace.base_ns if self.profile else 0)

    @once
    def compiling_in_trace(self) -> Intervals:
        """When the trace itself shows compilation."""
        return self.profile.of(compiling_in_trace) if self.profile else self.windows

    @once
    def autotuning(self) -> Intervals:
        """When kernels were tuned."""
        return self._named(is_autotuning)

    @once
    def collecting(self) -> Intervals:
        """When Python collected garbage, as far as that was recorded."""
        return self._named(is_collection)

    def _named(self, wanted: Callable[[str], bool]) -> Intervals:
        if self.profile is None:
            return self.windows
        trace = self.profile.trace
        return busy(trace, host_slices(trace, wanted, (*CALL_CATS, PYTHON_FUNCTION)))

    def gpu_share(self, us: float) -> float | None:
        """Percent of the summed GPU event time."""
        if self.profile is None:
            return None
        return share_percent(
            round(us * 1000), int(self.profile.trace.dur[self.profile.of(gpu_work).index].sum())
        )


# Frames of libraries and of torch's own, which no user wrote: named with the line of the user's behind
# them.


def called_at(stack: Sequence[Frame]) -> str:
    """Of the frame at the end of a stack the line of the user's that led to it; "" where it is the user's own, as torch
    puts some around a module or a hook."""
    if not stack or is_users_file(stack[-1].file):
        return ""
    users = [frame for frame in stack if is_users_file(frame.file)]
    return at_line(users[-1].file, users[-1].line) if users else ""


def frame_called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> str:
    """The same of a compiled frame, by its first compilation that has a stack: one that torch gave up has none."""
    frame = compile_id.partition("/")[0]
    stacks = (
        row.stack
        for row in (summary.compilations if summary else ())
        if row.stack and row.key.epoch == epoch and row.key.compile_id.partition("/")[0] == frame
    )
    return called_at(next(stacks, ()))


def break_called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> str:
    """The user's line that led to the break in a library for which a frame was given up; "" where it is another's."""
    for row in summary.graph_breaks if summary else ():
        if (row.key.epoch, row.key.compile_id) == (epoch, compile_id):
            users = [frame for frame in row.stack if is_users_file(frame.file)]
            return "" if is_users_file(row.file) or not users else at_line(users[-1].file, users[-1].line)
    return ""


def named_with_caller(function: str, file: str, line: int | None, caller: str) -> str:
    """ "step (train.py:12)", "inner (external_utils.py:67), called at train.py:12," """
    named = function_at(function, file, line)
    return f"{named}, called at {caller}," if caller else named
