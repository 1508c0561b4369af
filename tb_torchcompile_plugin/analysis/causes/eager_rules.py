"""Why does the program, or the frame that matters, not run compiled, and is compiling worth it?"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import captured_only
from tb_torchcompile_plugin.analysis.causes.fix_words import place, step_after, words_of
from tb_torchcompile_plugin.analysis.causes.payback import pays
from tb_torchcompile_plugin.analysis.causes.payback_result import Gain, run_facts, step_with, step_without
from tb_torchcompile_plugin.analysis.causes.rule import (
    SpanContext,
    SpanRule,
    called_at,
    named_with_caller,
    users_line,
)
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf, why_nothing
from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, Problem, compilations
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_breaks
from tb_torchcompile_plugin.analysis.compile.recompiles import advice_of, frame_of, recompiles
from tb_torchcompile_plugin.analysis.finding import Finding, severity_of
from tb_torchcompile_plugin.analysis.formatting import at_line, counted, often, plural, rounded
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.compiled.regions import lookups_in_vain
from tb_torchcompile_plugin.torch_names.python_frames import is_profiler_hook, is_users_file

_CALL_IT = "Call what torch.compile returns: model = torch.compile(model), before it is handed to the trainer"
_INNER = (
    "Compile the module that does the work itself, before anything wraps it: model = torch.compile(model)"
)
_MOVE_IT = (
    "Move that line out of the compiled function, or do without it: what comes before it is compiled then"
)
_MAX_LINES = 3


class ProfilerHooks(SpanRule, id="profiler_hooks", panel="compilations"):
    """Hooks of a profiler that are compiled instead of the model, or break its graphs."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them."""
        rows = context.rows(compilations) if context.whole else []
        hooks = [row for row in rows if is_profiler_hook(row.function)]
        if not hooks:
            return
        names = sorted({row.function for row in hooks})
        alone = context.nothing_compiled
        other = "without that profiler the program is another one"
        yield self.finding(
            context,
            f"Torch compiled {'only ' if alone else ''}a profiler's own hooks ({', '.join(names)}), "
            f"{often(len(hooks))}: {'nothing of yours runs compiled' if alone else other}",
            "Switch the hooks off: PyTorchProfiler(record_module_names=False) in Lightning",
            {"compilations": len(hooks), "of_compilations": len(rows)},
            severity="critical",
            code="PyTorchProfiler(record_module_names=False)",
            by=context.best("eager"),
            where=names,
        )


class NothingCompiled(SpanRule, id="nothing_compiled", panel="compiled_regions"):
    """A program that runs eager."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding, unless another rule says why or compiling was measured to be no faster."""
        if not context.whole or not context.nothing_compiled or context.given_up:
            return
        rows = context.rows(compilations)
        measured = _measured_gain(context)
        if any(is_profiler_hook(row.function) for row in rows) or (measured and measured.verdict == "never"):
            return
        when = "in the profiled steps" if context.steps else "in this span"
        why, next_step, where = _why_nothing(context, rows)
        by = context.best("eager")
        # No alarm where compiling brings little, or where the model predicts that it brings nothing.
        gain = by.predicted.gain_percent if by else 0.0
        little = gain < thresholds.gain_percent and (by or context.profile.of(why_nothing) is None)
        row = self.finding(
            context,
            f"Nothing that runs {when} is compiled{why}",
            next_step,
            {"compilations": len({(row.epoch, row.compile_id) for row in rows})},
            severity="warning" if little else "critical",
            code="model = torch.compile(model)",
            by=by,
            where=where,
        )
        if measured and measured.verdict == "pays":
            step = step_with(measured)
            title = (
                f"{row.title.partition(':')[0]}: run {measured.compiled_run} is the same program, compiled"
            )
            severity = severity_of(step.gain_percent)
            row = replace(row, title=title, predicted=step, fix=None, severity=severity)
        yield row


def _why_nothing(context: SpanContext, rows: list[Compilation]) -> tuple[str, str, list[str]]:
    """Return why nothing compiled runs, what to do, and where."""
    compiled = len({(row.epoch, row.compile_id) for row in rows})
    if not compiled:
        return ": torch.compile was not called, or its result never was", _CALL_IT, []
    empty = context.regions_that_ran & {row.compile_id for row in rows}
    if not empty:
        was, it = ("was", "it") if compiled == 1 else ("were", "they")
        why = f", though there {was} {plural(compiled, 'compilation')}: what {it} made is not called here"
        return why, _CALL_IT, []
    # Each graph broke before it held an operation.
    why = f": what torch compiled ({plural(len(empty), 'frame')}) is called and holds no operation"
    first = next((row for row in context.rows(graph_breaks) if row.compile_id in empty and row.file), None)
    if first is None:
        return why, _INNER, []
    where = at_line(first.file, first.line)
    next_step = _MOVE_IT if is_users_file(first.file) else _INNER
    return f"{why}, as {where} breaks the graph ({first.reason})", next_step, [where]


def _measured_gain(context: SpanContext) -> Gain | None:
    """Return what compiling brings, where the same program was recorded compiled."""
    if context.profile.beside is None:
        return None
    (gain,) = context.profile.of(pays).gain
    return gain if gain.told_by == "measured" and gain.compiled_run else None


class OtherBackend(SpanRule, id="debug_backend", panel="compilations"):
    """Frames that are captured for a backend other than inductor, which calls the same operators one by one."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding for all of them."""
        by = context.best("backend")
        if not context.whole or by is None or by.predicted.gain_percent < thresholds.gain_percent:
            return
        frames = len(context.profile.of(captured_only))
        yield self.finding(
            context,
            f"{plural(frames, 'frame')} {'is' if frames == 1 else 'are'} captured and not compiled: "
            f'{"its" if frames == 1 else "their"} operators are launched one by one, as with backend="eager" or '
            f'"aot_eager"; {step_after(by.predicted, "with inductor", context.paced)}',
            words_of(by).next_step,
            {"frames": frames, "operators_per_step": by.times},
            by=by,
            code=words_of(by).code,
        )


