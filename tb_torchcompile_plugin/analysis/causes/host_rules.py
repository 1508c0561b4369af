"""What keeps the host busy besides launching, and was the recording made well enough to tell?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.fix_words import step_after
from tb_torchcompile_plugin.analysis.causes.rule import SpanContext, SpanRule, called_at, named_with_caller
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import size_advice
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_break_costs
from tb_torchcompile_plugin.analysis.compile.recompiles import failed, recompiles
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, often, percent, plural
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, GraphBreak
from tb_torchcompile_plugin.profile.columns import host_slices, mask_of
from tb_torchcompile_plugin.profile.compiled.regions import compiling_in_trace, cut_short, resumes
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind, is_of_any_break
from tb_torchcompile_plugin.torch_names.kernels import is_anonymous
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION, is_autotuning

# What helps against a break for which torch has no hint.
_REWRITE = "Write it with torch's own operators, or move it out of the compiled function"
_FIXES: dict[BreakKind, str] = {
    "explicit": "Drop the call that asks for it, or move it out of the compiled function",
    "print": "Print and log outside of the compiled function",
    "item": "Keep it a tensor, or read it outside of the compiled function",
    "data_dependent": "Compute both and choose by torch.where, or use torch.cond",
    "call": _REWRITE,
    "builtin": _REWRITE,
    "other": _REWRITE,
}
_VERSION = re.compile(r"^\d+(?:\.\d+)+$")


class _Break(NamedTuple):
    """Where compiled code was cut."""

    compile_id: str
    file: str
    line: int | None

    @property
    def where(self) -> str:
        return at_line(self.file, self.line) or self.compile_id


class GraphBreaks(SpanRule, id="graph_breaks", panel="graph_breaks"):
    """Graph breaks that cost time in the profiled steps."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them, at the most expensive one."""
        costs, by = _break_costs(context), context.best("graph_breaks")
        known = [us for us in costs.values() if us is not None]
        us = sum(known) if known else None
        gain = by.predicted.gain_percent if by else context.share(us)
        if not costs or gain < thresholds.gain_percent:
            return
        worst = max(costs, key=lambda row: costs[row] or 0)
        # Where the worst of all is in a library, the worst one in the user's own files, too.
        users = [row for row in costs if row.file and is_users_file(row.file)]
        own = None
        if worst.file and worst not in users:
            own = max(users, key=lambda row: costs[row] or 0, default=None)
        count = len({row.where for row in costs})
        graph_break = _graph_break(context, worst)
        caller = "" if not graph_break or is_users_file(worst.file) else called_at(graph_break.stack)
        also = at_line(own.file, own.line) if own else caller
        addition = f" ({'the dearest in your own code' if own else 'called'} at {also})" if also else ""
        evidence: Evidence = {"breaks": count}
        if us is not None:
            evidence |= {
                "host_us_per_step": context.each_us(us),
                "share_percent": context.share(us),
                "dearest_us_per_step": context.each_us(max(known)),
            }
        advice = _hint(graph_break)
        if count > 1:
            advice = f"Begin with the dearest, {worst.where}. {advice}"
            if own:
                advice = f"{advice.rstrip('.')}. At {also}: {_hint(_graph_break(context, own))}"
        yield self.finding(
            context,
            _break_title(context, count, f"{worst.where}{addition}", by, us or 0),
            advice,
            evidence,
            saves_us=us,
            row=_break_row(graph_break) if graph_break else None,
            by=by,
            where=[worst.where, also] if also else [worst.where],
        )


def _break_costs(context: SpanContext) -> dict[_Break, float | None]:
    """Return the cost of each break (µs); None where nothing compiled follows, the most frequent first."""
    costs = context.profile.of(graph_break_costs)
    if costs:
        return {_Break(cost.compile_id, cost.file, cost.line): cost.profiled_us for cost in costs}
    known = context.profile.of(resumes)
    counts = Counter(call.compile_id for call in context.profile.of(cut_short))
    return {_Break(name, *known.place(name, "")): None for name, _ in counts.most_common()} if known else {}


def _graph_break(context: SpanContext, at: _Break) -> GraphBreak | None:
    breaks = context.summary.graph_breaks if context.summary else ()
    return next((row for row in breaks if row.key.compile_id == at.compile_id), None)


