"""Rules about what the host does beside launching: breaks, guards, compiling, data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.context import RuleContext, called_at, named_with_caller
from tb_torchcompile_plugin.analysis.causes.fix_words import without
from tb_torchcompile_plugin.analysis.causes.rule import Rule
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.dynamic_shapes import size_advice
from tb_torchcompile_plugin.analysis.compile.recompiles import Recompile, failed, recompiles
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, often, percent, plural
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, GraphBreak
from tb_torchcompile_plugin.profile.compiled.regions import cut_short, resumes
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind, is_of_any_break
from tb_torchcompile_plugin.torch_names.kernels import is_anonymous
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file

# Of what torch has no hint for.
_MEND: dict[BreakKind, str] = {
    "explicit": "Drop the call that asks for it, or move it out of the compiled function",
    "print": "Print and log outside of the compiled function",
    "item": "Keep it a tensor, or read it outside of the compiled function",
    "data_dependent": "Compute both and choose by torch.where, or use torch.cond",
    "call": "Write it with torch's own operators, or move it out of the compiled function",
    "builtin": "Write it with torch's own operators, or move it out of the compiled function",
    "other": "Write it with torch's own operators, or move it out of the compiled function",
}


class GraphBreaks(Rule):
    id = "graph_breaks"
    panel = "graph_breaks"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        broken, by = _broken(context), context.best("graph_breaks")
        known = [us for us in broken.values() if us is not None]
        us = sum(known) if known else None
        worth = by.predicted.gain_percent if by else context.share(us)
        if not broken or worth is None or worth < thresholds.gain_percent:
            return
        dearest = max(broken, key=lambda one: broken[one] or 0)
        number = len({at_line(file, line) or compile_id for compile_id, file, line in broken})
        graph_break = _break_of(context, dearest.compile_id)
        place = at_line(dearest.file, dearest.line) or dearest.compile_id
        own = _dearest_of_ones_own(broken, dearest)
        also = at_line(own.file, own.line) if own else _caller(dearest.file, graph_break)
        beside = f" ({'the dearest in your own code' if own else 'called'} at {also})" if also else ""
        yield self.finding(
            context,
            _broken_title(context, number, place + beside, by, us or 0),
            _mend_break(context, number, place, graph_break, own),
            {"breaks": number} | (_prices(context, us, max(known)) if us is not None else {}),
            saves_us=us,
            row=_row(graph_break) if graph_break else None,
            by=by,
            where=[place, also] if also else [place],
        )


def _dearest_of_ones_own(broken: dict[_Broken, float | None], dearest: _Broken) -> _Broken | None:
    """Of the breaks in the user's own files, where the dearest of all is in a library's."""
    own = [one for one in broken if one.file and is_users_file(one.file)]
    if dearest in own or not dearest.file:
        return None
    return max(own, key=lambda one: broken[one] or 0, default=None)


def _mend_break(
    context: RuleContext, number: int, place: str, graph_break: GraphBreak | None, own: _Broken | None
) -> str:
    hint = _hint(graph_break)
    if number == 1:
        return hint
    then = f". At {at_line(own.file, own.line)}: {_hint(_break_of(context, own.compile_id))}" if own else ""
    return f"Begin with the dearest, {place}. {hint.rstrip('.') if then else hint}{then}"


def _hint(graph_break: GraphBreak | None) -> str:
    """Torch's, where it says something of this break."""
    hints = (one for one in (graph_break.hints if graph_break else ()) if not is_of_any_break(one))
    kind = break_kind(graph_break.reason, graph_break.explanation) if graph_break else "other"
    return next(hints, _MEND.get(kind, "Move what breaks it out of the compiled function"))


def _broken_title(context: RuleContext, number: int, place: str, by: WhatIf | None, us: float) -> str:
    breaks = plural(number, "graph break")
    if by and number == 1:
        return f"{breaks} at {place}: {without(by.predicted, 'it', context.paced)}"
    if by:
        return f"{breaks}, the dearest at {place}: {without(by.predicted, 'them', context.paced)}"
    share = percent(context.share(us) or 0)
    return f"{breaks} {'costs' if number == 1 else 'cost'} {context.each(us)}, {share} of the recorded time"


