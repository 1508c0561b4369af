"""What goes deeper than the list: where compile time went, and all that is known of one compile id.

Rows come from the analyses; here they are only put together. Unknown is null, never 0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.compile.caches import CacheLookup, cache_lookups, time_saved_s
from tb_torchcompile_plugin.analysis.compile.compilations import (
    NOT_COMPILED_HERE,
    Compilation,
    beside_compilations,
    compilations,
    consequence,
    phases_s,
    ran_eager,
)
from tb_torchcompile_plugin.analysis.compile.compile_time import PhaseSpans, phase_spans
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreak, graph_breaks
from tb_torchcompile_plugin.analysis.compile.recompiles import (
    DynamicChange,
    Recompile,
    ShapeGuard,
    Specialization,
    SymbolicShape,
    recompiles,
    symbolic_shapes,
)
from tb_torchcompile_plugin.analysis.formatting import at_line, percent, plural
from tb_torchcompile_plugin.analysis.formatting import seconds as spent
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, FORWARD, CompileKey, CompileSummary
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, Frame, artifacts
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import GUARDS
from tb_torchcompile_plugin.torch_names.graph_breaks import (
    COMPARED,
    ERROR,
    TREE_AFTER,
    TREE_COMMENT,
    TREE_ELEMENT,
    TREE_NODE,
    TREE_PLACE,
    TREE_SOURCE,
)
from tb_torchcompile_plugin.torch_names.python_frames import places
from tb_torchcompile_plugin.torch_names.records import CUDAGRAPH_SKIP_REASON, GROUPS, SUPPRESS_ERRORS, Phase

# Everything that torch wrote into its compilation metrics, grouped; fields that are new to us among them.


_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}


class Metric(msgspec.Struct, frozen=True):
    """One field. `value` is JSON text. `known`: a field of a torch version that this was made for.

    runtime: written when the compiled code first ran, not while compiling. record: which record of its kind, from 0
    (DDP compiles several backwards for one compile id).
    """

    group: str
    name: str
    value: str
    known: bool
    direction: Direction
    runtime: bool
    record: int


def metrics(data: CompileData, epoch: int, compile_id: str) -> list[Metric]:
    """All fields of all metrics records of one compile id that are not null, record by record, by group, then name."""
    wanted = CompileKey(epoch=epoch, compile_id=compile_id)
    rows: list[Metric] = []
    for runtime, messages in ((False, data.summary.compilations), (True, data.summary.runtime_metrics)):
        for code in (FORWARD, BACKWARD):
            mine = [row for row in messages if row.key == wanted and row.direction == code and row.metrics]
            for record, row in enumerate(mine):
                rows += _fields(row.metrics, "backward" if code == BACKWARD else "forward", runtime, record)
    return sorted(rows, key=lambda row: (row.direction == "backward", row.runtime, row.record))


def _fields(values: Mapping[str, str], direction: Direction, runtime: bool, record: int) -> list[Metric]:
    rows = [
        Metric(_GROUP_OF.get(name, "other"), name, value, name in _GROUP_OF, direction, runtime, record)
        for name, value in values.items()
    ]
    order = {group: place for place, group in enumerate(GROUPS)}
    return sorted(rows, key=lambda row: (order.get(row.group, len(order)), row.name))


# Which guards must hold before a compiled frame is run again? From torch's own dump of the guard tree.


class Guard(msgspec.Struct, frozen=True):
    """One check. `text` is its line as torch wrote it, without the tree's bars.

    kind: "TENSOR_MATCH". source: what is guarded ("L['x']"), None for what is global. user_line: the code that made
    torch guard it, and where that is, None where torch does not say.
    """

    text: str
    kind: str
    source: str | None
    user_line: str | None


class Elements(NamedTuple):
    """The elements of one list or dict that are checked one by one. source: the container. line: "m.py:3", the code
    that made torch guard them; "" where it does not say."""

    source: str
    many: int
    line: str


def most_elements(checks: Iterable[Guard]) -> Elements | None:
    """The container of which most elements are compared with what they were; None without any."""
    elements = [
        (match["container"], check.user_line or "")
        for check in checks
        if check.kind == COMPARED and check.source and (match := TREE_ELEMENT.fullmatch(check.source))
    ]
    if not elements:
        return None
    ((container, count),) = Counter(container for container, _ in elements).most_common(1)
    lines = Counter(line for one, line in elements if one == container)
    where = TREE_PLACE.search(lines.most_common(1)[0][0])
    return Elements(container, count, at_line(where["file"], int(where["line"])) if where else "")


def guards(dump: str) -> list[Guard]:
    """The checks of a `dynamo_cpp_guards_str` payload, in the order in which they are made; [] if it holds none."""
    checks: list[Guard] = []
    sources: dict[int, str | None] = {}
    for depth, label, rest in _nodes(dump):
        if label.endswith("Manager"):
            sources[depth] = _source(rest or "")
            continue
        around = (sources.get(above) for above in range(depth - 1, -1, -1))
        checks.append(_guard(label, rest or "", next(around, None)))
    return checks


def _nodes(dump: str) -> list[tuple[int, str, str | None]]:
    """(depth, label, what follows it): a guard whose text has several lines is one node."""
    nodes: list[list[str]] = []
    for line in dump.splitlines():
        if TREE_NODE.match(line):
            nodes.append([line])
        elif nodes and line.strip() and not line.startswith(TREE_AFTER):
            nodes[-1].append(line)
    matches = [TREE_NODE.match("\n".join(lines)) for lines in nodes]
    return [(len(match["bars"]) // 2, match["label"], match["rest"]) for match in matches if match]


def _source(rest: str) -> str | None:
    match = TREE_SOURCE.search(rest)
    return match["source"] if match else None


def _guard(kind: str, rest: str, source: str | None) -> Guard:
    comment = TREE_COMMENT.split(rest, maxsplit=1)[1:]
    return Guard(
        text=f"{kind}: {rest}" if rest else kind,
        kind=kind,
        source=source,
        user_line=comment[0].strip() if comment else None,
    )


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
