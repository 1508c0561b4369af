"""What is a rule, what does it evaluate, and what does it find?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypedDict, TypeVar

import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import eager_points
from tb_torchcompile_plugin.analysis.causes.fix import FixKind
from tb_torchcompile_plugin.analysis.causes.scenario import priced
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Panel, Severity, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, function_at
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.step_words import Paced, paced
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary, Frame
from tb_torchcompile_plugin.profile.columns import host_slices
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls, compiled_when, every, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import ran_packages
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_time, step_ns, step_slices
from tb_torchcompile_plugin.profile.units import share_percent
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.slices import is_graph, is_region

if TYPE_CHECKING:
    from typing_extensions import Unpack

Row = TypeVar("Row")


@dataclass(eq=False)
class SpanContext:
    """A profiled span, with what several rules ask about it."""

    profile: Profile

    def rows(self, question: Callable[[CompileData], list[Row]]) -> list[Row]:
        """Return the answer of the worker's compile data, [] without any."""
        return self.profile.data.of(question) if self.profile.data else []

    @property
    def summary(self) -> CompileSummary | None:
        """The compile summary of the worker."""
        return self.profile.summary

    @once
    def windows(self) -> Intervals:
        """The profiled time: the steps, or the whole span where there are none."""
        return union(*self.profile.of(profiled_time))

    @once
    def steps(self) -> int:
        """How many steps the profiler marked."""
        return len(self.profile.of(step_slices))

    @property
    def wall_us(self) -> float:
        """How long the profiled time is, by the clock that is the bottleneck of the steps."""
        if self.steps:
            return float(self.profile.of(step_ns).sum()) / 1000
        return self.windows.total_ns / 1000

    def fixes(self, kind: FixKind) -> list[WhatIf]:
        """Return the fixes of this kind, largest gain first."""
        return [row for row in self.profile.of(priced) if row.kind == kind]

    def best(self, kind: FixKind, name: str = "") -> WhatIf | None:
        """Return the fix with the largest gain of this kind, or for this kernel; None where nothing is predicted."""
        return next((row for row in self.fixes(kind) if name in ("", row.name)), None)

    @once
    def given_up(self) -> list[Problem]:
        """Frames that torch runs eager, because it cannot resume them or compiled them too often."""
        return [row for row in self.rows(problems) if row.given_up]

    @once
    def nothing_compiled(self) -> bool:
        """Whether eager operators ran in the profiled time and nothing compiled did.

        Eager operators count where they launched work, or took a share of the time where there is no GPU; compiled are
        regions that hold operations, and graphs, as of a forward before the profiled time.
        """
        profile, trace = self.profile, self.profile.trace
        if len(profile.of(gpu_work).index):
            eager = bool(profile.of(eager_points).any())
        else:
            eager = self.eager_percent >= thresholds.gain_percent
        if not eager or profile.of(ran_packages):
            return False
        if not profile.of(region_calls) and any(map(is_region, trace.names)):
            return False  # of torch before 2.6: regions without ids
        regions = [call.index for call in profile.of(compiled_calls)]
        rows = np.array([*regions, *host_slices(trace, is_graph).tolist()], np.int64)
        return not self.inside_us(union(trace.ts[rows], trace.ts[rows] + trace.dur[rows]))

    @once
    def regions_that_ran(self) -> set[str]:
        """Compile ids of the regions that were called, whatever they hold."""
        return {call.compile_id for call in every(self.profile.of(region_calls))}

    @property
    def whole(self) -> bool:
        """Whether nothing is missing in the trace: otherwise it is unknown what it does not hold."""
        return not self.profile.trace.notices

    @property
    def eager_percent(self) -> float:
        """The share of the profiled time of eager operators, on the host or, if more, on the GPUs."""
        eager = self.profile.of(eager_time)
        return max(eager.share_percent or 0.0, eager.device_share_percent or 0.0)

    @property
    def paced(self) -> Paced:
        """What predictions are of: a step, or the span."""
        return self.profile.of(paced)

    @property
    def where(self) -> str:
        """What the profiled time is, after a number: "a step" or "in this span"."""
        return "a step" if self.steps else "in this span"

    def each_us(self, us: float) -> float:
        """Return the mean per step of a time that was summed over all of them."""
        return us / max(self.steps, 1)

    def each(self, us: float) -> str:
        """Return "166 µs a step"."""
        return f"{duration(self.each_us(us))} {self.where}"

    def share(self, us: float | None) -> float:
        """Return the percentage of the profiled time, 0 where it is unknown."""
        return 100 * us / self.wall_us if us is not None and self.wall_us else 0.0

    def gpu_share(self, us: float) -> float:
        """Return the percentage of the summed GPU event time, 0 where there is none."""
        trace, rows = self.profile.trace, self.profile.of(gpu_work).index
        return share_percent(round(us * 1000), int(trace.dur[rows].sum())) or 0.0

    def inside_us(self, intervals: Intervals) -> float:
        """Return how much of the profiled time these intervals cover."""
        return float(covered_ns(intervals, *self.windows).sum()) / 1000

    def compiling(self, rows: Iterable[Compilation]) -> Intervals:
        """Return when these were compiled, on the clock of the trace."""
        return compiled_when(rows, self.profile.trace.base_ns)


