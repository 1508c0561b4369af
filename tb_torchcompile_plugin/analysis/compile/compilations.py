"""What was compiled or exported, with which outcome, and what went wrong?

One row for each frame, and one for each backward that was compiled later.
"""

from collections import Counter
from shlex import quote
from typing import Literal, get_args

import msgspec

from tb_torchcompile_plugin.analysis.compile.cache_lookups import (
    CacheResult,
    cache_result,
    compilations_in_order,
)
from tb_torchcompile_plugin.analysis.compile.compile_time import count_compilations, total_s
from tb_torchcompile_plugin.analysis.formatting import plural, seconds
from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.record import forward_compilations, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.generated_code.output_code import Artifact, Frame, artifacts, frames, owners
from tb_torchcompile_plugin.profile.columns import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names import graph_breaks as names
from tb_torchcompile_plugin.torch_names.artifacts import DYNAMO_GRAPH, NESTED_CALL
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time, is_export
from tb_torchcompile_plugin.torch_names.python_frames import readable_function
from tb_torchcompile_plugin.torch_names.records import PHASES, SUPPRESS_ERRORS, Phase


class ExportCall(msgspec.Struct, frozen=True):
    """One call of torch.export."""

    compile_id: str
    epoch: int
    function: str  # of torch
    file: str  # the program's line
    line: int | None


class Exports(msgspec.Struct, frozen=True):
    """The calls of torch.export."""

    sentences: tuple[str, ...]
    exports: tuple[ExportCall, ...]


def exports(data: CompileData) -> Exports:
    """Return the exports in the order in which they began."""
    exported = [row for row in forward_compilations(data.summary).values() if is_export(row.key.compile_id)]
    calls = tuple(
        ExportCall(
            compile_id=row.key.compile_id,
            epoch=row.key.epoch,
            function=row.function,
            file=row.file,
            line=optional_number(row, "line"),
        )
        for row in sorted(exported, key=lambda row: (len(row.key.compile_id), row.key.compile_id))
    )
    headline = f"{plural(len(calls), 'export')}." if calls else "torch.export was not called."
    return Exports((headline,), calls)


Status = Literal[
    "failed",
    "recompile_limit",
    "unfinished",
    "unknown",
    "graph_break",
    "compiled",
    "exported",
    "no_graph",
    "recovered",
    "compiled_elsewhere",
]
ProblemKind = Literal["limit", "failed", "skipped"]

_NOT_COMPILED_HERE: tuple[Status, ...] = ("exported", "compiled_elsewhere")
# How many there are of each, worst first.
_COUNTED: dict[Status, str] = {status: status.replace("_", " ") for status in get_args(Status)} | {
    "recompile_limit": "at the recompile limit",
    "graph_break": "with a graph break",
    "no_graph": "without a graph",
}
_COUNTS = ("attempts", "graph_ops", "guards")  # fields that torch may not report
_EVENTS: dict[ProblemKind, str] = {
    "limit": "reached the recompile limit: calls that no cached version fits now run eagerly",
    "failed": "failed to compile: {}",
    "skipped": "cannot be resumed after a graph break, so the whole function runs eagerly",
}
_CONSEQUENCES: dict[ProblemKind, str] = {
    "limit": "The versions compiled before are still used where their guards hold.",
    "skipped": "The functions that it calls may still be compiled.",
}
_VARIABLES = {"limit": "TORCH_LOGS=recompiles", "skipped": "TORCH_LOGS=graph_breaks"}
_SETTINGS = {"true": True, "false": False}  # JSON texts
_SUPPRESSED = {
    None: "Whether the error was suppressed is unknown.",
    True: "The error was suppressed (suppress_errors): the function ran eagerly without another warning.",
    False: "The error was raised into the program.",
}


class Problem(msgspec.Struct, frozen=True):
    """A frame that was not compiled as intended.

    The kinds: "limit" (compiled too often: calls that no version fits run eagerly), "failed" (an error while
    compiling), "skipped" (torch cannot resume after a graph break: all of the frame runs eagerly).
    """

    kind: ProblemKind
    compile_id: str
    epoch: int
    function: str
    file: str
    line: int | None
    type: str
    reason: str
    ran_eager: bool | None  # torch went on without compiling the frame; None where unknown
    what_happened: str  # a sentence about the function
    consequence: str  # a sentence
    command: str  # runs the program so that torch shows more, or writes a script that fails in the same way


class Compilation(msgspec.Struct, frozen=True):
    """One frame, or its lazily compiled backward."""

    key: str  # unique among the rows
    compile_id: str
    epoch: int
    direction: record.Direction
    # Under DDP one frame is several graphs, and the backward of each is compiled on its own: this is number `part`,
    # from 0, of the `parts` rows with this compile id and direction.
    part: int
    parts: int
    function: str
    file: str
    line: int | None
    status: Status
    attempts: int | None
    start_s: float | None  # Unix time
    duration_s: float | None
    phases_s: dict[Phase, float] | None  # sums to `duration_s`
    phases_percent: dict[Phase, float]
    graph_ops: int | None
    guards: int | None
    cache: list[CacheResult]
    breaks: int  # distinct graph breaks; 0 for a backward
    failure: Problem | None
    restart_reasons: list[str]
    stack: list[Frame]
    recovered: bool