def _break_title(context: SpanContext, count: int, where: str, by: WhatIf | None, us: float) -> str:
    breaks = plural(count, "graph break")
    if by and count == 1:
        return f"{breaks} at {where}: {step_after(by.predicted, 'without it', context.paced)}"
    if by:
        return f"{breaks}, the dearest at {where}: {step_after(by.predicted, 'without them', context.paced)}"
    share = percent(context.share(us))
    return f"{breaks} {'costs' if count == 1 else 'cost'} {context.each(us)}, {share} of the recorded time"


def _hint(graph_break: GraphBreak | None) -> str:
    """Return torch's hint, if it has one that is about this break."""
    if graph_break is None:
        return _FIXES["other"]
    hints = (hint for hint in graph_break.hints if not is_of_any_break(hint))
    kind = break_kind(graph_break.reason, graph_break.explanation)
    return next(hints, _FIXES.get(kind, "Move what breaks it out of the compiled function"))


def _break_row(row: GraphBreak) -> str:
    return f"graph_breaks:{row.file}:{row.line if row.HasField('line') else ''}:{row.reason}"


class Recompiles(SpanRule, id="recompiles", panel="recompiles"):
    """Frames that torch compiled again while they were profiled."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them, at the longest one."""
        inside = [row for row in _recompilations(context) if context.inside_us(context.compiling([row]))]
        us = context.inside_us(context.compiling(inside))
        share = context.share(us)
        if share < thresholds.recompiles_percent:
            return
        longest = max(inside, key=lambda row: row.duration_ns)
        key, caller = longest.key, called_at(longest.stack)
        ids = {row.key.compile_id for row in inside}
        reasons = [row for row in context.rows(recompiles) if row.compile_id in ids]
        guard = next((guard for row in reasons for guard in row.guards), None)
        row = next((row for row in reasons if row.compile_id == key.compile_id), None)
        frame = f"{named_with_caller(row.function, row.file, row.line, caller)} " if row else ""
        where = caller or (at_line(row.file, row.line) if row else "")
        sizes = context.profile.of(size_advice) if guard and guard.kind in ("tensor_size", "shape") else None
        advice = (sizes and sizes.sentence) or (guard and guard.advice)
        yield self.finding(
            context,
            f"Torch recompiled {frame}{often(len(inside))} while it was profiled, which took "
            f"{duration(us)}{failed(guard)}",
            advice or "See which guard failed, and keep what it checks the same",
            {"recompiles": len(inside), "compile_us": us, "share_percent": share},
            saves_us=us,
            by=context.best("compile"),
            row=f"recompiles:{key.compile_id},{key.epoch}",
            where=[where] if where else [],
            code=sizes.code if sizes else None,
        )


def _recompilations(context: SpanContext) -> list[Compilation]:
    if context.summary is None:
        return []
    keys = {(row.key.epoch, row.key.compile_id) for row in context.summary.recompiles}
    return [row for row in context.summary.compilations if (row.key.epoch, row.key.compile_id) in keys]


class CompileInSteps(SpanRule, id="compile_in_steps", panel="compile_time"):
    """Compiling for the first time in the profiled steps; recompiling has a rule of its own."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of it."""
        again, summary = _recompilations(context), context.summary
        compiling = (
            context.compiling(summary.compilations) if summary else context.profile.of(compiling_in_trace)
        )
        us = context.inside_us(compiling) - context.inside_us(context.compiling(again))
        share = context.share(us)
        if share < thresholds.compile_percent:
            return
        yield self.finding(
            context,
            f"{'Compiling for the first time' if again else 'Compiling'} took {duration(us)} of what was profiled, "
            f"{percent(share)} of it",
            "Run the model a few times before the profiled steps: schedule(wait=1, warmup=3, active=3)",
            {"compile_us": us, "share_percent": share},
            saves_us=us,
            by=None if again else context.best("compile"),
            code="schedule(wait=1, warmup=3, active=3)",
        )


