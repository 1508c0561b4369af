"""What does not run compiled, was compiled too often or without caches, or is not replayed as a CUDA graph?"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import captured_only
from tb_torchcompile_plugin.analysis.causes.fix_words import saves_up_to, step_after, with_gain, words_of
from tb_torchcompile_plugin.analysis.causes.payback import payback
from tb_torchcompile_plugin.analysis.causes.payback_result import run_facts, step_with, step_without
from tb_torchcompile_plugin.analysis.causes.rule import (
    Rule,
    SpanContext,
    called_at,
    named_with_caller,
    skips_graphs,
    users_line,
)
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf, why_nothing
from tb_torchcompile_plugin.analysis.compile.compilations import Problem, compilations, problems
from tb_torchcompile_plugin.analysis.compile.compile_time import count_frames, frames_s
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import skipped_graphs
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import dynamic_shapes, size_advice
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_breaks
from tb_torchcompile_plugin.analysis.compile.recompiles import failed_guard_advice, frame_of, recompiles
from tb_torchcompile_plugin.analysis.finding import Finding, prediction, severity_of
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    duration,
    often,
    plural,
    plural_of_mean,
    rounded,
)
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import NOT_REPLAYED, complaint, cuda_graphs, remedy
from tb_torchcompile_plugin.analysis.runtime.launch_stats import cudagraph_skips, skip_reason
from tb_torchcompile_plugin.compile_log.record import optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompilerCall, CompileSummary, Environment
from tb_torchcompile_plugin.profile.host.eager_roots import lookups_in_vain
from tb_torchcompile_plugin.profile.intervals import union
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import CACHES
from tb_torchcompile_plugin.torch_names.graph_breaks import break_kind, short_skip_reason
from tb_torchcompile_plugin.torch_names.operators import DISPATCH_MODE
from tb_torchcompile_plugin.torch_names.python_frames import is_profiler_hook, is_user_file

# What helps against each reason to skip CUDA graphs, by a word of torch's text.
_AGAINST_SKIPS = {
    "mutated": "Do not write to inputs in place: clone them, or make them parameters or buffers of the module",
    "cpu": "Keep all inputs, outputs and operators of the graph on the GPU",
    "dynamic": "Give the graph static shapes: pad, or torch.compile(..., dynamic=False)",
    "symbolic": "Give the graph static shapes: pad, or torch.compile(..., dynamic=False)",
    "incompatible": "Replace the operator that torch names, or compile it apart",
}
_MAX_LINES = 3  # of the program, in one finding
_CALL_STEP = "Call prof.step() at the end of each step, inside of the profiler's block"
_COMPILE = "model = torch.compile(model)"
_IN_PLACE = "model.compile()"
_CALL_IT = f"Call what torch.compile returns: {_COMPILE}, before it is handed to the trainer"
_INNER = f"Compile the module that does the work itself, before anything wraps it: {_COMPILE}"
_BROKEN = "{place} breaks the graph before it holds an operation ({text})"
_EMPTY = "what torch compiled ({frames}) holds no operation"
_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")  # variables
_EAGER_STANCES = ("force_eager", "eager_on_recompile")
_LATE_STANCES = {"fail_on_recompile", "eager_then_compile"}
# Why nothing compiled runs, and what to do. A suppressed error and the recompile limit are findings about their frame.
EAGER_REASONS = {
    "variable": ("{what}=1 was set", "Unset {what}, which switches torch.compile off"),
    "stance": (
        'set_stance("{what}"){at} was in force',
        'Set torch.compiler.set_stance("default") before the steps',
    ),
    "fail_on_recompile": (
        'set_stance("{what}"){at} raises an error in place of compiling',
        'Set torch.compiler.set_stance("default") until everything has been compiled once; what runs now is what the '
        "program does after the error",
    ),
    "eager_then_compile": (
        'set_stance("{what}"){at} runs each first call eager',
        "Record later steps: what is called again is compiled then",
    ),
    "disabled": ("torch._dynamo.config.disable was True{at}", "Leave torch._dynamo.config.disable False"),
    "dispatch_mode": (
        "{text} was active{at}, so Dynamo skipped it",
        "Leave the dispatch mode {text} out of the steps, or use it on the model before torch.compile: what is called "
        "while one is active runs eager from then on",
    ),
    "traced_mode": (
        "operators run in a dispatch mode ({what}), which Dynamo skips",
        "Leave the mode, such as FlopCounterMode, out of the steps, or use it on the model before torch.compile. "
        "Whether that was called is unknown",
    ),
    "skip": ("Dynamo skipped {what}{at}: {text}", "Change what torch names, or compile what {what} calls"),
    "disable": (
        "torch.compiler.disable was applied{at}",
        "Leave torch.compiler.disable out of what is compiled",
    ),
    "method": (
        "`{what}`{at} runs the uncompiled module, as torch.compile wraps only calls of the compiled object",
        f"Compile the module in place: {_IN_PLACE}, or model.forward = torch.compile(model.forward)",
    ),
    "broken": (
        _BROKEN,
        "Move that line out of the compiled function, or do without it: what comes before it is compiled then",
    ),
    "broken_inside": (_BROKEN, _INNER),
    "empty": (_EMPTY, _INNER),
    "not_called": ("what torch compiled ({what}) is not called here", _CALL_IT),
    "unused": ("the result of torch.compile{at} is not called here", _CALL_IT),
    "never": ("torch.compile was not called", _CALL_IT),
    "unknown": (
        "why is unknown, as no calls of torch.compile were recorded",
        f"{_CALL_IT}. To see why, create tb_torchcompile_plugin.tensorboard_trace_handler before that",
    ),
}


def _recompile_limit(rule: Rule[CompileData], data: CompileData) -> Iterator[Finding]:
    """Report a frame that hit the recompile limit."""
    limits = [row for row in data.of(problems) if row.kind == "limit"]
    for row, *_ in grouped(limits, lambda row: (row.function, row.file, row.line)).values():
        frame = row.compile_id.partition("/")[0]
        ids = {
            compiled.key.compile_id
            for compiled in data.summary.compilations
            if compiled.key.epoch == row.epoch
            and compiled.key.compile_id.partition("/")[0] == frame
            and not compiled.HasField("failure")
        }
        yield rule.finding(
            None,
            f"{row.function or 'A frame'} was compiled {often(len(ids))} and now runs eager: it hit the "
            "recompile limit",
            "See which guard fails each time: mark what changes as dynamic, or keep it the same. "
            "torch._dynamo.config.recompile_limit raises the limit",
            {"versions": len(ids)},
            severity="critical",
            row=f"compilation:{row.compile_id},{row.epoch},forward",
        )


def _cuda_graphs_skipped(
    rule: Rule[SpanContext | CompileData], about: SpanContext | CompileData
) -> Iterator[Finding]:
    """Report each reason for which torch skipped CUDA graphs; in a span the first one with its price."""
    data = about if isinstance(about, CompileData) else about.profile.data
    context = about if isinstance(about, SpanContext) else None
    if data is None:
        return
    by = context.best("graph_capture") if context else None
    reasons = _skip_reasons(data.summary)
    for index, (reason, ids) in enumerate(reasons.items()):
        word = next((word for word in _AGAINST_SKIPS if word in reason.lower()), None)
        skips = [row for row in data.of(skipped_graphs) if short_skip_reason(row.text) == reason]
        lines = dict.fromkeys((row.file, row.line) for row in skips if row.file)
        compilations = f" for {plural(len(ids), 'compilation')}" if ids else ""
        yield rule.finding(
            context,
            f"CUDA graphs are skipped{compilations}: {reason}",
            _AGAINST_SKIPS[word] if word else "Change what torch names",
            {"compilations": len(ids)} if ids else {},
            severity="warning",
            row=f"compilation:{ids[0][1]},{ids[0][0]},forward" if ids else None,
            by=by if index == 0 else None,
            where=[at_line(file, line) for file, line in lines],
        )
    unexplained = data.of(cudagraph_skips) or 0
    if unexplained and not reasons:
        yield rule.finding(
            context,
            f"CUDA graphs were skipped {often(unexplained)}; why, torch told its log only",
            "Run with TORCH_LOGS=cudagraphs to see the reason: mutated inputs, CPU tensors, dynamic shapes …",
            {"skips": unexplained},
            severity="warning",
            code="TORCH_LOGS=cudagraphs",
            by=by or (context.best("cuda_graphs") if context else None),
        )


def _skip_reasons(summary: CompileSummary) -> dict[str, list[tuple[int, str]]]:
    """Return (epoch, compile id) of the known compilations by the first line of torch's reason."""
    by_reason: dict[str, dict[tuple[int, str], None]] = {}
    for row in (*summary.compilations, *summary.runtime_metrics):
        if reason := skip_reason(row.metrics):
            by_reason.setdefault(short_skip_reason(reason), {})[row.key.epoch, row.key.compile_id] = None
    return {reason: [key for key in keys if key[1]] for reason, keys in by_reason.items()}