class OtherArtifacts(msgspec.Struct, frozen=True):
    """Texts of one compile id that has no compilation."""

    compile_id: str
    epoch: int
    artifacts: list[Artifact]


def compilations(data: CompileData) -> list[Compilation]:
    """Return one row per compilation, in order of time."""
    summary = data.summary
    breaks = Counter(record.key_of(row.key) for row in summary.graph_breaks)
    parts = Counter((record.key_of(row.key), row.direction) for row in summary.compilations)
    next_part = Counter[tuple[record.Key, int]]()
    keys_with_code = {record.key_of(row.key) for row in summary.graphs}
    rows = []
    for message in data.of(compilations_in_order):
        key = record.key_of(message.key)
        group = key, message.direction
        part, direction = next_part[group], record.direction_of(message.direction)
        next_part[group] += 1
        row_breaks = breaks[key] if direction == "forward" else 0
        status = _status(message, row_breaks, key in keys_with_code)
        if status == "unfinished" and data.source == "torch_logs":
            status = "compiled" if key in keys_with_code else "unknown"
        phases: dict[Phase, float] = {phase.name: to_seconds(phase.exclusive_ns) for phase in message.phases}
        rows.append(
            Compilation(
                key=f"{key[1]},{key[0]},{direction}" + (f"~{part + 1}" if part else ""),
                compile_id=key[1],
                epoch=key[0],
                direction=direction,
                part=part,
                parts=parts[group],
                function=message.function,
                file=message.file,
                line=record.optional_number(message, "line"),
                status=status,
                start_s=record.optional_seconds(message, "start_ns"),
                duration_s=record.optional_seconds(message, "duration_ns"),
                phases_s=phases or None,
                phases_percent=phases_percent(phases),
                cache=[cache_result(message, lookup) for lookup in message.cache],
                breaks=row_breaks,
                failure=_problem(data, message, status) if message.HasField("failure") else None,
                restart_reasons=list(message.restart_reasons),
                stack=frames(message.stack),
                recovered=message.recovered,
                **{name: record.optional_number(message, name) for name in _COUNTS},
            )
        )
    return rows


def _status(row: CompilationMessage, breaks: int, has_code: bool) -> Status:
    """Return the first status that holds.

    What dynamo does not support is a failure only where it did not break the graph there: with `fullgraph=True`. Ahead
    of time torch counts no operators, and does not record when an export ends.
    """
    failure, has_failed = row.failure, row.HasField("failure")
    if row.elsewhere:
        return "compiled_elsewhere"
    if not has_failed and is_export(row.key.compile_id):
        return "exported"
    if not has_failed and is_ahead_of_time(row.key.compile_id):
        return "compiled" if has_code else "no_graph" if row.HasField("duration_ns") else "unfinished"
    if has_failed and names.is_limit(failure.type, failure.reason):
        return "recompile_limit"
    broke = bool(breaks) or (has_failed and names.skips_frame(failure.reason))
    if has_failed and not (broke and failure.type == names.UNSUPPORTED):
        return "failed"
    if row.recovered:
        return "recovered"
    if broke:
        return "graph_break"
    if not row.HasField("duration_ns"):
        return "unfinished"
    return "no_graph" if record.direction_of(row.direction) == "forward" and not row.graph_ops else "compiled"


def run_with(data: CompileData, variables: str) -> str:
    """Return a command that runs the program with environment variables. Its arguments are not recorded."""
    return f"{variables} python {quote(data.summary.environment.program or 'PROGRAM.py')}"


def _problem(data: CompileData, row: CompilationMessage, status: Status) -> Problem:
    failure = row.failure
    place = failure if failure.file else row
    kinds: dict[Status, ProblemKind] = {"recompile_limit": "limit", "failed": "failed"}
    kind = kinds.get(status, "skipped")
    is_given_up = kind == "skipped" or names.is_limit(failure.type, failure.reason)
    subject = (
        f"{row.function} ({row.key.compile_id})" if row.function else f"Compilation {row.key.compile_id}"
    )
    eager = True if is_given_up else _SETTINGS.get(row.metrics.get(SUPPRESS_ERRORS, ""))
    # Compiled on first use, where torch suppresses no error.
    if record.direction_of(row.direction) == "backward":
        subject, eager = f"The backward of {subject}", False
    variables = _VARIABLES.get(kind) or names.REPEAT_FAILURE.get(failure.type, names.SHOW_MORE)
    return Problem(
        kind=kind,
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        function=row.function,
        file=place.file,
        line=record.optional_number(place, "line"),
        type=failure.type,
        reason=failure.reason,
        ran_eager=eager,
        what_happened=f"{subject} {_EVENTS[kind].format(failure.type)}.",
        consequence=_CONSEQUENCES.get(kind) or _SUPPRESSED[eager],
        command=run_with(data, variables),
    )


