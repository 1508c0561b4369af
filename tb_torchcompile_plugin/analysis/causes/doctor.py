"""What was compiled, what was not, why, and what to do? Every recorded failure and reason to run eagerly."""

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

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
_OF_SPANS = (
    "nothing_compiled",
    "debug_backend",
    "eager_remainder",
)  # causes about what runs eagerly in a span
_RECORD = (
    "Create tb_torchcompile_plugin.tensorboard_trace_handler before the first call of the compiled function"
)
_NO_DATA = "No compile data: what was compiled, or failed to compile, is unknown"
_UNFINISHED = "Torch had not finished when this was recorded: it was compiling, or the process died"
_IF_DIED = "If it died, the command writes each graph as a script before it is compiled"
_UNCHECKED = "Whether compiled code computes the same as eager code: a recording does not show this"
_COMPILED = {"compiled": "", "recovered": "before recording began; failures until then are unknown"}


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


NOT_READ = Diagnosis("unknown", "The ranks of this job were not read", "Use report --rank N --section doctor")


def doctor(data: CompileData | None, of_spans: Iterable[Finding] = ()) -> list[Diagnosis]:
    """Return what is recorded of a worker. of_spans: the findings of its spans."""
    rows = [*_recorded(data)] if data else [Diagnosis("unknown", _NO_DATA, _RECORD)]
    for row in of_spans:
        if row.rule in _OF_SPANS and not any(other.why in row.title for other in rows):
            rows.append(Diagnosis("eager", row.title, row.next_step))
    return list(dict.fromkeys(rows))


def _recorded(data: CompileData) -> Iterator[Diagnosis]:
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
            yield Diagnosis("compiled", _COMPILED.get(row.status, row.status), "", "", *place)
    for site in data.of(reported_sites):
        function = next((row.stack[-1].function for row in site.breaks if row.stack), "")
        place = readable_function(function), site.file, site.line, ""
        yield Diagnosis("graph_break", site.reason, eager.hint(site), "", *place)
    yield from _settings(data)


def _settings(data: CompileData) -> Iterator[Diagnosis]:
    """Yield what keeps code from being compiled, and whether results were found to differ."""
    rows, variables = data.of(compilations), data.summary.environment.variables
    is_set = (name for name in eager.SWITCHES if variables.get(name) == "1")
    calls = [CompilerCall(kind="variable", subject=name) for name in is_set] + [*data.summary.compiler_calls]
    check, differing = run_with(data, CHECK_ACCURACY), [call for call in calls if call.kind == "accuracy"]
    for call in differing:
        yield Diagnosis("inaccurate", call.reason, eager.NARROW_DOWN, check, *_place(call))
    has_reason = bool(differing)
    for call in calls:
        reason = call.subject if call.subject in eager.EAGER_REASONS else call.kind
        if reason in eager.EAGER_REASONS and (call.kind, call.subject) != ("stance", "default"):
            at = at_line(call.file, optional_number(call, "line"))
            cause = eager.in_words(reason, call.subject, call.reason, at)
            yield Diagnosis("eager", cause.why, cause.next_step, "", *_place(call))
            has_reason = True
    if not rows and not has_reason:
        reason, at = eager.uncalled(data.summary)
        cause = eager.in_words(reason, place=at)
        outcome: Outcome = "unknown" if reason == "unknown" else "eager"
        yield Diagnosis(outcome, f"Nothing was compiled: {cause.why}", cause.next_step)
    if not differing and any(row.graph_ops and not row.failure for row in rows):
        yield Diagnosis("unknown", _UNCHECKED, eager.NARROW_DOWN, check)


def _place(call: CompilerCall) -> tuple[str, str, int | None]:
    return call.subject, call.file, optional_number(call, "line")