def _cache_missed(rule: Rule[CompileData], data: CompileData) -> Iterator[Finding]:
    """Report compile caches that did not help: a first run cannot hit, so misses count only where they took long."""
    rows = data.summary.compilations
    missed = [row for row in rows if any(lookup.result == "miss" for lookup in row.cache)]
    spent = frames_s(missed) or 0.0
    compiled = count_frames(missed)
    if spent >= thresholds.cache_missed_s:
        yield rule.finding(
            None,
            f"The compile cache missed for {plural(compiled, 'compilation')}, which took "
            f"{duration(spent * 1e6)}",
            "A first run cannot hit. If this is not one, keep TORCHINDUCTOR_CACHE_DIR from job to job, "
            "with the same torch and GPU",
            {"compilations": compiled, "compile_s": spent},
            severity="info",
        )
    lookups = [lookup for row in rows for lookup in row.cache if lookup.result == "bypass"]
    bypassed = Counter((lookup.cache, lookup.reason) for lookup in lookups)
    for (cache, reason), count in bypassed.items():
        yield rule.finding(
            None,
            f"The {CACHES.get(cache, cache)} cache was bypassed {often(count)}, which makes compiling slower, "
            f"not what is compiled: {reason or 'torch does not say why'}",
            "Change what torch names, or this is compiled again in every process",
            {"lookups": count},
            severity="info",
        )