def _prices(context: RuleContext, us: float, dearest_us: float) -> Evidence:
    return {
        "host_us_per_step": context.each_us(us),
        "share_percent": context.share(us) or 0.0,
        "dearest_us_per_step": context.each_us(dearest_us),
    }


class _Broken(NamedTuple):
    """What broke, and where."""

    compile_id: str
    file: str
    line: int | None


def _broken(context: RuleContext) -> dict[_Broken, float | None]:
    """What its breaks cost in the profiled time (µs); None where nothing compiled is behind them: then the one that is
    met most comes first."""
    if context.costs or context.profile is None:
        return {_Broken(one.compile_id, one.file, one.line): one.profiled_us for one in context.costs}
    known = context.profile.of(resumes)
    cut = Counter(call.compile_id for call in context.profile.of(cut_short))
    return {_Broken(one, *known.place(one, "")): None for one, _ in cut.most_common()} if known else {}


def _break_of(context: RuleContext, compile_id: str) -> GraphBreak | None:
    breaks = context.summary.graph_breaks if context.summary else ()
    return next((row for row in breaks if row.key.compile_id == compile_id), None)


def _caller(file: str, graph_break: GraphBreak | None) -> str:
    """Of a break in a library's file the line of the user's that led to it."""
    return called_at(graph_break.stack) if graph_break and not is_users_file(file) else ""


def _row(graph_break: GraphBreak) -> str:
    line = graph_break.line if graph_break.HasField("line") else ""
    return f"graph_breaks:{graph_break.file}:{line}:{graph_break.reason}"


class Recompiles(Rule):
    id = "recompiles"
    panel = "recompiles"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.data is None or context.profile is None:
            return
        inside = [row for row in _recompilations(context) if context.inside_us(context.compiling([row]))]
        us = context.inside_us(context.compiling(inside))
        share = context.share(us)
        if share is None or share < thresholds.recompiles_percent:
            return
        dearest = max(inside, key=lambda row: row.duration_ns)
        longest, caller = dearest.key, called_at(dearest.stack)
        ids = {row.key.compile_id for row in inside}
        reasons = [row for row in context.data.of(recompiles) if row.compile_id in ids]
        guard = next((guard for row in reasons for guard in row.guards), None)
        row = next((row for row in reasons if row.compile_id == longest.compile_id), None)
        where = caller or (at_line(row.file, row.line) if row else "")
        sizes = context.profile.of(size_advice) if guard and guard.kind in ("tensor_size", "shape") else None
        yield self.finding(
            context,
            f"Torch recompiled {_named(row, caller)}{often(len(inside))} while it was profiled, which took "
            f"{duration(us)}{failed(guard)}",
            sizes.sentence
            if sizes
            else guard.advice
            if guard and guard.advice
            else "See which guard failed, and keep what it checks the same",
            {"recompiles": len(inside), "compile_us": us, "share_percent": share},
            saves_us=us,
            by=context.best("compile"),
            row=f"recompiles:{longest.compile_id},{longest.epoch}",
            where=[where] if where else [],
            code=sizes.code if sizes else None,
        )


def _named(row: Recompile | None, caller: str) -> str:
    """ "step (train.py:12) ", "inner (external_utils.py:67), called at train.py:12, " """
    return f"{named_with_caller(row.function, row.file, row.line, caller)} " if row else ""


def _recompilations(context: RuleContext) -> list[Compilation]:
    again = (
        {(row.key.epoch, row.key.compile_id) for row in context.summary.recompiles}
        if context.summary
        else set()
    )
    rows = context.summary.compilations if context.summary else ()
    return [row for row in rows if (row.key.epoch, row.key.compile_id) in again]


class CompileInSteps(Rule):
    """Compiling for the first time; compiling again is a rule of its own."""

    id = "compile_in_steps"
    panel = "compile_time"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        known = (
            context.compiling(context.summary.compilations) if context.summary else context.compiling_in_trace
        )
        us = context.inside_us(known) - context.inside_us(context.compiling(_recompilations(context)))
        share = context.share(us)
        if share is None or share < thresholds.compile_percent:
            return
        what = "Compiling for the first time" if _recompilations(context) else "Compiling"
        yield self.finding(
            context,
            f"{what} took {duration(us)} of what was profiled, {percent(share)} of it",
            "Run the model a few times before the profiled steps: schedule(wait=1, warmup=3, active=3)",
            {"compile_us": us, "share_percent": share},
            saves_us=us,
            by=None if _recompilations(context) else context.best("compile"),
            code="schedule(wait=1, warmup=3, active=3)",
        )


