"""What is a rule, what does it evaluate, and which fixes gain enough to be a finding?

A rule is a row of a table. There is one for each kind of fix; their words are those of fix_words.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import eager_points, given_up
from tb_torchcompile_plugin.analysis.causes.fix import DYNAMIC_CUDA_GRAPHS, FixKind, changing_graphs
from tb_torchcompile_plugin.analysis.causes.fix_words import WORDS, with_gain, words_of
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilation_details import (
    Elements,
    guard_checks,
    most_guarded_container,
)
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.analysis.compile.compile_time import frames_us_in
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Panel, Severity, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, function_at
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import requested_graphs
from tb_torchcompile_plugin.analysis.runtime.eager import eager_shares
from tb_torchcompile_plugin.analysis.runtime.launch_stats import cudagraph_skip_reasons, cudagraph_skips
from tb_torchcompile_plugin.analysis.runtime.memory import HeldMemory, held_memory
from tb_torchcompile_plugin.analysis.runtime.step_picture import time_unit
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, Frame
from tb_torchcompile_plugin.generated_code.artifacts import Frame as SourceFrame
from tb_torchcompile_plugin.profile.columns import host_slices
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, compiled_calls, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls, ran_packages
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns, share_percent, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time, step_ns
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import GENERATED
from tb_torchcompile_plugin.torch_names.python_frames import is_profiler_hook, is_user_file
from tb_torchcompile_plugin.torch_names.slices import is_graph, is_region

if TYPE_CHECKING:
    from typing_extensions import Unpack

# These have rules of their own, which name the guard that failed, what broke and what changed.
_OTHER_RULES = {"compile", "graph_breaks", "frames", "backend", "roofline", "communication", "graph_capture"}
# Rules that are older than the model keep their ids: people switched them off by these.
_IDS: dict[FixKind, str] = {
    "garbage": "garbage_collection",
    "cuda_graphs": "launch_bound",
    "eager": "eager_remainder",
    "tensor_cores": "fp32_matmul",
}
# Guards of one container's elements, share of all guards; by eye.
_MIN_ELEMENTS, _MIN_ELEMENTS_SHARE = 100, 0.25
_AS_TENSOR = (
    "What compiled code reads of a list or dict of Python’s is checked element by element in each call: make {source} "
    "a tensor once, as register_buffer does, or read it outside of the compiled function"
)
_MANY_CALLS = 4  # of one graph per step, from which on a batch is worth a word; chosen by eye

Row = TypeVar("Row")
# Contravariant: a rule that can be asked about both can be asked about either.
About = TypeVar("About", bound="SpanContext | CompileData", contravariant=True)


class SpanContext:
    """A profiled span, with what several rules ask about it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.summary = profile.summary  # of what the worker compiled
        self.found: list[Finding] = []  # by the rules before
        # Whether nothing is missing in the trace: otherwise it is unknown what it does not hold.
        self.whole = not profile.trace.is_lossy
        self.steps = len(profile.of(StepWindows))  # that the profiler marked
        self.is_on_cpu = self.whole and not len(profile.of(gpu_work).index)
        self.step_count = max(self.steps, 1)  # to divide by: without steps, the span is one
        self.where = "a step" if self.steps else "in this span"  # after a number
        self.time_unit = profile.of(time_unit)  # what predictions are of: a step, or the span
        self.windows = union(*profile.of(profiled_time))  # the steps, or the span where there are none
        # By the clock that is the bottleneck of the steps.
        wall_ns = float(profile.of(step_ns).sum()) if self.steps else self.windows.total_ns
        self.wall_us = wall_ns / 1000
        # The share of the profiled time of eager operators, on the host or, if more, on the GPUs.
        self.eager_percent = max(share or 0.0 for share in profile.of(eager_shares))
        # Frames that torch runs eager, because it cannot resume them or compiled them too often.
        self.given_up = [row for row in self.rows(problems) if row.given_up]
        self.replays_graphs = bool(profile.of(launch_calls).replay.any())
        # Hooks of a profiler that torch compiled.
        self.hooks = [row for row in self.rows(compilations) if is_profiler_hook(row.function)]
        compiled, again = (self.summary.compilations, self.summary.recompiles) if self.summary else ((), ())
        keys = {(row.key.epoch, row.key.compile_id) for row in again}
        self.recompilations = [row for row in compiled if (row.key.epoch, row.key.compile_id) in keys]
        # Compile ids of the regions that were called, whatever they hold.
        self.regions_that_ran = {call.compile_id for call in all_calls(profile.of(region_calls))}
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
            # What runs inside of a region counts as compiled there, also where the region holds no operation.
            eager = self.eager_percent >= thresholds.gain_percent or bool(self.regions_that_ran)
        generated = GENERATED.intersection(profile.of(gpu_work).categories)
        if not eager or generated or profile.of(ran_packages):
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
        rows = (row for row in self.profile.of(predicted_fixes) if row.kind == kind)
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
        return frames_us_in(rows, self.profile.trace.base_ns, self.windows)