def _no_trace(rule: Rule[CompileData], data: CompileData) -> Iterator[Finding]:
    """Report a profiler that ended before its schedule began to record, so that there is no trace."""
    if not data.summary.steps.HasField("unused"):
        yield _trace_missing(rule, len(data.summary.steps.recorded_ns))
        return
    steps = data.summary.steps.unused.steps
    ended = f"it ended after {plural(steps, 'call')} of its step()"
    yield rule.finding(
        None,
        "There is no trace, as the profiler's schedule never began to record: "
        f"{ended if steps else 'its step() was not called'}",
        "Run more steps, or shorten wait and warmup of the schedule" if steps else _CALL_STEP,
        {"profiler_steps": steps},
        severity="critical",
        code=None if steps else "prof.step()",
    )


def _trace_missing(rule: Rule[CompileData], steps: int) -> Finding:
    """Return the finding where the handler did not note why there is no trace; steps: that a profiler recorded."""
    why = "and no call of a profiler's step() was recorded"
    advice = f"If a profiler was to write one, its schedule has not ended. {_CALL_STEP}"
    if steps:
        why = f"though the profiler recorded {plural(steps, 'step')}"
        advice = "Put the trace into the same folder. If none was written, let the profiler's schedule end"
    title = f"The compile summary has no trace, {why}"
    return rule.finding(None, title, advice, {"profiled_steps": steps}, severity="info")


def _lacks_trace(data: CompileData) -> bool:
    """Whether a trace is missing: torch writes a log without one."""
    return data.summary.steps.HasField("unused") or (data.source == "summary" and not data.has_trace)


