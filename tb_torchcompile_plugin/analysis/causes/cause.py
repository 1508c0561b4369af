"""Causes of slow steps: how each one is detected, what its fix changes, and how it is described.

Each cause is a class in the file of its family. Its docstring is its row in docs/reference/findings.md. A priced cause
changes the model of the step (fix.py), and is reported if the replayed step is sufficiently shorter.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_points import eager_points
from tb_torchcompile_plugin.analysis.causes.fix import Fix
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.analysis.compile.compile_time import frames_us_in
from tb_torchcompile_plugin.analysis.finding import (
    SECTIONS,
    Finding,
    Panel,
    Predicted,
    Role,
    Severity,
    severity_of,
)
from tb_torchcompile_plugin.analysis.formatting import about, at_line, count_per_step, duration, function_at
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.step_picture import PER_STEP, TimeUnit, time_unit
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAME_CHARS
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, Frame
from tb_torchcompile_plugin.generated_code.output_code import Frame as SourceFrame
from tb_torchcompile_plugin.profile.columns import Intervals, covered_ns, host_slices, share_percent, union
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, compiled_calls, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import ran_packages
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time, step_ns
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import kernels, python_frames, slices
from tb_torchcompile_plugin.torch_names.kernels import short_kernel
from tb_torchcompile_plugin.torch_names.python_frames import is_user_file

Row = TypeVar("Row")


class SpanContext:
    """A profiled span, with facts that several causes share."""

    def __init__(self, profile: Profile, predicted: Callable[[Profile], list[WhatIf]]) -> None:
        self.profile, self._predicted = profile, predicted
        self.summary = profile.summary  # of what the worker compiled
        self.compiler_calls = list(self.summary.compiler_calls) if self.summary else []
        self.found: list[Finding] = []  # by causes that were evaluated before
        # Whether the trace is complete: otherwise an absent event may have been lost.
        self.whole = not profile.trace.is_lossy
        self.steps = len(profile.of(StepWindows))  # that the profiler marked
        self.step_count = max(self.steps, 1)  # to divide by: without steps, the span is one
        self.time_unit = profile.of(time_unit)  # of predictions: a step, or the span
        self.windows = union(*profile.of(profiled_time))  # the steps, or the span where there are none
        # On the clock of the bottleneck.
        self.wall_us = float(profile.of(step_ns).sum() if self.steps else self.windows.total_ns) / 1000
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
        # Of torch before 2.6: regions without ids.
        unnamed = not profile.of(region_calls) and any(map(slices.is_region, trace.names))
        if not eager or generated or unnamed or profile.of(ran_packages):
            return False
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


class Cause:
    """One cause of a slow step, or of an incomplete recording."""

    id: ClassVar[str]  # of its findings; stable: users disable findings by it
    panel: ClassVar[Panel]
    section: ClassVar[str] = ""  # of the panel, for findings without a row; "" is the first one
    role: ClassVar[Role] = "specific"
    superseded_by: ClassVar[tuple[str, ...]] = ()  # ids that show the same problem with its cost or root
    needs_records: ClassVar[bool] = True  # False: valid even if records of GPUs or operators are missing
    needs_all: ClassVar[bool] = False  # True: not reported if the trace is known to lack events
    limits: ClassVar[tuple[str, ...]] = ()  # names in thresholds.py

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        """Yield the findings of a profiled span, most important first."""
        return iter(())

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        """Yield the findings that need only the compile data of a worker."""
        return iter(())

    def finding(  # noqa: PLR0913  # all but the first three are options
        self,
        title: str,
        next_step: str,
        evidence: Mapping[str, float | None],
        *,
        by: WhatIf | None = None,
        share: float | None = None,
        severity: Severity | None = None,
        predicted: Predicted | None = None,
        code: str | None = "",
        role: Role | None = None,
        advised: bool = True,
        saves_us: float | None = None,
        row: str | None = None,
        where: Iterable[str] = (),
    ) -> Finding:
        """Return a finding of this cause that the fix `by` would remove.

        The default severity follows from the predicted gain (share of a step), or from `share` (saved share of the
        profiled time). Unknown evidence and lines are omitted. The default `code` is the part of the next step in
        backquotes.
        """
        predicted = predicted or (by.predicted if by else None)
        if code == "":
            next_step, code = split_code(next_step)
        return Finding(
            rule=self.id,
            severity=severity or severity_of(predicted.gain_percent if predicted else share),
            title=title,
            evidence={name: number for name, number in evidence.items() if number is not None},
            saves_us=saves_us,
            panel=self.panel,
            section=self.section or SECTIONS[self.panel][0],
            role=role or self.role,
            row=row,
            next_step=next_step,
            predicted=predicted,
            where=list(filter(None, where)),
            fix=by.id if by else None,
            code=code if advised else None,
            advised=advised,
        )


class Words(NamedTuple):
    """The text of a priced cause.

    Placeholders of `title`: {name} the operator, call or function; {place} the user's line; {times} and {often}, such
    as "2" and "2 times"; {graphs} "2 compiled graphs"; {each} "per step"; {s} and {are} agree with these.
    """

    title: str  # the cause, as a sentence
    next_step: str  # what to write instead; code to paste is in backquotes
    fixed: str  # opens the sentence with the predicted time


class PricedCause(Cause):
    """A cause whose fix changes the model of the step: its gain is predicted."""

    kind: ClassVar[str]  # of its fixes; its id by default
    words: ClassVar[Words]
    is_named_by_kernel: ClassVar[bool] = False
    blocking_percent: ClassVar[float] = 0.0  # of a step: least gain of a cause whose role is blocking
    varies: ClassVar[bool] = False  # True: the gain differs between programs, so the title says "up to"

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__dict__ and "id" in cls.__dict__:
            cls.kind = cls.id

    def fixes(self, profile: Profile) -> Iterator[Fix]:
        """Yield its possible fixes, whatever they gain."""
        return iter(())

    def words_of(self, row: WhatIf) -> Words:
        """Return the text of one of its fixes, with placeholders."""
        return self.words

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        """Yield its fixes with a large predicted gain."""
        return (self.advise(context, row) for row in self.large(context))

    def large(self, context: SpanContext) -> list[WhatIf]:
        """Return its fixes that gain enough to be a finding, largest gain first."""
        rows = context.fixes_of(self.kind)
        return [row for row in rows if row.predicted.gain_percent >= thresholds.gain_percent]

    def advise(
        self, context: SpanContext, row: WhatIf, *, title_end: str = "", next_step: str = "", where: str = ""
    ) -> Finding:
        """Return the finding of one fix; `title_end`, `next_step` and `where` change its text."""
        gain, words = row.predicted.gain_us, self.filled(row, context.time_unit)
        after = saves_up_to if self.varies else step_after
        line = where or at_line(row.file, row.line)
        return self.finding(
            f"{words.title}. {after(row.predicted, words.fixed, context.time_unit)}{title_end}",
            next_step or words.next_step,
            {
                "gain_us_per_step": gain,
                "share_percent": row.predicted.gain_percent,
                "times_per_step": row.times,
            },
            saves_us=gain * context.step_count,
            by=row,
            where=[line],
            role="specific" if row.predicted.gain_percent < self.blocking_percent else self.role,
        )

    def filled(self, row: WhatIf, unit: TimeUnit = PER_STEP) -> Words:
        """Return the text of one of its fixes."""
        words = self.words_of(row)
        times, each = count_per_step(row.times, unit.each)
        line = at_line(row.file, row.line)
        once, place = times == "1", f" at {line}" if line else ""
        name = short_kernel(row.name) if self.is_named_by_kernel else row.name
        name = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…"
        title = words.title.format(
            name=f"{name} (name repaired)" if "\ufffd" in name else name or "(no name)",
            place=place,
            times=times,
            often="once" if once else f"{times} times",
            s="" if once else "s",
            are="is" if once else "are",
            graphs=f"{times} compiled graph{'' if once else 's'}",
            each=each,
        )
        return words._replace(title=title, next_step=words.next_step.format(place=place))


def split_code(next_step: str) -> tuple[str, str | None]:
    """Return a next step without backquotes, and the code inside them, one line for each part."""
    return next_step.replace("`", ""), "\n".join(re.findall("`([^`]*)`", next_step)) or None


def step_after(predicted: Predicted, fixed: str, unit: TimeUnit) -> str:
    """Return "With inductor, a step would take about 870 µs (580-1,200) instead of 2.82 ms"."""
    after = about(predicted.after_us, predicted.low_us, predicted.high_us)
    return f"{fixed}, {unit.one} would take {after} instead of {duration(predicted.step_us)}"


def saves_up_to(predicted: Predicted, fixed: str, unit: TimeUnit) -> str:
    """Return "If compiled, a step would take up to 81 % less time" with the range, as eager code gains differently."""
    bounds = (predicted.high_us, predicted.low_us)
    low, high = (max(round(100 * (1 - us / predicted.step_us)), 0) for us in bounds)
    percents = f" ({low}–{high} %)" if 0 < low < high else ""
    return f"{fixed}, {unit.one} would take up to {high} % less time{percents}"


def called_at(stack: Sequence[Frame | SourceFrame]) -> str:
    """Return the user's line that called the library at the end of a stack; "" if the last frame is the user's own."""
    users = [frame for frame in stack if is_user_file(frame.file)]
    return "" if not users or is_user_file(stack[-1].file) else at_line(users[-1].file, users[-1].line)


def named_with_caller(function: str, file: str, line: int | None, caller: str) -> str:
    """Return "step (train.py:12)" or "inner (external_utils.py:67), called at train.py:12,"."""
    named = function_at(function, file, line)
    return f"{named}, called at {caller}," if caller else named