class Details(TypedDict, total=False):
    """The fields of a finding that not all findings have."""

    saves_us: float | None
    row: str | None
    where: list[str]
    code: str | None
    advised: bool


@dataclass(frozen=True)
class Rule(Generic[About]):
    """One question with a threshold, about a span or about the compile data of a worker."""

    id: str  # never changes: people switch rules off by it
    panel: Panel
    # May only be called where `applies` is true.
    evaluate: "Callable[[Rule[About], About], Iterator[Finding]]"
    applies: Callable[[About], bool] = lambda about: True

    def findings(self, about: About) -> Iterator[Finding]:
        """Return what it shows, most important first."""
        return self.evaluate(self, about) if self.applies(about) else iter(())

    def finding(
        self,
        context: SpanContext | None,
        title: str,
        next_step: str,
        evidence: Evidence,
        *,
        by: WhatIf | None = None,
        severity: Severity | None = None,
        **details: "Unpack[Details]",
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


def skips_graphs(about: SpanContext | CompileData) -> bool:
    """Whether torch skipped CUDA graphs that it was asked for."""
    data = about if isinstance(about, CompileData) else about.profile.data
    return data is not None and bool(data.of(cudagraph_skips) or data.of(cudagraph_skip_reasons))


def called_at(stack: Sequence[Frame | SourceFrame]) -> str:
    """Return the user's line that led to the last frame of a stack, of a library; "" where that is the user's own."""
    return "" if not stack or is_user_file(stack[-1].file) else users_line(stack)


def users_line(stack: Sequence[Frame | SourceFrame]) -> str:
    """Return the last line of the user's in a stack, "" where there is none."""
    users = [frame for frame in stack if is_user_file(frame.file)]
    return at_line(users[-1].file, users[-1].line) if users else ""


def named_with_caller(function: str, file: str, line: int | None, caller: str) -> str:
    """Return "step (train.py:12)" or "inner (external_utils.py:67), called at train.py:12,"."""
    named = function_at(function, file, line)
    return f"{named}, called at {caller}," if caller else named


def _large_gains(kind: FixKind, rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report the fixes of one kind with a large predicted gain, unless another rule says why they would not help."""
    if kind == "cuda_graphs" and (skips_graphs(context) or context.profile.of(requested_graphs)):
        return  # inductor is set to use them
    if kind == "eager" and (context.nothing_compiled or context.profile.of(given_up)):
        return
    rows = [row for row in context.profile.of(predicted_fixes) if row.kind == kind]
    large = [row for row in rows if row.predicted.gain_percent >= thresholds.gain_percent]
    fullest = None
    if kind == "recomputed":  # checkpoints save memory
        devices = context.profile.of(held_memory)
        fullest = max(devices, key=lambda device: device.share_percent or 0, default=None)
    advised = [row for row in large if row.id != DYNAMIC_CUDA_GRAPHS]
    if fullest and (fullest.share_percent or 0) >= thresholds.memory_percent:
        for row in large:  # a step needs its checkpoints
            title = f"{with_gain(row, context.time_unit)}, but {fullest.sentence()}"
            yield _not_advised(rule, row, title, {"times_per_step": row.times})
    elif advised:
        yield from (_advised(rule, context, row, fullest) for row in advised)
    elif large:
        symbols = _symbols(context.profile.of(changing_graphs))
        title = (
            f"CUDA graphs would launch each compiled graph as one, but sizes change ({', '.join(symbols)}): one "
            "would be recorded for each"
        )
        yield _not_advised(rule, large[0], title, {"symbols": len(symbols)})


def _not_advised(rule: Rule[SpanContext], row: WhatIf, title: str, evidence: Evidence) -> Finding:
    return rule.finding(None, title, words_of(row).next_step, evidence, severity="info", advised=False)


def _advised(
    rule: Rule[SpanContext], context: SpanContext, row: WhatIf, fullest: HeldMemory | None
) -> Finding:
    gain, where, words = row.predicted.gain_us, at_line(row.file, row.line), words_of(row)
    title, advice = with_gain(row, context.time_unit), words.next_step
    if row.kind == "cuda_graphs":
        advice = _cuda_graph_advice(context, advice)
    elif row.kind == "guards" and (elements := _elements_checked(context)):
        where = elements.line or where
        at = f", at {elements.line}" if elements.line else ""
        title += f"; {elements.many:,} guards compare the elements of {elements.source}{at}"
        advice = f"{_AS_TENSOR.format(source=elements.source)}. Else: {advice}"
    elif fullest:
        advice += f". {fullest.sentence()}"
    return rule.finding(
        context,
        title,
        advice,
        {"gain_us_per_step": gain, "share_percent": row.predicted.gain_percent, "times_per_step": row.times},
        saves_us=gain * context.step_count,
        by=row,
        where=[where] if where else [],
        code=words.code,
    )


def _elements_checked(context: SpanContext) -> Elements | None:
    """Return the list or dict whose elements are a large part of all guards of the frames that ran."""
    data = context.profile.data
    if data is None:
        return None
    keys = {(row.epoch, row.compile_id) for row in data.of(compilations)}
    ran = sorted(key for key in keys if key[1] in context.regions_that_ran)
    checks = [check for key in ran for check in data.of(guard_checks, *key).guards]
    most = most_guarded_container(checks)
    return most if most and most.many >= max(_MIN_ELEMENTS, _MIN_ELEMENTS_SHARE * len(checks)) else None


def _cuda_graph_advice(context: SpanContext, advice: str) -> str:
    """Add a batch in place of many calls, the graphs that CUDA graphs do not serve, and what keeps torch from them."""
    counts = Counter(call.compile_id for call in all_calls(context.profile.of(region_calls)))
    times = max(counts.values(), default=0) / context.step_count
    if times >= _MANY_CALLS:
        advice = (
            f"The same graph is called {times:.3g} times {context.where}: where a call does not need what the one "
            f"before gave, make one batch of them. Else: {advice}"
        )
    if changing := context.profile.of(changing_graphs):
        names = list(changing)
        named = ", ".join(names[: thresholds.MAX_NAMES])
        more = f" and {len(names) - thresholds.MAX_NAMES} more" if len(names) > thresholds.MAX_NAMES else ""
        advice += (
            f". The sizes of {named}{more} change ({', '.join(_symbols(changing))}), so set "
            "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True, or a graph is recorded for each size: "
            f"the prediction leaves {'it' if len(names) == 1 else 'them'} out"
        )
    if context.best("zeroed_gradients"):  # torch raises an error in the second step
        advice += (
            ". Before that, give gradients back, optimizer.zero_grad(set_to_none=True): they are what an earlier run "
            "of a CUDA graph gave, and torch refuses to write over those that are kept"
        )
    return advice


def _symbols(changing: dict[str, list[str]]) -> list[str]:
    return sorted({symbol for symbols in changing.values() for symbol in symbols})


WHAT_IF_RULES = tuple(
    Rule(_IDS.get(kind, kind), WORDS[kind].panel, partial(_large_gains, kind))
    for kind in WORDS
    if kind not in _OTHER_RULES
)