class Details(TypedDict, total=False):
    """The fields of a finding that not all findings have."""

    saves_us: float | None
    row: str | None
    where: list[str]
    code: str | None
    advised: bool


class Rule:
    """One question with a threshold."""

    id: ClassVar[str]  # never changes: people switch rules off by it
    panel: ClassVar[Panel]

    def __init_subclass__(cls, id: str = "", panel: Panel | None = None) -> None:
        super().__init_subclass__()
        if panel:
            cls.id, cls.panel = id, panel

    def finding(
        self,
        context: SpanContext | None,
        title: str,
        next_step: str,
        evidence: Evidence,
        *,
        by: WhatIf | None = None,
        severity: Severity | None = None,
        **details: Unpack[Details],
    ) -> Finding:
        """Return a finding of this rule that the fix `by` would remove.

        Without a severity the predicted gain determines it, as a share of a step; without a prediction the share of the
        profiled time that it would save.
        """
        share = context.share(details.get("saves_us")) if context else None
        finding = Finding(
            rule=self.id,
            severity=severity or severity_of(by.predicted.gain_percent if by else share),
            title=title,
            evidence=evidence,
            saves_us=None,
            panel=self.panel,
            row=None,
            next_step=next_step,
            predicted=by.predicted if by else None,
            fix=by.id if by else None,
        )
        return replace(finding, **details)


class SpanRule(Rule, ABC):
    """A rule about one profiled span."""

    @abstractmethod
    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield what the span shows, most important first."""


class CompileRule(Rule, ABC):
    """A rule that needs no trace."""

    @abstractmethod
    def evaluate_data(self, data: CompileData) -> Iterator[Finding]:
        """Yield what the compile data of a worker shows, most important first."""


# Frames of libraries and of torch itself are named with the user's line that led to them.


def called_at(stack: Sequence[Frame]) -> str:
    """Return the user's line that led to the last frame of a stack; "" where that is the user's own."""
    return "" if not stack or is_users_file(stack[-1].file) else users_line(stack)


def users_line(stack: Sequence[Frame]) -> str:
    """Return the last line of the user's in a stack, "" where there is none."""
    users = [frame for frame in stack if is_users_file(frame.file)]
    return at_line(users[-1].file, users[-1].line) if users else ""


def named_with_caller(function: str, file: str, line: int | None, caller: str) -> str:
    """Return "step (train.py:12)" or "inner (external_utils.py:67), called at train.py:12,"."""
    named = function_at(function, file, line)
    return f"{named}, called at {caller}," if caller else named
