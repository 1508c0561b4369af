"""What goes deeper than the list: where compile time went, and all that is known of one compile id.

Rows come from the analyses; here they are only put together. Unknown is null, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.compilations.compilations import consequence, ran_eager
from tb_torchcompile_plugin.analysis.compilations.guards import Guard, guards
from tb_torchcompile_plugin.analysis.compilations.metrics import Metric, metrics
from tb_torchcompile_plugin.analysis.compilations.rows import (
    NOT_COMPILED_HERE,
    Compilation,
    beside_compilations,
    compilations,
    phases_s,
)
from tb_torchcompile_plugin.analysis.compile_time import compile_time as ct
from tb_torchcompile_plugin.analysis.compile_time.caches import CacheLookup, cache_lookups, time_saved_s
from tb_torchcompile_plugin.analysis.compile_time.phase_spans import PhaseSpans, phase_spans
from tb_torchcompile_plugin.analysis.graph_breaks.graph_breaks import GraphBreak, graph_breaks
from tb_torchcompile_plugin.analysis.recompiles.recompiles import Recompile, recompiles
from tb_torchcompile_plugin.analysis.recompiles.symbolic_shapes import (
    DynamicChange,
    ShapeGuard,
    Specialization,
    SymbolicShape,
    symbolic_shapes,
)
from tb_torchcompile_plugin.analysis.words import percent, plural
from tb_torchcompile_plugin.analysis.words import seconds as spent
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileSummary
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, Frame, artifacts
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import GUARDS
from tb_torchcompile_plugin.torch_names.graph_breaks import ERROR
from tb_torchcompile_plugin.torch_names.python_frames import places
from tb_torchcompile_plugin.torch_names.records import CUDAGRAPH_SKIP_REASON, SUPPRESS_ERRORS, Phase


class _HasCompileId(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def compile_id(self) -> str: ...


Row = TypeVar("Row", bound=_HasCompileId)


class CompileTime(PhaseSpans, frozen=True, kw_only=True):
    """Where compile time went. `recorded_s`: wall time that the recording covers; `share_percent` is of that,
    None where something was compiled outside it, and for a log, which covers little but compilations.

    time_saved_s: by cache hits; a hit of AOTAutograd's cache includes those of the FX graphs in it.
    """

    total_s: float | None
    recorded_s: float | None
    share_percent: float | None
    phases_s: dict[Phase, float]
    cache: list[CacheLookup]
    time_saved_s: float | None


class DetailedFailure(msgspec.Struct, frozen=True):
    """`ran_eager`: torch suppressed the error and ran the frame without compiling it; None where unknown. consequence:
    that in a sentence."""

    type: str
    reason: str
    file: str
    line: int | None
    traceback: str | None
    ran_eager: bool | None
    consequence: str


class Counts(msgspec.Struct, frozen=True):
    """`guard_checks`: how many `GuardChecks` there are; None where the guard tree was not stored."""

    ops: int | None
    nodes: int | None
    inputs: int | None
    parameters: int | None
    guard_checks: int | None


class CompilationDetails(msgspec.Struct, frozen=True):
    """All that is known of one compile id; `rows` are its forward and its backwards."""

    compile_id: str
    epoch: int
    rows: list[Compilation]
    stack: list[Frame]
    restart_reasons: list[str]
    failure: DetailedFailure | None
    graph_breaks: list[GraphBreak]
    recompile: Recompile | None
    counts: Counts
    symbolic_shapes: list[SymbolicShape]
    specializations: list[Specialization]
    shape_guards: list[ShapeGuard]
    dynamic_changes: list[DynamicChange]
    metrics: list[Metric]
    cudagraph_skip_reasons: list[str]
    artifacts: list[Artifact]
    warnings: list[Notice]


class GuardChecks(msgspec.Struct, frozen=True):
    """What is checked at each call of one compile id, in this order. Thousands, for a large model."""

    guards: list[Guard]
    warnings: list[Notice]


def compile_time(data: CompileData) -> CompileTime:
    """The compile time of one process, by phase, function, cache lookup and kernel, with its spans."""
    return CompileTime(
        **msgspec.structs.asdict(data.of(phase_spans)),
        total_s=data.of(ct.total_s),
        recorded_s=_recorded_s(data.summary),
        share_percent=data.of(_share_percent),
        phases_s=data.of(phases_s),
        cache=data.of(cache_lookups),
        time_saved_s=data.of(time_saved_s),
    )


def compile_time_headline(data: CompileData) -> str:
    """ "4 compilations took 6.69 s, 55.7 % of the 12.0 s that were recorded." """
    rows = [row for row in data.of(compilations) if row.status not in NOT_COMPILED_HERE]
    others = data.of(beside_compilations)
    if others and not rows:
        return f"{others}."
    if not rows:
        return "Nothing was compiled."
    share = data.of(_share_percent)
    backward = sum(row.direction == "backward" for row in rows)
    number = len({(row.epoch, row.compile_id) for row in rows})
    recorded = spent(_recorded_s(data.summary))
    part = f", {percent(share)} of the {recorded} that were recorded" if share is not None else ""
    were = "was" if backward == 1 else "were"
    late = f"; {plural(backward, 'backward graph')} {were} compiled on first use" if backward else ""
    beside = f"; {others}" if others else ""
    return f"{plural(number, 'compilation')} took {spent(data.of(ct.total_s))}{part}{late}{beside}."


def _share_percent(data: CompileData) -> float | None:
    summary, total, recorded = data.summary, data.of(ct.total_s), _recorded_s(data.summary)
    if total is None or not recorded or _is_log(summary) or _some_outside(summary):
        return None
    return 100 * total / recorded


def compilation(data: CompileData, epoch: int, compile_id: str) -> CompilationDetails:
    """Raises NotFound if nothing is known of this compile id."""
    summary = data.summary
    rows = _of(data.of(compilations), epoch, compile_id)
    texts = data.of(artifacts, epoch, compile_id)
    if not rows and not texts:
        raise _not_found(epoch, compile_id)
    first = next((row for row in rows if row.direction == "forward"), rows[0] if rows else None)
    rows_of_metrics = data.of(metrics, epoch, compile_id)
    shapes = data.of(symbolic_shapes, epoch, compile_id)
    warnings: list[Notice] = []
    return CompilationDetails(
        compile_id=compile_id,
        epoch=epoch,
        rows=rows,
        stack=first.stack if first else [],
        restart_reasons=first.restart_reasons if first else [],
        failure=_failure(data, rows, texts, rows_of_metrics, warnings),
        graph_breaks=_of(data.of(graph_breaks), epoch, compile_id),
        recompile=next(iter(_of(data.of(recompiles), epoch, compile_id)), None),
        counts=_counts(first, rows_of_metrics, len(_guards(data, texts, warnings)) or None),
        symbolic_shapes=shapes.symbols,
        specializations=shapes.specializations,
        shape_guards=shapes.guards,
        dynamic_changes=shapes.changes,
        metrics=rows_of_metrics,
        cudagraph_skip_reasons=_skip_reasons(summary, first, rows_of_metrics),
        artifacts=texts,
        warnings=warnings,
    )


def guard_checks(data: CompileData, epoch: int, compile_id: str) -> GuardChecks:
    """Raises NotFound if nothing is known of this compile id."""
    texts = data.of(artifacts, epoch, compile_id)
    if not texts and not _of(data.of(compilations), epoch, compile_id):
        raise _not_found(epoch, compile_id)
    warnings: list[Notice] = []
    return GuardChecks(_guards(data, texts, warnings), warnings)


def _not_found(epoch: int, compile_id: str) -> NotFound:
    return NotFound(f"there is no compilation {compile_id!r} (epoch {epoch})", next_step="Reload")


def _recorded_s(summary: CompileSummary) -> float | None:
    environment = summary.environment
    if not (environment.HasField("recording_start_ns") and environment.HasField("written_ns")):
        return None
    return to_seconds(environment.written_ns - environment.recording_start_ns)


def _is_log(summary: CompileSummary) -> bool:
    """Only the trace handler says how much it captures."""
    return not summary.environment.capture


def _some_outside(summary: CompileSummary) -> bool:
    """Whether some of the compile time was spent before the recording began, or after it ended."""
    environment = summary.environment
    return any(
        row.start_ns < environment.recording_start_ns
        or row.start_ns + row.duration_ns > environment.written_ns
        if row.HasField("start_ns")
        else row.recovered
        for row in summary.compilations
        if row.HasField("duration_ns")
    )


def _of(rows: Iterable[Row], epoch: int, compile_id: str) -> list[Row]:
    return [row for row in rows if (row.epoch, row.compile_id) == (epoch, compile_id)]


def _last_text(data: CompileData, texts: list[Artifact], name: str, warnings: list[Notice]) -> str | None:
    """The newest artifact of this name; None where there is none, or where it cannot be read (a warning says so)."""
    last = max((text for text in texts if text.name == name), key=lambda text: text.id, default=None)
    if last is None:
        return None
    try:
        return read_payload(data, last.id)
    except UserError as error:
        warnings.append(error.notice)
        return None


def _guards(data: CompileData, texts: list[Artifact], warnings: list[Notice]) -> list[Guard]:
    return guards(_last_text(data, texts, GUARDS, warnings) or "")


def _failure(
    data: CompileData,
    rows: list[Compilation],
    texts: list[Artifact],
    recorded: list[Metric],
    warnings: list[Notice],
) -> DetailedFailure | None:
    failed = next((row for row in rows if row.failure is not None), None)
    if failed is None or (failure := failed.failure) is None:
        return None
    eager = ran_eager(failed, failure, _values(recorded, SUPPRESS_ERRORS))
    traceback = _last_text(data, texts, ERROR, warnings) or _text_of(recorded, "exception_stack_trace")
    return DetailedFailure(
        type=failure.type,
        reason=failure.reason,
        file=failure.file,
        line=failure.line,
        traceback=traceback,
        ran_eager=eager,
        consequence=consequence(failed, eager),
    )


def _counts(row: Compilation | None, recorded: list[Metric], guard_checks: int | None) -> Counts:
    parameters = _values(recorded, "param_count")
    return Counts(
        ops=row.graph_ops if row else None,
        nodes=row.graph_nodes if row else None,
        inputs=row.graph_inputs if row else None,
        parameters=parameters[0] if parameters and isinstance(parameters[0], int) else None,
        guard_checks=guard_checks,
    )


def _skip_reasons(summary: CompileSummary, row: Compilation | None, recorded: list[Metric]) -> list[str]:
    """Why CUDA graphs were not used, each reason once."""
    known = [str(value) for value in _values(recorded, CUDAGRAPH_SKIP_REASON)]
    return list(dict.fromkeys([*known, *_late_skips(summary, row)]))


def _late_skips(summary: CompileSummary, row: Compilation | None) -> list[str]:
    """Reasons that torch found when the code first ran, where it names no compile id: those that quote this function,
    if it was compiled once."""
    places_of = [(one.file, one.function) for one in summary.compilations if one.direction == FORWARD]
    if row is None or places_of.count((row.file, row.function)) != 1:
        return []
    unnamed = [one.metrics for one in summary.runtime_metrics if not one.key.compile_id]
    reasons = [json.loads(one[CUDAGRAPH_SKIP_REASON]) for one in unnamed if CUDAGRAPH_SKIP_REASON in one]
    mine = row.file, row.function
    return [text for text in map(str, reasons) if any((at.file, at.function) == mine for at in places(text))]


def _text_of(recorded: list[Metric], name: str) -> str | None:
    values = _values(recorded, name)
    lines = values[0] if values and isinstance(values[0], list) else values
    return "\n".join(str(line) for line in lines) or None


def _values(recorded: list[Metric], name: str) -> list[Any]:
    return [json.loads(metric.value) for metric in recorded if metric.name == name]