def problems(data: CompileData) -> list[Problem]:
    """List what went wrong, in order of time."""
    return [row.failure for row in data.of(compilations) if row.failure]


def problems_by_function(data: CompileData, kind: ProblemKind) -> list[list[Problem]]:
    """Group the problems of a kind by the function that they are about, in order of time."""
    rows = (row for row in data.of(problems) if row.kind == kind)
    return list(grouped(rows, lambda row: (row.function, row.file, row.line)).values())


def compile_time_headline(data: CompileData) -> str:
    """Summarize: "4 compilations took 6.69 s; 1 backward graph was compiled on first use; 2 exports."."""
    rows = [row for row in data.of(compilations) if row.status not in _NOT_COMPILED_HERE]
    if not rows:
        return data.of(none_compiled)
    if data.source == "torch_logs":
        return f"The text of TORCH_LOGS shows {plural(len(rows), 'compilation')}, without times."
    backward = sum(row.direction == "backward" for row in rows)
    were = "was" if backward == 1 else "were"
    parts = (
        f"{plural(data.of(count_compilations), 'compilation')} took {seconds(data.of(total_s))}",
        f"{plural(backward, 'backward graph')} {were} compiled on first use" if backward else "",
        data.of(_other_rows),
    )
    return f"{'; '.join(filter(None, parts))}."


def none_compiled(data: CompileData) -> str:
    """Return that nothing was compiled here, as far as that is known."""
    nothing = data.none_of("compilations") if data.is_lossy else "Nothing was compiled."
    others = data.of(_other_rows)
    return f"{others}." if others else nothing


def _other_rows(data: CompileData) -> str:
    """Name what is listed but was not compiled here: "2 exports, 1 package that another process compiled"."""
    statuses = [row.status for row in data.of(compilations)]
    exported, elsewhere = (statuses.count(status) for status in _NOT_COMPILED_HERE)
    packages = f"{plural(elsewhere, 'package')} that another process compiled" if elsewhere else ""
    return ", ".join(filter(None, (plural(exported, "export") if exported else "", packages)))


def phases_s(data: CompileData) -> dict[Phase, float]:
    """Sum the exclusive times of all compilations, in the order of the pipeline."""
    rows = [row.phases_s or {} for row in data.of(compilations)]
    phases = [phase for phase in PHASES if any(phase in row for row in rows)]
    return {phase: sum(row.get(phase, 0) for row in rows) for phase in phases}


def phases_percent(phases: dict[Phase, float]) -> dict[Phase, float]:
    """Return the share of each phase in their sum, without those that took no time."""
    whole = sum(phases.values())
    return {phase: 100 * time / whole for phase, time in phases.items() if time > 0}


def status_headline(data: CompileData) -> str:
    """Summarize: "5 compilations: 4 with a graph break, 1 compiled.", or "5 compilations without problems."."""
    statuses = Counter(row.status for row in data.of(compilations) if row.direction == "forward")
    if not statuses:
        return data.none_of("compilations")
    if set(statuses) == {"compiled"} and not data.of(problems):
        return f"{plural(statuses.total(), 'compilation')} without problems."
    counts = ", ".join(
        f"{statuses[status]:,} {words}" for status, words in _COUNTED.items() if statuses[status]
    )
    return f"{plural(statuses.total(), 'compilation')}: {counts}."


def nested_regions(data: CompileData) -> list[str]:
    """Say "forward: 12 calls of 1 nested region, compiled once each." of each graph that has nested regions."""
    sentences = []
    for row in data.of(compilations):
        texts = data.of(artifacts, row.epoch, row.compile_id) if row.direction == "forward" else ()
        last = max((text.id for text in texts if text.name == DYNAMO_GRAPH), default=None)
        calls = Counter(NESTED_CALL.findall("" if last is None else read_payload(data, last)))
        if calls:
            regions = f"{plural(calls.total(), 'call')} of {plural(len(calls), 'nested region')}"
            sentences.append(f"{readable_function(row.function)}: {regions}, compiled once each.")
    return sentences


def other_artifacts(data: CompileData) -> list[OtherArtifacts]:
    """Return the texts that belong to no compilation, by the id under which torch filed them."""
    summary = data.summary
    owned = {key for row in summary.compilations for key in owners(row.key.epoch, row.key.compile_id)}
    others = dict.fromkeys(key for row in summary.artifacts if (key := record.key_of(row.key)) not in owned)
    return [OtherArtifacts(name, epoch, data.of(artifacts, epoch, name)) for epoch, name in others]
