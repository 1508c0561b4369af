"""What is a rule, what does it evaluate, and what does it find?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, TypedDict, TypeVar

import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import eager_points
from tb_torchcompile_plugin.analysis.causes.fix import FixKind
from tb_torchcompile_plugin.analysis.causes.scenario import priced
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilations import problems
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Panel, Severity, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, function_at
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.step_words import paced
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, Frame
from tb_torchcompile_plugin.profile.columns import host_slices
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls, compiled_when, every, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import ran_packages
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_time, step_ns, step_slices
from tb_torchcompile_plugin.profile.units import share_percent
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.slices import is_graph, is_region

if TYPE_CHECKING:
    from typing_extensions import Unpack

Row = TypeVar("Row")


class SpanContext:
    """A profiled span, with what several rules ask about it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.summary = profile.summary  # of what the worker compiled
        # Whether nothing is missing in the trace: otherwise it is unknown what it does not hold.
        self.whole = not profile.trace.notices
        self.steps = len(profile.of(step_slices))  # that the profiler marked
        self.step_count = max(self.steps, 1)  # to divide by: without steps, the span is one
        self.where = "a step" if self.steps else "in this span"  # after a number
        self.paced = profile.of(paced)  # what predictions are of: a step, or the span
        self.windows = union(*profile.of(profiled_time))  # the steps, or the span where there are none
        # By the clock that is the bottleneck of the steps.
        wall_ns = float(profile.of(step_ns).sum()) if self.steps else self.windows.total_ns
        self.wall_us = wall_ns / 1000
        eager = profile.of(eager_time)
        # The share of the profiled time of eager operators, on the host or, if more, on the GPUs.
        self.eager_percent = max(eager.share_percent or 0.0, eager.device_share_percent or 0.0)
        # Frames that torch runs eager, because it cannot resume them or compiled them too often.
        self.given_up = [row for row in self.rows(problems) if row.given_up]
        compiled, again = (self.summary.compilations, self.summary.recompiles) if self.summary else ((), ())
        keys = {(row.key.epoch, row.key.compile_id) for row in again}
        self.recompilations = [row for row in compiled if (row.key.epoch, row.key.compile_id) in keys]
        # Compile ids of the regions that were called, whatever they hold.
        self.regions_that_ran = {call.compile_id for call in every(profile.of(region_calls))}
        self.nothing_compiled = self._is_all_eager()

    def _is_all_eager(self) -> bool:
        """Return whether eager operators ran in the profiled time and nothing compiled did.

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

    def rows(self, question: Callable[[CompileData], list[Row]]) -> list[Row]:
        """Return the answer of the worker's compile data, [] without any."""
        return self.profile.data.of(question) if self.profile.data else []

    def best(self, kind: FixKind, name: str = "") -> WhatIf | None:
        """Return the fix with the largest gain of this kind, or for this kernel; None where nothing is predicted."""
        rows = (row for row in self.profile.of(priced) if row.kind == kind)
        return next((row for row in rows if name in ("", row.name)), None)

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

    def compiling_us(self, rows: Iterable[Compilation]) -> float:
        """Return how much of the profiled time these were compiled."""
        return self.inside_us(compiled_when(rows, self.profile.trace.base_ns))


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
