"""What was compiled, what was not, why, and what to do? Every recorded failure and reason to run eagerly."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, get_args

import msgspec

from tb_torchcompile_plugin.analysis.causes import eager
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems, run_with
from tb_torchcompile_plugin.analysis.compile.graph_breaks import reported_sites
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import at_line
from tb_torchcompile_plugin.compile_log.record import optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompilerCall
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import CHECK_ACCURACY, KEEP_SCRIPTS
from tb_torchcompile_plugin.torch_names.python_frames import readable_function

Outcome = Literal["failed", "inaccurate", "unfinished", "eager", "graph_break", "compiled", "unknown"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_UNFINISHED = "Torch had not finished when this was recorded: it was compiling, or the process died"
_IF_DIED = "If it died, the command writes each graph as a script before it is compiled"
_UNCHECKED = "Whether compiled code computes the same as eager code: a recording does not show this"
_COMPILED = {
    "compiled": "",
    "recovered": "before recording began; failures until then are unknown",
    "unknown": "The text does not show how this compilation ended",
}
_OF_FUNCTIONS = ("skip", "disable", "method")  # recorded calls for which one function runs eagerly
_END_NS = 2**63 - 1  # after all that is recorded
Reason: TypeAlias = tuple[str, CompilerCall]  # a key of EAGER_REASONS, and the call or the setting


class Diagnosis(msgspec.Struct, frozen=True):
    """What torch.compile did with a function of the program, or why it did nothing."""

    outcome: Outcome  # inaccurate: torch compared results, and they differ; graph_break: compiled in parts
    why: str
    next_step: str = ""
    command: str = ""  # to repeat or to check it, without the program's arguments
    function: str = ""  # or the setting; "" for all that ran
    file: str = ""
    line: int | None = None
    compile_id: str = ""
    workers: str = ""  # that recorded it: "a, b"


NO_DATA = Diagnosis(
    "unknown",
    "No compile data: what was compiled, or failed to compile, is unknown",
    "Create tb_torchcompile_plugin.tensorboard_trace_handler before the first call of the compiled function",
)
NOT_READ = Diagnosis("unknown", "The ranks of this job were not read", "Use report --rank N --section doctor")


def doctor(data: CompileData | None, of_spans: Iterable[Finding] = ()) -> list[Diagnosis]:
    """Return what is recorded of a worker. of_spans: the findings of its spans."""
    reasons = _why_all_eager(data) if data else []
    rows = [*_frames(data), *_calls(data, reasons)] if data else [NO_DATA]
    is_known = any(reason != "unknown" for reason, _ in reasons)
    # Causes about what runs eagerly in a span.
    rules = ["debug_backend", "eager_remainder"]
    if not is_known:
        rules.append("nothing_compiled")
    rows += [Diagnosis("eager", row.title, row.next_step) for row in of_spans if row.rule in rules]
    return list(dict.fromkeys(rows))


def _frames(data: CompileData) -> Iterator[Diagnosis]:
    """Yield what became of each compilation and graph break."""
    for failed in data.of(problems):
        why, next_step = eager.why_given_up(data, failed)
        why = f"{failed.type}: {why}. {failed.consequence}" if failed.kind == "failed" else why
        outcome: Outcome = "failed" if failed.kind == "failed" else "eager"
        place = failed.function, failed.file, failed.line, failed.compile_id
        yield Diagnosis(outcome, why, next_step, failed.command, *place)
    for row in data.of(compilations):
        place = readable_function(row.function), row.file, row.line, ""
        if row.status == "unfinished":
            yield Diagnosis(row.status, _UNFINISHED, _IF_DIED, run_with(data, KEEP_SCRIPTS), *place)
        elif not row.failure and not row.breaks and row.direction == "forward":
            outcome = "unknown" if row.status == "unknown" else "compiled"
            yield Diagnosis(outcome, _COMPILED.get(row.status, row.status), "", "", *place)
    for site in data.of(reported_sites):
        function = next((row.stack[-1].function for row in site.breaks if row.stack), "")
        place = readable_function(function), site.file, site.line, ""
        yield Diagnosis("graph_break", site.reason, eager.hint(site), "", *place)


def _calls(data: CompileData, reasons: Iterable[Reason]) -> Iterator[Diagnosis]:
    """Yield why code runs eagerly, and whether torch compared results."""
    calls, check = data.summary.compiler_calls, run_with(data, CHECK_ACCURACY)
    differing = [call for call in calls if call.kind == "accuracy"]
    for call in differing:
        yield Diagnosis("inaccurate", call.reason, eager.NARROW_DOWN, check, *_place(call))
    for reason, call in (*reasons, *((call.kind, call) for call in calls if call.kind in _OF_FUNCTIONS)):
        cause = eager.in_words(reason, call.subject, call.reason, at_line(*_place(call)[1:]))
        outcome: Outcome = "unknown" if reason == "unknown" else "eager"
        lead = "Nothing was compiled: " if reason == "unknown" else ""
        yield Diagnosis(outcome, lead + cause.why, cause.next_step, "", *_place(call))
    if not differing and any(row.graph_ops and not row.failure for row in data.of(compilations)):
        yield Diagnosis("unknown", _UNCHECKED, eager.NARROW_DOWN, check)


def _why_all_eager(data: CompileData) -> list[Reason]:
    """Return what keeps all code of the process from being compiled, with the call or the setting."""
    is_compiled = bool(data.of(compilations))
    # A stance that was active for some calls explains only why nothing was compiled.
    recorded = eager.recorded_reasons(data.summary, _END_NS if is_compiled else 0, _END_NS)
    return [*recorded] or ([] if is_compiled else [eager.uncalled(data.summary)])


def _place(call: CompilerCall) -> tuple[str, str, int | None]:
    return call.subject, call.file, optional_number(call, "line")