class AutotuneInSteps(SpanRule, id="autotune_in_steps", panel="compile_time"):
    """Tuning kernels when they first run; tuning while compiling counts as compiling."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of it."""
        trace, compiling = context.profile.trace, context.profile.of(compiling_in_trace)
        tuning = busy(trace, host_slices(trace, is_autotuning, (*CALL_CATS, PYTHON_FUNCTION)))
        in_compiling = covered_ns(compiling, tuning.starts, tuning.starts + 1) > 0
        counted_twice = Intervals(tuning.starts[in_compiling], tuning.ends[in_compiling])
        us = context.inside_us(tuning) - context.inside_us(counted_twice)
        share = context.share(us)
        if share < thresholds.autotune_percent:
            return
        yield self.finding(
            context,
            f"Autotuning kernels took {duration(us)} of what was profiled, {percent(share)} of it",
            "Run every shape once before the profiled steps; the choices are kept in inductor's cache",
            {"autotune_us": us, "share_percent": share},
            saves_us=us,
        )


HOST_RULES: tuple[SpanRule, ...] = (GraphBreaks(), Recompiles(), CompileInSteps(), AutotuneInSteps())


class NamesDisabled(SpanRule, id="names_disabled", panel="kernels"):
    """Generated kernels that all have the same name."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them."""
        trace, rows = context.profile.trace, context.profile.of(gpu_work).index
        rows = rows[mask_of(trace.names, is_anonymous)[trace.name[rows]]]
        share = context.gpu_share(float(trace.dur[rows].sum()) / 1000)
        if share < thresholds.unnamed_percent:
            return
        yield self.finding(
            context,
            f"Kernels without names of their own take {percent(share)} of the GPU time",
            "Let inductor name its kernels: TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1 (the default since torch 2.6)",
            {"launches": len(rows), "gpu_share_percent": share},
            severity="warning",
            code="TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1",
        )


class CudaGraphsOldDriver(SpanRule, id="cudagraphs_old_driver", panel="gpu_utilization"):
    """An old driver: kernels of graphs made before the profiler first ran are missing, or crash it."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding where CUDA graphs are replayed."""
        replays, header = context.profile.of(launch_calls).replay, context.profile.trace.metadata
        driver, runtime = header.get("cuda_driver_version"), header.get("cuda_runtime_version")
        if not replays.any() or not (_is_old(driver) or _is_old(runtime)):
            return
        yield self.finding(
            context,
            f"CUDA graphs are profiled with CUDA {runtime} and driver {driver}, older than {thresholds.driver_least}: "
            "their kernels may be missing",
            "Call torch.profiler._utils._init_for_cuda_graphs() before the graphs are captured, or update the driver",
            {"replays": int(replays.sum())},
            severity="critical",
            code="torch.profiler._utils._init_for_cuda_graphs()",
        )


def _is_old(version: object) -> bool:
    """Whether a version is old: of CUDA as the header writes it (12020), or of the driver (525.85.12)."""
    if isinstance(version, int):
        return 0 < version < thresholds.cuda_least
    if not (isinstance(version, str) and _VERSION.match(version)):
        return False
    numbers = [int(number) for number in version.split(".")]
    limit = [int(number) for number in thresholds.driver_least.split(".")]
    return numbers < (limit if numbers[0] >= 100 else [thresholds.cuda_least // 1000])


class EmptyProfile(SpanRule, id="empty_profile", panel="overview"):
    """A trace without events, without GPU events, or with too few steps."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding; none where the trace was cut off or events were dropped, as they may be missing."""
        trace = context.profile.trace
        if trace.is_cut_off:
            return
        if not len(trace):
            yield self.finding(
                context,
                "The trace holds 0 events: the profiler was not active",
                "Let the schedule come to its active steps: call prof.step() at the end of each step, often enough",
                {"events": 0},
                severity="critical",
            )
        elif trace.notices:
            return
        elif trace.metadata.get("deviceProperties") and not len(context.profile.of(gpu_work).index):
            yield self.finding(
                context,
                "The trace holds 0 GPU events, though there is a GPU",
                "Record them: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]; and run something on it",
                {"gpu_events": 0, "events": trace.events},
                severity="warning",
                code="activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            )
        elif 0 < context.steps < thresholds.steps_least:
            yield self.finding(
                context,
                f"Only {plural(context.steps, 'step')} was profiled: nothing tells a typical step from an outlier",
                "Profile a few steps: schedule(wait=1, warmup=3, active=3)",
                {"steps": context.steps},
                severity="info",
                code="schedule(wait=1, warmup=3, active=3)",
            )


SETUP_RULES: tuple[SpanRule, ...] = (NamesDisabled(), CudaGraphsOldDriver(), EmptyProfile())