class GivenUp(SpanRule, id="frame_given_up", panel="compilations"):
    """Frames that torch skipped, or compiled too often: they run eager, whatever else is changed."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding, about the first frame where the compile data names it."""
        share, by = context.eager_percent, context.best("frames")
        small = (by.predicted.gain_percent if by else share) < thresholds.gain_percent
        if not context.whole or (small and (by or not context.given_up)):
            return
        if not context.given_up and by:
            yield self._unexplained(context, by)
        row = next((row for row in context.given_up if not is_profiler_hook(row.function)), None)
        if row is None:
            return
        caller = _frame_called_at(context.summary, row.epoch, row.compile_id)
        broken_at = _break_called_at(context.summary, row.epoch, row.compile_id)
        where = broken_at or caller or (at_line(row.file, row.line) if row.line else row.file)
        frame = named_with_caller(row.function, row.file, row.line, caller) if caller else row.function
        why, next_step = _why_given_up(context, row)
        if broken_at:
            why += f", in {at_line(row.file, row.line)}, called at {broken_at}"
        if by:
            why += f"; {step_after(by.predicted, 'without that', context.paced)}"
        yield self.finding(
            context,
            f"{frame or 'A frame'} runs eager: {why}",
            next_step,
            {"frames": len(context.given_up), "eager_percent": share},
            # What it calls may be compiled: the cost of a small frame is unknown.
            severity="warning" if small else "critical",
            row=f"compilation:{row.compile_id},{row.epoch},forward",
            by=by,
            where=[where] if where else [],
        )

    def _unexplained(self, context: SpanContext, by: WhatIf) -> Finding:
        """Return the finding without compile data: the trace shows that calls ran eager, and not why."""
        calls = context.profile.of(lookups_in_vain) / context.step_count
        line = place(by)
        return self.finding(
            context,
            f"Torch has given up compiling {counted(calls, 'call')} {context.where}, so "
            f"{'it runs' if rounded(calls) == '1' else 'they run'} eager"
            f"{f' at {line}' if line else ''}: {step_after(by.predicted, 'without that', context.paced)}",
            "Record with tb_torchcompile_plugin.tensorboard_trace_handler to see which frames and why, or run with "
            'TORCH_LOGS="recompiles,graph_breaks": most often a frame hit the recompile limit, or breaks in a loop',
            {"calls": calls},
            severity="critical",
            code='TORCH_LOGS="recompiles,graph_breaks"',
            by=by,
            where=[line] if line else [],
        )


def _frame_called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> str:
    """Return the user's line that led to a compiled frame: a compilation that torch gave up has no stack."""
    rows = [row for row in summary.compilations if row.stack and row.key.epoch == epoch] if summary else []
    frame = compile_id.partition("/")[0]
    return called_at(next((row.stack for row in rows if row.key.compile_id.partition("/")[0] == frame), ()))


def _break_called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> str:
    """Return the user's line that led to the break for which a frame was given up; "" where it is not a library's."""
    breaks = summary.graph_breaks if summary else ()
    row = next((row for row in breaks if (row.key.epoch, row.key.compile_id) == (epoch, compile_id)), None)
    return "" if row is None or is_users_file(row.file) else users_line(row.stack)


def _why_given_up(context: SpanContext, row: Problem) -> tuple[str, str]:
    """Return why torch gave a frame up, and what to do."""
    if row.kind != "limit":
        advice = "Move what breaks the graph out of the loop or function, so that torch can go on behind it"
        return next(iter(row.reason.splitlines()), "torch skipped it"), advice
    # The guard that failed when the frame was compiled for the last time.
    failures = context.rows(recompiles)
    frame = row.epoch, frame_of(row.compile_id)
    same = [failure for failure in failures if (failure.epoch, frame_of(failure.compile_id)) == frame]
    guard = next((guard for failure in reversed(same) for guard in failure.guards), None)
    advice = "Mark what changes as dynamic, or keep it the same; see which guard fails each time"
    return "it hit the recompile limit", advice_of(guard) or advice


EAGER_RULES: tuple[SpanRule, ...] = (ProfilerHooks(), NothingCompiled(), OtherBackend(), GivenUp())


class DoesNotPay(SpanRule, id="compile_does_not_pay", panel="pays"):
    """Compiled code that is no faster, compared with a measured eager run: a predicted one is no reason to stop."""

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield one finding."""
        profile = context.profile
        if not context.whole or profile.beside is None or not profile.of(run_facts).compiled:
            return
        result = profile.of(pays)
        gain = result.gain[0]
        if gain.told_by != "measured" or gain.verdict != "never":
            return
        rows = context.rows(compilations)
        lines = dict.fromkeys(at_line(row.file, row.line) for row in rows if row.line)
        also = [f", or mend first what keeps it from paying: {row.says}" for row in result.why_not[:1]]
        compile_s = result.cost[0].blocked_s if result.cost else None
        numbers = {"eager_us": gain.eager_us, "compiled_us": gain.compiled_us, "compile_s": compile_s}
        step = step_without(gain)
        row = self.finding(
            context,
            result.says[0].removesuffix("."),
            f"Do without torch.compile here{''.join(also)}",
            {name: number for name, number in numbers.items() if number is not None},
            severity=severity_of(step.gain_percent),
            where=list(lines)[:_MAX_LINES],
        )
        yield replace(row, predicted=step) if step.gain_percent >= thresholds.gain_percent else row


PAYS_RULES: tuple[SpanRule, ...] = (DoesNotPay(),)