class AutotuneInSteps(Rule):
    """Tuning when a kernel first runs; what is tuned while compiling counts there."""

    id = "autotune_in_steps"
    panel = "compile_time"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        tuned, compiled = context.autotuning, context.compiling_in_trace
        alone = context.inside_us(tuned) - context.inside_us(_both(tuned, compiled))
        share = context.share(alone)
        if share is None or share < thresholds.autotune_percent:
            return
        yield self.finding(
            context,
            f"Autotuning kernels took {duration(alone)} of what was profiled, {percent(share)} of it",
            "Run every shape once before the profiled steps; the choices are kept in inductor's cache",
            {"autotune_us": alone, "share_percent": share},
            saves_us=alone,
        )


def _both(some: Intervals, others: Intervals) -> Intervals:
    """Of `some` those that begin inside `others`."""
    inside = covered_ns(others, some.starts, some.starts + 1) > 0
    return Intervals(some.starts[inside], some.ends[inside])


HOST_RULES: tuple[Rule, ...] = (GraphBreaks(), Recompiles(), CompileInSteps(), AutotuneInSteps())


# Rules about how the recording was made: what makes its numbers wrong, or hides them.


_VERSION = re.compile(r"^\d+(?:\.\d+)+$")


class NamesDisabled(Rule):
    id = "names_disabled"
    panel = "kernels"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        trace, work = context.profile.trace, context.profile.of(gpu_work)
        codes = [code for code, name in enumerate(trace.names) if is_anonymous(name)]
        rows = work.index[np.isin(trace.name[work.index], codes)]
        share = context.gpu_share(float(trace.dur[rows].sum()) / 1000)
        if share is None or share < thresholds.unnamed_percent:
            return
        yield self.finding(
            context,
            f"Kernels without names of their own take {percent(share)} of the GPU time",
            "Let inductor name its kernels: TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1 (the default since torch 2.6)",
            {"launches": len(rows), "gpu_share_percent": share},
            severity="warning",
            code="TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1",
        )


class CudaGraphsOldDriver(Rule):
    """Then kernels of graphs that were made before the profiler first ran are missing, or crash it."""

    id = "cudagraphs_old_driver"
    panel = "gpu_utilization"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None or not context.profile.of(launch_calls).replay.any():
            return
        header = context.profile.trace.metadata
        driver, runtime = header.get("cuda_driver_version"), header.get("cuda_runtime_version")
        if not (_is_old(driver) or _is_old(runtime)):
            return
        yield self.finding(
            context,
            f"CUDA graphs are profiled with CUDA {runtime} and driver {driver}, older than {thresholds.driver_least}: "
            "their kernels may be missing",
            "Call torch.profiler._utils._init_for_cuda_graphs() before the graphs are captured, or update the driver",
            {"replays": int(context.profile.of(launch_calls).replay.sum())},
            severity="critical",
            code="torch.profiler._utils._init_for_cuda_graphs()",
        )


def _is_old(version: object) -> bool:
    """Of CUDA as the header writes it (12020), or of the driver (525.85.12)."""
    if isinstance(version, int):
        return 0 < version < thresholds.cuda_least
    if not (isinstance(version, str) and _VERSION.match(version)):
        return False
    numbers = [int(number) for number in version.split(".")]
    limit = [int(number) for number in thresholds.driver_least.split(".")]
    return numbers < (limit if numbers[0] >= 100 else [thresholds.cuda_least // 1000])


class EmptyProfile(Rule):
    id = "empty_profile"
    panel = "overview"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        trace = context.profile.trace
        if trace.is_cut_off:  # what is missing may have been there
            return
        if not len(trace):
            yield self.finding(
                context,
                "The trace holds 0 events: the profiler was not active",
                "Let the schedule come to its active steps: call prof.step() at the end of each step, often enough",
                {"events": 0},
                severity="critical",
            )
        elif trace.notices:  # so may what was dropped
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


SETUP_RULES: tuple[Rule, ...] = (NamesDisabled(), CudaGraphsOldDriver(), EmptyProfile())
