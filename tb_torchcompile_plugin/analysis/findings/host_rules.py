"""Rules about what the host does beside launching: breaks, guards, compiling, data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.eager import eager_time
from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.case import Case
from tb_torchcompile_plugin.analysis.findings.rule import Finding, Rule
from tb_torchcompile_plugin.analysis.findings.words import duration, percent, plural
from tb_torchcompile_plugin.analysis.intervals import Intervals, covered_ns
from tb_torchcompile_plugin.analysis.recompiles import recompiles
from tb_torchcompile_plugin.analysis.regions import Call, every
from tb_torchcompile_plugin.summary_pb2 import Compilation, GraphBreak


class GraphBreaks(Rule):
    id = "graph_breaks"
    panel = "graph_breaks"

    def look(self, case: Case) -> Iterator[Finding]:
        host = [cost.profiled_us for cost in case.costs]
        share = case.share(sum(host))
        if share is None or share < thresholds.graph_breaks_percent:
            return
        dearest = max(case.costs, key=lambda cost: cost.profiled_us)
        told = _break_of(case, dearest.compile_id)
        place = f"{dearest.file.rpartition('/')[2]}:{dearest.line}" if dearest.file else dearest.compile_id
        hint = told.hints[0] if told and told.hints else "Move what breaks it out of the compiled function"
        breaks = f"{plural(len(host), 'graph break')} {'costs' if len(host) == 1 else 'cost'}"
        yield self.found(
            case,
            f"{breaks} {case.each(sum(host))}, {percent(share)} of it",
            f"Begin with the dearest, {place}. {hint}",
            {
                "breaks": len(host),
                "host_us_per_step": case.each_us(sum(host)),
                "share_percent": share,
                "dearest_us_per_step": case.each_us(dearest.profiled_us),
            },
            saves_us=sum(host),
            row=_row(told) if told else None,
        )


def _break_of(case: Case, compile_id: str) -> GraphBreak | None:
    breaks = case.summary.graph_breaks if case.summary else ()
    return next((row for row in breaks if row.key.compile_id == compile_id), None)


def _row(told: GraphBreak) -> str:
    return f"graph_breaks:{told.file}:{told.line if told.HasField('line') else ''}:{told.reason}"


class Recompiles(Rule):
    id = "recompiles"
    panel = "recompiles"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.summary is None or case.profile is None:
            return
        inside = [row for row in _recompilations(case) if case.inside_us(case.compiling([row]))]
        us = case.inside_us(case.compiling(inside))
        share = case.share(us)
        if share is None or share < thresholds.recompiles_percent:
            return
        longest = max(inside, key=lambda row: row.duration_ns).key
        ids = {row.key.compile_id for row in inside}
        reasons = [row for row in recompiles(case.summary) if row.compile_id in ids]
        guard = next((guard for row in reasons for guard in row.guards), None)
        yield self.found(
            case,
            f"Torch recompiled {plural(len(inside), 'time')} while it was profiled, which took {duration(us)}",
            guard.advice
            if guard and guard.advice
            else "See which guard failed, and keep what it checks the same",
            {"recompiles": len(inside), "compile_us": us, "share_percent": share},
            saves_us=us,
            row=f"recompiles:{longest.compile_id},{longest.epoch}",
        )


def _recompilations(case: Case) -> list[Compilation]:
    again = (
        {(row.key.epoch, row.key.compile_id) for row in case.summary.recompiles} if case.summary else set()
    )
    rows = case.summary.compilations if case.summary else ()
    return [row for row in rows if (row.key.epoch, row.key.compile_id) in again]


class CompileInSteps(Rule):
    """Compiling for the first time; compiling again is a rule of its own."""

    id = "compile_in_steps"
    panel = "compile_time"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.profile is None:
            return
        known = case.compiling(case.summary.compilations) if case.summary else case.compiling_in_trace
        us = case.inside_us(known) - case.inside_us(case.compiling(_recompilations(case)))
        share = case.share(us)
        if share is None or share < thresholds.compile_percent:
            return
        yield self.found(
            case,
            f"Compiling took {duration(us)} of what was profiled, {percent(share)} of it",
            "Run the model a few times before the profiled steps: schedule(wait=1, warmup=3, active=3)",
            {"compile_us": us, "share_percent": share},
            saves_us=us,
        )


class AutotuneInSteps(Rule):
    """Tuning when a kernel first runs; what is tuned while compiling counts there."""

    id = "autotune_in_steps"
    panel = "compile_time"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.profile is None:
            return
        tuned, compiled = case.autotuning, case.compiling_in_trace
        alone = case.inside_us(tuned) - case.inside_us(_both(tuned, compiled))
        share = case.share(alone)
        if share is None or share < thresholds.autotune_percent:
            return
        yield self.found(
            case,
            f"Autotuning kernels took {duration(alone)} of what was profiled, {percent(share)} of it",
            "Run every shape once before the profiled steps; the choices are kept in inductor's cache",
            {"autotune_us": alone, "share_percent": share},
            saves_us=alone,
        )


def _both(some: Intervals, others: Intervals) -> Intervals:
    """Of `some` those that begin inside `others`."""
    inside = covered_ns(others, some.starts, some.starts + 1) > 0
    return Intervals(some.starts[inside], some.ends[inside])


class Guards(Rule):
    id = "guards"
    panel = "compiled_regions"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.profile is None:
            return
        calls = [call for call in every(case.profile.calls) if call.lookups]
        moments = [moment for call in calls for moment in call.lookups]
        us = sum(end - start for start, end in moments) / 1000
        share = case.share(us)
        if share is None or share < thresholds.guards_percent:
            return
        yield self.found(
            case,
            f"Checking guards takes {case.each(us)}, {percent(share)} of it",
            "Fewer guards: pass guards that you know to hold to "
            "torch.compile(model, options={'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe})",
            {"guard_us_per_step": case.each_us(us), "share_percent": share, "calls": len(calls)},
            saves_us=us,
            row=f"compiled_regions:{_dearest(calls)}",
        )


def _dearest(calls: list[Call]) -> str:
    """The compile id of the region whose guards take most time."""
    spent: Counter[str] = Counter()
    for call in calls:
        spent[call.compile_id] += call.guard_ns
    return spent.most_common(1)[0][0]


class EagerRemainder(Rule):
    """What a program that is compiled in part still runs eager. Optimizers and data loading are told by others."""

    id = "eager_remainder"
    panel = "compiled_regions"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.profile is None or not case.profile.calls:
            return
        found = eager_time(case.profile.trace, case.profile.work, case.profile.eager)
        share = found.share_percent
        if share is None or share < thresholds.eager_percent:
            return
        us = case.wall_us * share / 100
        largest = found.ops[0] if found.ops else None
        step = f"Begin with {largest.name}, {case.each(largest.host_us)}. " if largest else ""
        yield self.found(
            case,
            f"Operators outside of compiled regions run for {case.each(us)}, {percent(share)} of it",
            f"{step}Compile more: the loss, the optimizer step (torch.compile(opt.step)), whatever the model calls",
            {
                "eager_us_per_step": case.each_us(us),
                "share_percent": share,
                "operators_per_step": found.calls / max(case.steps, 1),
            },
            saves_us=us,
        )


class GarbageCollection(Rule):
    """torch records collections with `record_python_gc_info`, and calls of `gc.collect` with Python stacks."""

    id = "garbage_collection"
    panel = "step_breakdown"

    def look(self, case: Case) -> Iterator[Finding]:
        us = case.inside_us(case.collecting)
        share = case.share(us)
        if share is None or share < thresholds.garbage_percent:
            return
        yield self.found(
            case,
            f"Python collects garbage for {case.each(us)}, {percent(share)} of it",
            "Collect between steps: gc.freeze() after the first ones, gc.disable(), and gc.collect() once in a while",
            {"gc_us_per_step": case.each_us(us), "share_percent": share},
            saves_us=us,
        )


HOST_RULES: tuple[Rule, ...] = (
    GraphBreaks(),
    Recompiles(),
    CompileInSteps(),
    AutotuneInSteps(),
    Guards(),
    EagerRemainder(),
    GarbageCollection(),
)
