"""What makes all other advice moot: the program, or the frame that matters, does not run compiled."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.context import (
    RuleContext,
    break_called_at,
    frame_called_at,
    named_with_caller,
)
from tb_torchcompile_plugin.analysis.causes.eager_fixes import captured_only
from tb_torchcompile_plugin.analysis.causes.fix_words import place, with_inductor, without, words_of
from tb_torchcompile_plugin.analysis.causes.payback import pays
from tb_torchcompile_plugin.analysis.causes.payback_result import Gain, run_facts, step_with, step_without
from tb_torchcompile_plugin.analysis.causes.rule import Rule
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, Problem, compilations
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_breaks
from tb_torchcompile_plugin.analysis.compile.recompiles import FailedGuard, advice_of, frame_of, recompiles
from tb_torchcompile_plugin.analysis.finding import Finding, Severity, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, counted, often, plural, rounded
from tb_torchcompile_plugin.profile.compiled.regions import lookups_in_vain
from tb_torchcompile_plugin.torch_names.python_frames import is_profiler_hook, is_users_file

_CALL_IT = "Call what torch.compile returns: model = torch.compile(model), before it is handed to the trainer"
_COMPILE_INNER = (
    "Compile the module that does the work itself, before anything wraps it: model = torch.compile(model)"
)
_MEND_BREAK = (
    "Move that line out of the compiled function, or do without it: what comes before it is compiled then"
)


class ProfilerHooks(Rule):
    """Hooks that a profiler hangs on modules are compiled in place of the model, or break its graphs."""

    id = "profiler_hooks"
    panel = "compilations"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        compiled = context.data.of(compilations) if context.data and context.whole else []
        hooks = [row for row in compiled if is_profiler_hook(row.function)]
        if not hooks:
            return
        names = sorted({row.function for row in hooks})
        alone = context.nothing_compiled
        yield self.finding(
            context,
            f"Torch compiled {'only ' if alone else ''}a profiler's own hooks ({', '.join(names)}), "
            f"{often(len(hooks))}: "
            + (
                "nothing of yours runs compiled"
                if alone
                else "without that profiler the program is another one"
            ),
            "Switch the hooks off: PyTorchProfiler(record_module_names=False) in Lightning",
            {"compilations": len(hooks), "of_compilations": len(compiled)},
            severity="critical",
            code="PyTorchProfiler(record_module_names=False)",
            by=context.best("eager"),
            where=names,
        )


class NothingCompiled(Rule):
    id = "nothing_compiled"
    panel = "compiled_regions"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if not context.whole or not context.nothing_compiled or context.given_up:
            return
        rows = context.data.of(compilations) if context.data else []
        if any(is_profiler_hook(row.function) for row in rows):
            return  # the root, of which another rule tells
        beside = _compiled_beside(context)
        if beside and beside.verdict == "never":
            return  # it was tried
        when = "in the profiled steps" if context.steps else "in this span"
        empty = context.regions_that_ran & {row.compile_id for row in rows}
        why, next_step, where = self._empty(context, empty) if empty else self._not_called(rows)
        by = context.best("eager")
        row = self.finding(
            context,
            f"Nothing that runs {when} is compiled{why}",
            next_step,
            {"compilations": len({(row.epoch, row.compile_id) for row in rows})},
            severity=_severity(context, by),
            code="model = torch.compile(model)",
            by=by,
            where=where,
        )
        yield _as_measured(row, beside) if beside and beside.verdict == "pays" else row

    def _not_called(self, rows: list[Compilation]) -> tuple[str, str, list[str]]:
        compiled = len({(row.epoch, row.compile_id) for row in rows})
        why = (
            f", though there {'was' if compiled == 1 else 'were'} {plural(compiled, 'compilation')}: "
            f"what {'it' if compiled == 1 else 'they'} made is not called here"
            if compiled
            else ": torch.compile was not called, or its result never was"
        )
        return why, _CALL_IT, []

    def _empty(self, context: RuleContext, regions: set[str]) -> tuple[str, str, list[str]]:
        """What was compiled is called, and each graph of it broke before it held an operation."""
        made = f"what torch compiled ({plural(len(regions), 'frame')}) is called and holds no operation"
        breaks = context.data.of(graph_breaks) if context.data else []
        first = next((row for row in breaks if row.compile_id in regions and row.file), None)
        if first is None:
            return f": {made}", _COMPILE_INNER, []
        where = at_line(first.file, first.line)
        next_step = _MEND_BREAK if is_users_file(first.file) else _COMPILE_INNER
        return f": {made}, as {where} breaks the graph ({first.reason})", next_step, [where]


def _severity(context: RuleContext, compiled: WhatIf | None) -> Severity:
    """No alarm where compiling brings little, or by the model nothing."""
    little = compiled.predicted.gain_percent < thresholds.gain_percent if compiled else context.predicts
    return "warning" if little else "critical"


def _compiled_beside(context: RuleContext) -> Gain | None:
    """What compiling brings, where the same program was recorded compiled; None where it was not."""
    if context.profile is None or context.profile.beside is None:
        return None
    (gain,) = context.profile.of(pays).gain
    return gain if gain.told_by == "measured" and gain.compiled_run else None


def _as_measured(row: Finding, gain: Gain) -> Finding:
    """The same, with the step of the compiled run in place of a predicted one."""
    step = step_with(gain)
    title = f"{row.title.partition(':')[0]}: run {gain.compiled_run} is the same program, compiled"
    return replace(row, title=title, predicted=step, fix=None, severity=severity_of(step.gain_percent))


class OtherBackend(Rule):
    """Frames are captured, and what a backend other than inductor makes of them calls the same operators one by one."""

    id = "debug_backend"
    panel = "compilations"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        by = context.best("backend")
        if not context.whole or by is None or by.predicted.gain_percent < thresholds.gain_percent:
            return
        frames = len(context.profile.of(captured_only)) if context.profile else 0
        yield self.finding(
            context,
            f"{plural(frames, 'frame')} {'is' if frames == 1 else 'are'} captured and not compiled: "
            f'{"its" if frames == 1 else "their"} operators are launched one by one, as with backend="eager" or '
            f'"aot_eager"; {with_inductor(by.predicted, context.paced)}',
            words_of(by).next_step,
            {"frames": frames, "operators_per_step": by.times},
            by=by,
            code=words_of(by).code,
        )


class GivenUp(Rule):
    """Frames that torch skipped, or compiled too often: they run eager, whatever else is changed."""

    id = "frame_given_up"
    panel = "compilations"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        share, by = context.eager_percent, context.best("frames")
        worth = by.predicted.gain_percent if by else share
        small = worth is None or worth < thresholds.gain_percent
        if not context.whole or (small and (by or not context.given_up)):
            return
        if not context.given_up and by:
            yield self._untold(context, by)
        row = next((row for row in context.given_up if not is_profiler_hook(row.function)), None)
        if row is None:
            return
        caller = frame_called_at(context.summary, row.epoch, row.compile_id)
        broke = break_called_at(context.summary, row.epoch, row.compile_id)
        where = broke or caller or (at_line(row.file, row.line) if row.line else row.file)
        frame = named_with_caller(row.function, row.file, row.line, caller) if caller else row.function
        guard = _last_guard(context, row) if row.kind == "limit" else None
        why = (
            "it hit the recompile limit"
            if row.kind == "limit"
            else next(iter(row.reason.splitlines()), "torch skipped it")
        )
        if broke:
            why += f", in {at_line(row.file, row.line)}, called at {broke}"
        yield self.finding(
            context,
            f"{frame or 'A frame'} runs eager: {why}"
            + (f"; {without(by.predicted, 'that', context.paced)}" if by else ""),
            advice_of(guard)
            or "Mark what changes as dynamic, or keep it the same; see which guard fails each time"
            if row.kind == "limit"
            else "Move what breaks the graph out of the loop or function, so that torch can go on behind it",
            {"frames": len(context.given_up)} | ({} if share is None else {"eager_percent": share}),
            # What it calls may be compiled: nobody knows what a small one costs.
            severity="warning" if small else "critical",
            row=f"compilation:{row.compile_id},{row.epoch},forward",
            by=by,
            where=[where] if where else [],
        )

    def _untold(self, context: RuleContext, by: WhatIf) -> Finding:
        """Nothing was written down of what was compiled: the trace tells that calls ran eager, and not why."""
        calls = context.profile.of(lookups_in_vain) / max(context.steps, 1) if context.profile else 0
        where = place(by)
        return self.finding(
            context,
            f"Torch has given up compiling {counted(calls, 'call')} {context.where}, so "
            f"{'it runs' if rounded(calls) == '1' else 'they run'} eager"
            f"{f' at {where}' if where else ''}: {without(by.predicted, 'that', context.paced)}",
            "Record with tb_torchcompile_plugin.tensorboard_trace_handler to see which frames and why, or run with "
            'TORCH_LOGS="recompiles,graph_breaks": most often a frame hit the recompile limit, or breaks in a loop',
            {"calls": calls},
            severity="critical",
            code='TORCH_LOGS="recompiles,graph_breaks"',
            by=by,
            where=[where] if where else [],
        )


def _last_guard(context: RuleContext, row: Problem) -> FailedGuard | None:
    """The guard that failed when the frame was compiled for the last time."""
    known = context.data.of(recompiles) if context.data else []
    frame = row.epoch, frame_of(row.compile_id)
    again = [one for one in known if (one.epoch, frame_of(one.compile_id)) == frame]
    return next((guard for one in reversed(again) for guard in one.guards), None)


EAGER_RULES: tuple[Rule, ...] = (ProfilerHooks(), NothingCompiled(), OtherBackend(), GivenUp())


# Compiled code that makes the program no faster than it is without.


_PLACES = 3


class DoesNotPay(Rule):
    """Only where an eager run was measured: what a model says of one is no reason to do without."""

    id = "compile_does_not_pay"
    panel = "pays"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if not context.whole or context.profile is None or context.profile.beside is None:
            return
        known = context.profile.of(pays)
        gain = known.gain[0]
        if (
            gain.told_by != "measured"
            or gain.verdict != "never"
            or not context.profile.of(run_facts).compiled
        ):
            return
        rows = context.data.of(compilations) if context.data else []
        places = dict.fromkeys(at_line(row.file, row.line) for row in rows if row.line)
        reason = (
            f", or mend first what keeps it from paying: {known.why_not[0].says}" if known.why_not else ""
        )
        predicted = step_without(gain)
        yield Finding(
            rule=self.id,
            severity=severity_of(predicted.gain_percent),
            title=known.says[0].removesuffix("."),
            evidence=_evidence(gain, known.cost[0].blocked_s if known.cost else None),
            saves_us=None,
            panel=self.panel,
            row=None,
            next_step=f"Do without torch.compile here{reason}",
            predicted=predicted if predicted.gain_percent >= thresholds.gain_percent else None,
            where=list(places)[:_PLACES],
        )


def _evidence(gain: Gain, compile_s: float | None) -> dict[str, float | int]:
    known = {"eager_us": gain.eager_us, "compiled_us": gain.compiled_us, "compile_s": compile_s}
    return {name: number for name, number in known.items() if number is not None}


PAYS_RULES: tuple[Rule, ...] = (DoesNotPay(),)
