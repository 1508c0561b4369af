"""What runs eagerly, and why?"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import break_costs, compiling, eager_points, fix, payback, what_if
from tb_torchcompile_plugin.analysis.causes.cause import (
    Cause,
    PricedCause,
    SpanContext,
    Words,
    called_at,
    named_with_caller,
    saves_up_to,
    split_code,
    step_after,
)
from tb_torchcompile_plugin.analysis.compile.compilations import Problem, compilations, problems_by_function
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreakSite, graph_breaks
from tb_torchcompile_plugin.analysis.compile.recompiles import frame_of
from tb_torchcompile_plugin.analysis.finding import Finding, prediction
from tb_torchcompile_plugin.analysis.formatting import about, at_line, count_per_step, duration, often, plural
from tb_torchcompile_plugin.compile_log.compile_rows import parse_graph_break
from tb_torchcompile_plugin.compile_log.record import key_of, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompilerCall, CompileSummary
from tb_torchcompile_plugin.profile.columns import within
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.host.eager_roots import lookups_in_vain
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind, is_generic_hint
from tb_torchcompile_plugin.torch_names.operators import DISPATCH_MODE
from tb_torchcompile_plugin.torch_names.python_frames import is_profiler_hook, is_user_file

# Of launches inside captured frames: another backend may compile them, too. Chosen on the recordings.
_OPERATORS = 0.9
# What helps against a break for which torch has no hint.
_REWRITE = "Rewrite this call with torch operators, or move it out of the compiled function"
_BREAK_ADVICE: dict[BreakKind, str] = {
    "explicit": "Remove the call that requests the graph break, or move it out of the compiled function",
    "print": "Print and log outside the compiled function",
    "item": "Keep the value in a tensor, or read it outside the compiled function",
    "data_dependent": "Compute both branches and select with torch.where, or use torch.cond",
    **dict.fromkeys(("call", "builtin", "other"), _REWRITE),
}
SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")  # variables that disable torch.compile
_COMPILE = "`model = torch.compile(model)`"
_CALL_IT = f"Call the result of torch.compile: {_COMPILE}, before the model is passed to a trainer"
_INNER = f"Compile the module that does the work, before anything wraps it: {_COMPILE}"
_BROKEN = "{place} breaks the graph before it contains an operation ({text})"
NARROW_DOWN = 'Compare backend="aot_eager", or use `python -m torch._inductor.compiler_bisector`'
# Why no compiled code runs, and what to do. Suppressed errors and the recompile limit are findings of their frame.
EAGER_REASONS = {
    "variable": ("{what}=1 was set", "Unset {what}, which disables torch.compile"),
    "stance": (
        'set_stance("{what}"){at} was active',
        'Call torch.compiler.set_stance("default") before the steps',
    ),
    "fail_on_recompile": (
        'set_stance("{what}"){at} raises an error instead of compiling',
        'Call torch.compiler.set_stance("default") until everything has been compiled once. The profile shows what the '
        "program does after the error",
    ),
    "eager_then_compile": (
        'set_stance("{what}"){at} runs each first call eagerly',
        "Record later steps: the second call is compiled",
    ),
    "disabled": ("torch._dynamo.config.disable was True{at}", "Set torch._dynamo.config.disable to False"),
    "dispatch_mode": (
        "{text} was active{at}, so Dynamo skipped the code",
        "Do not use the dispatch mode {text} in the steps, or use it on the uncompiled model. Functions that are "
        "called while a mode is active run eagerly from then on",
    ),
    "traced_mode": (
        "operators run in a dispatch mode ({what}), which Dynamo skips",
        "Do not use the mode, such as FlopCounterMode, in the steps, or use it on the uncompiled model. Whether "
        "torch.compile was called is unknown",
    ),
    "skip": (
        "Dynamo skipped {what}{at}: {text}",
        "Fix the reason that torch gives, or compile the functions that {what} calls",
    ),
    "disable": (
        "torch.compiler.disable was applied{at}",
        "Remove torch.compiler.disable from the function to compile",
    ),
    "method": (
        "`{what}`{at} runs the uncompiled module: torch.compile wraps only calls of the compiled object",
        "Compile the module in place: `model.compile()`, or model.forward = torch.compile(model.forward)",
    ),
    "broken": (
        _BROKEN,
        "Move that line out of the compiled function, or remove it: torch then compiles the operations around it",
    ),
    "broken_inside": (_BROKEN, _INNER),
    "empty": ("the compiled code ({frames}) contains no operation", _INNER),
    "not_called": ("the compiled code ({what}) is not called here", _CALL_IT),
    "unused": ("the result of torch.compile{at} is not called here", _CALL_IT),
    "never": ("torch.compile was not called", _CALL_IT),
    "unknown": (
        "the reason is unknown because calls of torch.compile were not recorded",
        f"{_CALL_IT}. To record the reason, create tb_torchcompile_plugin.tensorboard_trace_handler before that",
    ),
}


class ProfilerHooks(Cause):
    """Torch compiled hooks that a profiler adds to modules, as Lightning's profiler does (critical).

    Listed first, because the recording shows a different program.
    """

    id = "profiler_hooks"
    panel = "compilations"
    role = "blocking"
    needs_all = True

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        if not context.hooks:
            return
        names = sorted({row.function for row in context.hooks})
        alone = context.nothing_compiled
        effect = "none of your code runs compiled" if alone else "without it, the program runs differently"
        yield self.finding(
            f"Torch compiled {'only ' if alone else ''}a profiler's own hooks ({', '.join(names)}), "
            f"{often(len(context.hooks))}: {effect}",
            "Disable the hooks: `PyTorchProfiler(record_module_names=False)` in Lightning",
            {"compilations": len(context.hooks), "of_compilations": len(context.rows(compilations))},
            severity="critical",
            by=context.best("eager"),
            where=names,
        )


class NothingCompiled(Cause):
    """No compiled code ran. Eager operators launched GPU work or, without a GPU, took a share of the profiled time.

    Critical; a warning if the predicted gain of compiling is below `gain_percent`. If a compiled [baseline
    run](../concepts/runs.md#baseline-run) exists, its measured step is the prediction; if it is not faster, nothing is
    reported. The title names the first of these recorded reasons: `TORCH_COMPILE_DISABLE` (or `TORCHDYNAMO_DISABLE`),
    `set_stance("force_eager")` or `"eager_on_recompile"`, `torch._dynamo.config.disable`, an active dispatch mode, a
    function that Dynamo skipped, `torch.compiler.disable` on the compiled function, a method of a compiled module such
    as `generate` (it belongs to the original module, and calls that uncompiled), `set_stance("fail_on_recompile")`,
    `"eager_then_compile"` with one recorded step, graph breaks before the first operation, compiled frames without an
    operation, compiled code that is not called, a result of `torch.compile` that is not called, no call of
    `torch.compile`. If such calls were not recorded: a dispatch mode in the trace (`PythonDispatchMode`), otherwise
    unknown.
    """

    id = "nothing_compiled"
    panel = "graph_breaks"
    section = "eager"
    needs_all = True
    limits = ("gain_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        if not context.nothing_compiled or context.given_up or context.hooks:
            return
        gain = context.profile.of(payback.payback).gain[0] if context.profile.baseline_run else None
        # If the same program was recorded compiled.
        measured = gain if gain and gain.determined_by == "measured" and gain.compiled_run else None
        if measured and measured.verdict == "not_worth_it":
            return
        cause, by, is_minor = eager_cause(context), context.best("eager"), False
        predicted, why = by.predicted if by else None, cause.why
        if measured and measured.verdict == "worth_it":
            by, predicted = None, payback.measured_step(measured, is_eager=True)
            why = f"run {measured.compiled_run} is the same program, compiled"
        elif predicted and predicted.gain_percent >= thresholds.gain_percent:
            why += f". {saves_up_to(predicted, 'With torch.compile', context.time_unit)}"
        else:  # no alarm if compiling gains little, or if the model predicts no gain
            is_minor = predicted is not None or context.profile.of(what_if.why_nothing) is None
        yield self.finding(
            f"No compiled code runs in {'the profiled steps' if context.steps else 'this span'}: {why}",
            cause.next_step,
            {"compilations": len(_compiled_ids(context))} if context.summary else {},
            severity="warning" if is_minor else None if predicted else "critical",
            by=by,
            predicted=predicted,
            where=[cause.place],
        )


class CompileInLoop(Cause):
    """A line called `torch.compile` in every profiled step, which took a share of the step.

    The handler times these calls. No prediction if the GPU is the bottleneck.
    """

    id = "compile_in_loop"
    panel = "compilations"
    needs_all = True
    limits = ("gain_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        calls = [row for row in context.compiler_calls if row.kind == "compile"]
        inside = [row for row in calls if _inside_us(context, [row])]
        for (file, line), rows in grouped(inside, lambda row: (row.file, row.line)).items():
            us, windows = _inside_us(context, rows), context.profile.of(StepWindows).windows
            starts = np.array([row.start_ns for row in rows], np.int64) - context.profile.trace.base_ns
            numbers = within(windows, starts)
            calling = len(np.unique(numbers[numbers >= 0]))
            # The first call may precede the recording.
            least_calls = max(context.steps - 1, thresholds.steps_least)
            if calling < least_calls or context.share(us) < thresholds.gain_percent:
                continue
            step, place = context.profile.of(step_time), at_line(file, line)
            # Scaled to a step without the profiler.
            each = us / context.step_count * step.step_us / step.profiled_us
            left = prediction(1000 * step.step_us, 1000 * max(step.step_us - each, 1.0))
            yield self.finding(
                f"torch.compile is called in every step{f' at {place}' if place else ''} and takes {duration(each)} of "
                f"each {duration(step.step_us)} step",
                "Create the compiled function once, before the loop, and pass changing values as arguments",
                {"calls_per_step": len(rows) / context.step_count, "host_us_per_step": each},
                saves_us=us,
                share=context.share(us),
                # If the GPU is the bottleneck, the step may take as long.
                predicted=left if step.device is None else None,
                where=[place],
            )


class DebugBackend(PricedCause):
    """Frames are captured, but inductor compiles none of them, according to the compile data.

    `backend="eager"`, `"aot_eager"` and similar backends launch the same operators one by one.
    """

    id = "debug_backend"
    kind = "backend"
    panel = "compilations"
    needs_all = True
    words = Words(
        "{times} operator{s} {each} of captured frames, such as {name}, {are} launched one by one",
        "Remove backend=…, which may be left over from debugging: `torch.compile(model)` uses inductor",
        "With inductor",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        if not profile.of(eager_points.captured_only):
            return
        lane = profile.of(launch_sequence)
        optimizing, _ = fix.points_inside(profile, profile.of(eager_points.optimizer_times))
        points = lane.launches & ~profile.of(eager_points.outside) & ~optimizing
        by_operators = fix.outermost_operator(profile.trace, lane.row[points]) >= 0
        if points.any() and by_operators.mean() >= _OPERATORS:
            yield from eager_points.compiled_operators(profile, points)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        frames = len(context.profile.of(eager_points.captured_only))
        next_step, code = split_code(self.words.next_step)
        stances = _stances_in_force(context.compiler_calls, *_profiled_ns(context))
        if forced := next((row for row in stances if row.reason), None):
            place = at_line(forced.file, optional_number(forced, "line"))
            at = f" at {place}" if place else ""
            next_step = f'Remove force_backend="{forced.reason}" from set_stance{at}'
        for by in self.large(context):
            yield self.finding(
                f"{plural(frames, 'frame is', 'frames are')} captured but not compiled. "
                f'{"Its" if frames == 1 else "Their"} operators are launched one by one, as with backend="eager" or '
                f'"aot_eager". {saves_up_to(by.predicted, self.words.fixed, context.time_unit)}',
                next_step,
                {"frames": frames, "operators_per_step": by.times},
                by=by,
                code=code,
            )


class CompileFailed(Cause):
    """Compiling a frame failed; torch raised the error or suppressed it (critical)."""

    id = "compile_failed"
    panel = "compilations"
    superseded_by = ("frame_given_up", "profiler_hooks")

    def detect_in_data(self, data: CompileData) -> Iterator[Finding]:
        for row, *more in data.of(problems_by_function, "failed"):
            why, next_step = why_given_up(data, row)
            yield self.finding(
                f"{row.function or 'A function'} failed to compile ({row.type}): {why}. {row.consequence.rstrip('.')}",
                next_step,
                {"failures": 1 + len(more)},
                severity="critical",
                row=f"compilation:{row.compile_id},{row.epoch},forward",
                where=[at_line(row.file, row.line)] if row.file else [],
            )


class FrameGivenUp(PricedCause):
    """Torch gave up compiling a frame: a graph break that it cannot resume, the recompile limit, or a hidden error.

    Detected in the compile data or, without these, by cache lookups that do not lead to a compiled region, at least
    once per step. Critical if there is no prediction and eager operators take a share of the profiled time.
    """

    id = "frame_given_up"
    kind = "frames"
    panel = "compilations"
    needs_all = True
    limits = ("gain_percent",)
    words = Words(
        "Functions that torch failed to compile run eagerly{place}",
        "The Compilations panel shows the reason. Move graph breaks in loops, and changing values, out of the compiled "
        "function",
        "If they were compiled",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        if not profile.of(eager_points.given_up):
            return
        lane = profile.of(launch_sequence)
        points = profile.of(eager_points.outside) & (lane.launches | lane.synchronises)
        if not points.any():
            return
        change = fix.in_sequence(
            fix.without_waiting(points & lane.synchronises), fix.compiled_whole(profile, points)
        )
        gaps = break_costs.gaps_between(profile, profile.of(eager_points.calls_in_given_up)).times
        joined = fix.in_sequence(change, *break_costs.joined_graphs(profile, gaps))
        subject = eager_points.main_operator(profile, points & lane.launches)
        yield fix.Fix(int(points.sum()) / lane.steps, joined, change, subject=subject)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        share, by = context.eager_percent, context.best("frames")
        if by and by.predicted.gain_percent < thresholds.gain_percent:
            return
        if not context.given_up and by:
            yield self.unexplained(context, by)
        row = next((row for row in context.given_up if not is_profiler_hook(row.function)), None)
        data = context.profile.data
        if row is None or data is None:
            return
        broken_at, caller = _called_at(context, row)
        where = broken_at or caller or (at_line(row.file, row.line) if row.line else row.file)
        frame = named_with_caller(row.function, row.file, row.line, caller) if caller else row.function
        why, next_step = why_given_up(data, row)
        if broken_at:
            why += f", in {at_line(row.file, row.line)}, called at {broken_at}"
        if by:
            why += f". {step_after(by.predicted, 'If it were compiled', context.time_unit)}"
        yield self.finding(
            f"{frame or 'A function'} runs eagerly: {why}",
            next_step,
            {"frames": len(context.given_up), "eager_percent": share},
            # Functions that it calls may be compiled: the cost of a small frame is unknown.
            severity=None if by else "warning" if share < thresholds.gain_percent else "critical",
            row=f"compilation:{row.compile_id},{row.epoch},forward",
            by=by,
            where=[where],
        )

    def unexplained(self, context: SpanContext, by: what_if.WhatIf) -> Finding:
        calls = context.profile.of(lookups_in_vain) / context.step_count
        times, each = count_per_step(calls, context.time_unit.each)
        line = at_line(by.file, by.line)
        return self.finding(
            f"{times} {'call' if times == '1' else 'calls'} {each}{f' at {line}' if line else ''} "
            f"{'runs' if times == '1' else 'run'} eagerly because torch gave up compiling the function. "
            f"{step_after(by.predicted, 'If they were compiled', context.time_unit)}",
            "Record with tb_torchcompile_plugin.tensorboard_trace_handler to see which frames and why, or run with "
            '`TORCH_LOGS="recompiles,graph_breaks"`. Usually, a frame hit the recompile limit or has a graph break in '
            "a loop",
            {"calls": calls},
            severity="critical",
            by=by,
            where=[line],
        )


class EagerRemainder(PricedCause):
    """Operators run eagerly next to compiled code: launched one by one, elementwise operators not fused."""

    id = "eager_remainder"
    kind = "eager"
    panel = "graph_breaks"
    section = "eager"
    varies = True
    words = Words(
        "{times} eager operator{s} {each}, such as {name}, {are} launched one by one{place}",
        "Compile the function that calls them, or use torch._foreach_*, which processes many tensors at once",
        "If they were compiled",
    )

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        is_other_cause = context.nothing_compiled or context.profile.of(eager_points.given_up)
        return iter(()) if is_other_cause else super().detect(context)

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        return eager_points.compiled_operators(profile, profile.of(eager_points.eager_points))


class GraphBreaks(PricedCause):
    """Graph breaks split what would be one graph; several at one line count once.

    Without a prediction, the cost is the host time between graphs (without compilation), as a share of the profiled
    time.
    """

    id = "graph_breaks"
    panel = "graph_breaks"
    words = Words(
        "{times} graph break{s} {each}",
        "Move what breaks the graph out of the compiled function. The Graph breaks panel shows the line and the reason",
        "Without graph breaks",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        return break_costs.closed_breaks(profile)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        profile, cost = context.profile, context.profile.of(break_costs.cost_of_breaks)
        by = context.best("graph_breaks") if cost else None
        direct = profile.of(break_costs.direct_us)
        share = cost.gain_percent if cost else profile.of(break_costs.direct_percent) or 0.0
        sites = _sites_that_ran(context)
        if not sites or share < thresholds.gain_percent:
            return
        worst, own = sites[0], None
        caller = called_at(worst.breaks[0].stack) if worst.breaks else ""
        if worst.file and not is_user_file(worst.file):  # add the worst one in the user's own files
            own = next((site for site in sites if site.file and is_user_file(site.file)), None)
        where, also = _line_of(worst), _line_of(own) if own else caller
        advice, fixed = hint(worst), "Without it"
        title = f"{plural(len(sites), 'graph break')} at {where}"
        if len(sites) > 1:
            title = f"{plural(len(sites), 'graph break')}, the most expensive at {where}"
            advice, fixed = f"Start with the most expensive, {where}. {advice}", "Without them"
            if own:
                advice = f"{advice.rstrip('.')}. At {also}: {hint(own)}"
        if also:
            title += f" ({'the most expensive in your own code' if own else 'called'} at {also})"
        comma, s = ("", "s") if len(sites) == 1 else (",", "")
        price = f"{comma} interrupt{s} the graph. {break_costs.direct_sentence(profile)}"
        if by:
            price = f"{comma} cost{s} {about(*3 * (by.predicted.gain_us,))} {context.time_unit.each}. "
            price += step_after(by.predicted, fixed, context.time_unit)
        each = cost.gain_us if cost else direct
        saves_us = None if each is None else each * context.step_count
        yield self.finding(
            f"{title}{price}",
            advice,
            {
                "breaks": len(sites),
                "share_percent": share,
                "gain_us_per_step": cost.gain_us if cost else None,
                "most_expensive_us_per_step": worst.saves_us if cost else None,
                "direct_us_per_step": None if cost else direct,
            },
            saves_us=saves_us,
            share=context.share(saves_us),
            row=f"graph_breaks:{worst.key}" if worst.breaks else None,
            by=by,
            where=[where, also],
            code=None,  # torch's hints contain backquotes
        )


class EagerCause(NamedTuple):
    """Why no compiled code runs."""

    reason: str  # a key of EAGER_REASONS
    why: str
    next_step: str
    place: str  # the user's line, "" where unknown


def eager_cause(context: SpanContext) -> EagerCause:
    """Return why no compiled code runs: the first recorded reason."""
    rows = context.rows(compilations)
    frames = {row.compile_id for row in rows if row.compile_id in context.regions_that_ran}
    at_breaks = (row for row in context.rows(graph_breaks) if row.compile_id in frames and row.file)
    what, text, place = "", "", ""
    summary = context.summary or CompileSummary()
    if recorded := next(recorded_reasons(summary, *_profiled_ns(context), context.steps), None):
        reason, call = recorded
        what, text, place = call.subject, call.reason, at_line(call.file, optional_number(call, "line"))
    elif graph_break := next(at_breaks, None):  # before the graph held an operation
        text, place = graph_break.reason, at_line(graph_break.file, graph_break.line)
        is_own = is_user_file(graph_break.file)
        if break_kind(text) == "disabled":
            reason, place = "disable", place if is_own else ""
        else:
            reason = "broken" if is_own else "broken_inside"
    elif frames or (rows and all(row.phases_s and not row.graph_ops for row in rows)):
        reason, frames = "empty", frames or {row.compile_id for row in rows}
    elif compiled := _compiled_ids(context):
        reason, what = "not_called", plural(len(compiled), "compilation")
    else:
        reason, call = uncalled(summary)
        place = at_line(call.file, optional_number(call, "line"))
        if reason == "unknown" and DISPATCH_MODE in context.profile.trace.names:
            reason, what = "traced_mode", DISPATCH_MODE
    return in_words(reason, what, text, place, len(frames))


def in_words(reason: str, what: str = "", text: str = "", place: str = "", frames: int = 0) -> EagerCause:
    """Return a reason of EAGER_REASONS in words."""
    why, next_step = EAGER_REASONS[reason]
    words = {"what": what, "text": text, "place": place, "frames": plural(frames, "frame")}
    words["at"] = f" at {place}" if place else ""
    return EagerCause(reason, why.format(**words), next_step.format(**words), place)


def uncalled(summary: CompileSummary) -> tuple[str, CompilerCall]:
    """Return why there are no compilations and no other reason (a key of EAGER_REASONS), and the user's call."""
    if not summary.environment.HasField("compile_called"):
        return "unknown", CompilerCall()
    call = next((row for row in summary.compiler_calls if row.kind == "compile"), CompilerCall())
    return ("unused", call) if summary.environment.compile_called else ("never", CompilerCall())


def _compiled_ids(context: SpanContext) -> set[tuple[int, str]]:
    return {(row.epoch, row.compile_id) for row in context.rows(compilations)}


def recorded_reasons(
    summary: CompileSummary, first_ns: int, last_ns: int, steps: int = 0
) -> Iterator[tuple[str, CompilerCall]]:
    """Yield why no compiled code runs between two times, with the call or the setting; the first one counts."""
    variables, calls = summary.environment.variables, summary.compiler_calls
    is_compiled, in_force = bool(summary.compilations), _stances_in_force(calls, first_ns, last_ns)
    compiled = {"OptimizedModule", *(row.subject for row in calls if row.kind == "compile")}
    yield from (("variable", CompilerCall(subject=name)) for name in SWITCHES if variables.get(name) == "1")
    yield from (("stance", row) for row in in_force if row.subject in ("force_eager", "eager_on_recompile"))
    # If something was compiled, a skipped function is not the only reason.
    for kind in ("disabled", "dispatch_mode") if is_compiled else ("disabled", "dispatch_mode", "skip"):
        yield from ((kind, row) for row in calls if row.kind == kind)
    for row in calls:  # "Model.forward" also matches the class
        if row.kind == "disable" and {row.subject, row.subject.rpartition(".")[0]} & compiled:
            yield "disable", row
    for row in () if is_compiled else calls:
        if row.kind == "method" and row.start_ns < last_ns and row.start_ns + row.duration_ns >= first_ns:
            yield "method", row
    # From the second step on, functions that were called before are compiled.
    is_late = is_compiled or steps > 1
    possible = ("fail_on_recompile",) if is_late else ("fail_on_recompile", "eager_then_compile")
    yield from ((row.subject, row) for row in in_force if row.subject in possible)


def _stances_in_force(calls: Iterable[CompilerCall], first_ns: int, last_ns: int) -> list[CompilerCall]:
    """Return the changes of the stance that are active between two times, in order of time."""
    stances = [row for row in calls if row.kind == "stance" and row.start_ns < last_ns]
    earlier = [row for row in stances if row.start_ns < first_ns]
    return stances[max(len(earlier) - 1, 0) :]


def _profiled_ns(context: SpanContext) -> tuple[int, int]:
    base_ns, (starts, ends) = context.profile.trace.base_ns, context.windows
    return base_ns + int(starts[0]), base_ns + int(ends[-1])


def _inside_us(context: SpanContext, calls: Iterable[CompilerCall]) -> float:
    return context.inside_us(regions.logged_times(calls, context.profile.trace.base_ns))


def _called_at(context: SpanContext, row: Problem) -> tuple[str, str]:
    """Return the user's lines that led to the break at which torch gave up a frame, and to the frame; "" for others.

    The frame's line is from another of its compilations: the one that torch gave up has no stack.
    """
    key, frame = (row.epoch, row.compile_id), (row.epoch, frame_of(row.compile_id))
    summary = context.summary or CompileSummary()
    same = (row for row in summary.compilations if (row.key.epoch, frame_of(row.key.compile_id)) == frame)
    of_frame = next((other.stack for other in same if other.stack), ())
    of_break = next((other.stack for other in summary.graph_breaks if key_of(other.key) == key), ())
    return called_at(of_break), called_at(of_frame)


def _message(row: Problem) -> str:
    """Return a compiler's error, or what follows an introduction ("backend='inductor' raised:"), on one line."""
    parsed = parse_graph_break(row.reason)
    if parsed.explanation:
        return f"{parsed.reason}: {parsed.explanation.splitlines()[0]}"
    lines = [line.strip() for line in row.reason.splitlines() if line.strip()]
    return min(lines, key=lambda line: (": error: " not in line, line.endswith("raised:")), default=row.type)


def why_given_up(data: CompileData, row: Problem) -> tuple[str, str]:
    """Return why torch gave a frame up, and what to do."""
    if row.kind == "failed":
        hidden = ", which torch._dynamo.config.suppress_errors hid" if row.ran_eager else ""
        hints = (text for text in parse_graph_break(row.reason).hints if not is_generic_hint(text))
        advice = f"Fix this error{hidden}, or exclude the function with torch.compiler.disable"
        return _message(row), next(hints, advice)
    if row.kind != "limit":
        advice = "Move what breaks the graph out of the loop or function, so that torch can continue after it"
        return next(iter(row.reason.splitlines()), "torch skipped it"), advice
    _, advice = compiling.at_recompile_limit(data, row)
    return "it hit the recompile limit", advice


def _sites_that_ran(context: SpanContext) -> list[GraphBreakSite]:
    """Return the sites that ran in the span, most expensive first; without costs the most frequent first."""
    calls, lines = context.profile.of(regions.calls_by_id), context.profile.of(regions.resumes)
    cut = {call.compile_id for call in context.profile.of(regions.calls_cut_by_breaks)} if lines else ()
    rows = context.profile.of(break_costs.break_sites)
    priced = [row for row in rows if row.saves_us is not None or row.host_us is not None]
    ran = [row for row in rows if cut and cut.intersection(row.compile_ids)]
    ran.sort(key=lambda row: -sum(calls[name] for name in row.compile_ids))
    return priced or ran


def _line_of(site: GraphBreakSite) -> str:
    return at_line(site.file, site.line) or ", ".join(site.compile_ids)


def hint(site: GraphBreakSite) -> str:
    """Return torch's hint if it is specific to this break, otherwise our advice."""
    if not site.breaks:
        return _BREAK_ADVICE["other"]
    graph_break = site.breaks[0]
    hints = (text for text in graph_break.hints if not is_generic_hint(text))
    kind = break_kind(graph_break.reason, graph_break.explanation)
    return next(hints, _BREAK_ADVICE.get(kind, "Move what breaks the graph out of the compiled function"))