def _cuda_graphs_not_replayed(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report CUDA graphs that are recorded again or never, apart from first recordings and from what torch skips."""
    by = context.best("graph_capture")
    if not by or by.predicted.gain_percent < thresholds.gain_percent:
        return
    report = context.profile.of(cuda_graphs)
    if not report.functions:  # recorded by the program itself
        title = with_gain(by, context.time_unit)
        yield rule.finding(context, title, words_of(by).next_step, {"times_per_step": by.times}, by=by)
    functions = [row for row in report.functions if row.state in NOT_REPLAYED]
    if not functions:
        return
    row = min(functions, key=lambda row: row.replayed_calls - row.calls)
    advice, code = remedy(row, report.recordings)
    lines = [
        at_line(recording.file, recording.line)
        for recording in report.recordings
        if recording.compile_id == row.compile_id and recording.file
    ]
    yield rule.finding(
        context,
        f"{complaint(row)}: {step_after(by.predicted, 'replayed,', context.time_unit)}",
        advice,
        {
            "gain_us_per_step": by.predicted.gain_us,
            "share_percent": by.predicted.gain_percent,
            "times_per_step": by.times,
            "calls": row.calls,
            "calls_that_recorded": row.recorded_calls,
            "calls_kernel_by_kernel": row.plain_calls,
        },
        by=by,
        where=list(dict.fromkeys([*lines, at_line(row.file, row.line)]))[:_MAX_LINES],
        code=code,
    )


def _compiled_for_each_size(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report recompiles for other sizes before the profiled time; inside it `recompiles` shows them and their price."""
    advice, summary = context.profile.of(size_advice), context.summary
    if advice is None or summary is None:
        return
    rows = context.recompilations
    spent_s = frames_s(rows) or 0.0
    if spent_s < thresholds.sizes_s or context.compiling_us(rows):
        return
    report = context.profile.of(dynamic_shapes)
    lines = (at_line(row.file, row.line) for row in report.guards if row.recompiles)
    yield rule.finding(
        context,
        f"{report.says[0].rstrip('.')}: recompiling took {duration(1e6 * spent_s)} before this span",
        advice.sentence,
        {
            "recompiles": count_frames(rows),
            "compile_s": spent_s,
            "sizes": len({row.size for row in report.sizes}),
        },
        severity="info",
        where=[line for line in lines if line],
        code=advice.code,
    )


def _profiler_hooks(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report hooks of a profiler that are compiled instead of the model, or break its graphs."""
    names = sorted({row.function for row in context.hooks})
    alone = context.nothing_compiled
    other = "without that profiler the program is another one"
    yield rule.finding(
        context,
        f"Torch compiled {'only ' if alone else ''}a profiler's own hooks ({', '.join(names)}), "
        f"{often(len(context.hooks))}: {'nothing of yours runs compiled' if alone else other}",
        "Switch the hooks off: PyTorchProfiler(record_module_names=False) in Lightning",
        {"compilations": len(context.hooks), "of_compilations": len(context.rows(compilations))},
        severity="critical",
        code="PyTorchProfiler(record_module_names=False)",
        by=context.best("eager"),
        where=names,
    )


def _nothing_compiled(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report a program that runs eager."""
    gain = context.profile.of(payback).gain[0] if context.profile.baseline_run else None
    # Where the same program was recorded compiled.
    measured = gain if gain and gain.told_by == "measured" and gain.compiled_run else None
    if context.hooks or (measured and measured.verdict == "never"):
        return
    when = "in the profiled steps" if context.steps else "in this span"
    cause = eager_cause(context)
    by = context.best("eager")
    # No alarm where compiling brings little, or where the model predicts that it brings nothing.
    percent = by.predicted.gain_percent if by else 0.0
    little = percent < thresholds.gain_percent and (by or context.profile.of(why_nothing) is None)
    gained = f"; {saves_up_to(by.predicted, 'compiled,', context.time_unit)}" if by and not little else ""
    row = rule.finding(
        context,
        f"Nothing that runs {when} is compiled: {cause.why}{gained}",
        cause.next_step,
        {"compilations": len(_compiled_ids(context))} if context.summary else {},
        severity="warning" if little else "critical",
        code=next((code for code in (_COMPILE, _IN_PLACE) if code in cause.next_step), None),
        by=by,
        where=cause.where,
    )
    if measured and measured.verdict == "pays":
        step = step_with(measured)
        title = f"{row.title.partition(':')[0]}: run {measured.compiled_run} is the same program, compiled"
        severity = severity_of(step.gain_percent)
        row = replace(row, title=title, predicted=step, fix=None, severity=severity)
    yield row


class EagerCause(NamedTuple):
    """Why nothing compiled runs."""

    reason: str  # a key of EAGER_REASONS
    why: str
    next_step: str
    where: list[str]


def eager_cause(context: SpanContext) -> EagerCause:
    """Return why nothing compiled runs: the first reason that is recorded."""
    rows = context.rows(compilations)
    frames = {row.compile_id for row in rows if row.compile_id in context.regions_that_ran}
    at_breaks = (row for row in context.rows(graph_breaks) if row.compile_id in frames and row.file)
    what, text, place = "", "", ""
    if recorded := _recorded_reason(context):
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
        reason = "never"
        environment = context.summary.environment if context.summary else Environment()
        calls = context.summary.compiler_calls if context.summary else ()
        if not environment.HasField("compile_called"):
            is_in_mode = DISPATCH_MODE in context.profile.trace.names
            reason, what = ("traced_mode", DISPATCH_MODE) if is_in_mode else ("unknown", "")
        elif environment.compile_called:
            reason = "unused"
            place = next((at_line(row.file, row.line) for row in calls if row.kind == "compile"), "")
    why, next_step = EAGER_REASONS[reason]
    words = {"what": what, "text": text, "place": place, "frames": plural(len(frames), "frame")}
    words["at"] = f" at {place}" if place else ""
    return EagerCause(reason, why.format(**words), next_step.format(**words), [place] if place else [])


def _compiled_ids(context: SpanContext) -> set[tuple[int, str]]:
    return {(row.epoch, row.compile_id) for row in context.rows(compilations)}


def _recorded_reason(context: SpanContext) -> tuple[str, CompilerCall] | None:
    """Return the reason that the handler has noted, with the call or the setting."""
    if context.summary is None:
        return None
    variables, calls = context.summary.environment.variables, context.summary.compiler_calls
    if name := next((name for name in _SWITCHES if variables.get(name) == "1"), None):
        return "variable", CompilerCall(subject=name)
    base_ns, (starts, ends) = context.profile.trace.base_ns, context.windows
    in_force = _stances_in_force(context)
    if call := next((row for row in in_force if row.subject in _EAGER_STANCES), None):
        return "stance", call
    kinds = ["disabled", "dispatch_mode"]
    if not _compiled_ids(context):  # otherwise Dynamo skipped a function among others that it compiled
        kinds.append("skip")
    for kind in kinds:
        if call := next((row for row in calls if row.kind == kind), None):
            return kind, call
    compiled = {"OptimizedModule", *(row.subject for row in calls if row.kind == "compile")}
    for row in calls:  # of "Model.forward" the class, too
        if row.kind == "disable" and {row.subject, row.subject.rpartition(".")[0]} & compiled:
            return "disable", row
    is_compiled = bool(_compiled_ids(context))
    methods = (row for row in calls if row.kind == "method" and row.start_ns < base_ns + ends[-1])
    called = (row for row in methods if row.start_ns + row.duration_ns >= base_ns + starts[0])
    if not is_compiled and (call := next(called, None)):
        return "method", call
    # In a second step what was called before is compiled.
    possible = {"fail_on_recompile"} if is_compiled or context.steps > 1 else _LATE_STANCES
    return next(((row.subject, row) for row in in_force if row.subject in possible), None)


def _stances_in_force(context: SpanContext) -> list[CompilerCall]:
    """Return the changes of the stance that hold in the profiled time, in order of time."""
    calls = context.summary.compiler_calls if context.summary else ()
    base_ns, (starts, ends) = context.profile.trace.base_ns, context.windows
    stances = [row for row in calls if row.kind == "stance" and row.start_ns < base_ns + ends[-1]]
    earlier = [row for row in stances if row.start_ns < base_ns + starts[0]]
    return stances[max(len(earlier) - 1, 0) :]


def _inside_us(context: SpanContext, calls: Iterable[CompilerCall]) -> float:
    """Return how much of the profiled time these calls take."""
    timed = [row for row in calls if row.HasField("start_ns") and row.HasField("duration_ns")]
    start = np.array([row.start_ns for row in timed], np.int64) - context.profile.trace.base_ns
    return context.inside_us(union(start, start + np.array([row.duration_ns for row in timed], np.int64)))


def _compile_in_loop(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report lines that call torch.compile in each step: the compiled function is created there again and again."""
    calls = context.summary.compiler_calls if context.summary else ()
    inside = [row for row in calls if row.kind == "compile" and _inside_us(context, [row])]
    for (file, line), rows in grouped(inside, lambda row: (row.file, row.line)).items():
        us, least = _inside_us(context, rows), max(context.steps, thresholds.steps_least)
        if len(rows) < least or context.share(us) < thresholds.gain_percent:
            continue
        step, place = context.profile.of(step_time), at_line(file, line)
        each = us / context.step_count * step.step_us / step.profiled_us  # as in a step without the profiler
        row = rule.finding(
            context,
            f"torch.compile is called in each step{f' at {place}' if place else ''}, which takes "
            f"{duration(each)} of {duration(step.step_us)}",
            "Create the compiled function once, before the loop, and hand it what changes as an argument",
            {"calls_per_step": len(rows) / context.step_count, "host_us_per_step": each},
            saves_us=us,
            where=[place] if place else [],
        )
        if step.device is None:  # otherwise the GPU may need as long
            predicted = prediction(1000 * step.step_us, 1000 * max(step.step_us - each, 1.0))
            row = replace(row, predicted=predicted, severity=severity_of(predicted.gain_percent))
        yield row


def _other_backend(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report frames that are captured for a backend other than inductor, which calls the same operators one by one."""
    by = context.best("backend")
    if not by or by.predicted.gain_percent < thresholds.gain_percent:
        return
    frames, next_step = len(context.profile.of(captured_only)), words_of(by).next_step
    if forced := next((row for row in _stances_in_force(context) if row.reason), None):
        place = at_line(forced.file, optional_number(forced, "line"))
        next_step = f'Drop force_backend="{forced.reason}" of set_stance{f" at {place}" if place else ""}'
    yield rule.finding(
        context,
        f"{plural(frames, 'frame')} {'is' if frames == 1 else 'are'} captured and not compiled: "
        f'{"its" if frames == 1 else "their"} operators are launched one by one, as with backend="eager" or '
        f'"aot_eager"; {saves_up_to(by.predicted, "with inductor", context.time_unit)}',
        next_step,
        {"frames": frames, "operators_per_step": by.times},
        by=by,
        code=words_of(by).code,
    )


def _given_up(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report frames that torch skipped, or compiled too often: they run eager, whatever else is changed."""
    share, by = context.eager_percent, context.best("frames")
    small = (by.predicted.gain_percent if by else share) < thresholds.gain_percent
    if small and by:
        return
    if not context.given_up and by:
        yield _unexplained(rule, context, by)
    row = next((row for row in context.given_up if not is_profiler_hook(row.function)), None)
    if row is None:
        return
    broken_at, caller = _called_at(context.summary, row.epoch, row.compile_id)
    where = broken_at or caller or (at_line(row.file, row.line) if row.line else row.file)
    frame = named_with_caller(row.function, row.file, row.line, caller) if caller else row.function
    why, next_step = _why_given_up(context, row)
    if broken_at:
        why += f", in {at_line(row.file, row.line)}, called at {broken_at}"
    if by:
        why += f"; {step_after(by.predicted, 'without that', context.time_unit)}"
    yield rule.finding(
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


def _unexplained(rule: Rule[SpanContext], context: SpanContext, by: WhatIf) -> Finding:
    """Return the finding without compile data: the trace shows that calls ran eager, and not why."""
    calls = context.profile.of(lookups_in_vain) / context.step_count
    line = at_line(by.file, by.line)
    return rule.finding(
        context,
        f"Torch has given up compiling {plural_of_mean(calls, 'call')} {context.where}, so "
        f"{'it runs' if rounded(calls) == '1' else 'they run'} eager"
        f"{f' at {line}' if line else ''}: {step_after(by.predicted, 'without that', context.time_unit)}",
        "Record with tb_torchcompile_plugin.tensorboard_trace_handler to see which frames and why, or run with "
        'TORCH_LOGS="recompiles,graph_breaks": most often a frame hit the recompile limit, or breaks in a loop',
        {"calls": calls},
        severity="critical",
        code='TORCH_LOGS="recompiles,graph_breaks"',
        by=by,
        where=[line] if line else [],
    )


def _called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> tuple[str, str]:
    """Return the user's lines that led to the break for which a frame was given up, and to the frame; "" for others.

    The frame's is that of another compilation of it: one that torch gave up has no stack.
    """
    if summary is None:
        return "", ""
    frame = compile_id.partition("/")[0]
    stacks = (
        row.stack
        for row in summary.compilations
        if row.stack and row.key.epoch == epoch and row.key.compile_id.partition("/")[0] == frame
    )
    breaks = (
        row for row in summary.graph_breaks if (row.key.epoch, row.key.compile_id) == (epoch, compile_id)
    )
    row = next(breaks, None)
    broken_at = "" if row is None or is_user_file(row.file) else users_line(row.stack)
    return broken_at, called_at(next(stacks, ()))


def _error(row: Problem) -> str:
    """Return the error in one line, without what only introduces it: "backend='inductor' raised:"."""
    lines = [line.strip() for line in row.reason.splitlines() if line.strip()]
    return next((line for line in lines if not line.endswith("raised:")), row.type)


def _why_given_up(context: SpanContext, row: Problem) -> tuple[str, str]:
    """Return why torch gave a frame up, and what to do."""
    if row.kind == "failed":
        advice = "Fix that error, which torch._dynamo.config.suppress_errors hid, or choose another backend"
        return _error(row), advice
    if row.kind != "limit":
        advice = "Move what breaks the graph out of the loop or function, so that torch can go on behind it"
        return next(iter(row.reason.splitlines()), "torch skipped it"), advice
    # The guard that failed when the frame was compiled for the last time.
    failures = context.rows(recompiles)
    frame = row.epoch, frame_of(row.compile_id)
    same = [failure for failure in failures if (failure.epoch, frame_of(failure.compile_id)) == frame]
    guard = next((guard for failure in reversed(same) for guard in failure.guards), None)
    advice = "Mark what changes as dynamic, or keep it the same; see which guard fails each time"
    return "it hit the recompile limit", failed_guard_advice(guard) or advice


def _does_not_pay(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report compiled code that is no faster than a measured eager run: a predicted one is no reason to stop."""
    profile = context.profile
    if not profile.of(run_facts).compiled:
        return
    result = profile.of(payback)
    gain = result.gain[0]
    if gain.told_by != "measured" or gain.verdict != "never":
        return
    rows = context.rows(compilations)
    lines = dict.fromkeys(at_line(row.file, row.line) for row in rows if row.line)
    also = [f", or mend first what keeps it from paying: {row.says}" for row in result.why_not[:1]]
    compile_s = result.cost[0].blocked_s if result.cost else None
    numbers = {"eager_us": gain.eager_us, "compiled_us": gain.compiled_us, "compile_s": compile_s}
    step = step_without(gain)
    row = rule.finding(
        context,
        result.says[0].removesuffix("."),
        f"Do without torch.compile here{''.join(also)}",
        {name: number for name, number in numbers.items() if number is not None},
        severity=severity_of(step.gain_percent),
        where=list(lines)[:_MAX_LINES],
    )
    yield replace(row, predicted=step) if step.gain_percent >= thresholds.gain_percent else row


EAGER_RULES = (
    Rule("profiler_hooks", "compilations", _profiler_hooks, lambda span: span.whole and bool(span.hooks)),
    Rule(
        "nothing_compiled",
        "compiled_regions",
        _nothing_compiled,
        lambda context: context.whole and context.nothing_compiled and not context.given_up,
    ),
    Rule("compile_in_loop", "compilations", _compile_in_loop, lambda context: context.whole),
    Rule(
        "debug_backend",
        "compilations",
        _other_backend,
        lambda context: context.whole and bool(context.profile.of(captured_only)),
    ),
    Rule(
        "frame_given_up",
        "compilations",
        _given_up,
        lambda context: context.whole and bool(context.given_up or context.best("frames")),
    ),
)
COMPILED_RULES = (
    Rule(
        "compile_does_not_pay",
        "pays",
        _does_not_pay,
        lambda context: context.whole and context.profile.baseline_run is not None,
    ),
    Rule("graph_capture", "cuda_graphs", _cuda_graphs_not_replayed),
    Rule("dynamic_shapes", "dynamic_shapes", _compiled_for_each_size),
)
SKIPPED_RULE = Rule("cudagraphs_skipped", "compilations", _cuda_graphs_skipped, skips_graphs)
COMPILE_RULES = (
    Rule("no_trace", "runs", _no_trace, _lacks_trace),
    Rule("recompile_limit", "compilations", _recompile_limit, lambda data: bool(data.of(problems))),
    SKIPPED_RULE,
    Rule("cache_missed", "compile_time", _cache_missed),
)
