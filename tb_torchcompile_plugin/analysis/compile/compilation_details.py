"""Where did the compile time of a process go, and what is recorded about one compile id?"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.compile import recompiles as recompile_rows
from tb_torchcompile_plugin.analysis.compile.cache_keys import compared_lookups
from tb_torchcompile_plugin.analysis.compile.cache_lookups import CacheLookup, time_saved_s
from tb_torchcompile_plugin.analysis.compile.compilations import (
    NOT_COMPILED_HERE,
    Compilation,
    Failure,
    compilations,
    consequence,
    none_compiled,
    other_rows_summary,
    phases_s,
    ran_eager,
)
from tb_torchcompile_plugin.analysis.compile.compile_time import PhaseSpans, phase_spans
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreak, graph_breaks
from tb_torchcompile_plugin.analysis.compile.starts import Starts
from tb_torchcompile_plugin.analysis.formatting import at_line, percent, plural, seconds
from tb_torchcompile_plugin.compile_log.record import Direction, direction_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileKey, CompileSummary
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, Frame, artifacts
from tb_torchcompile_plugin.profile.intervals import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names import graph_breaks as names
from tb_torchcompile_plugin.torch_names.artifacts import GUARDS
from tb_torchcompile_plugin.torch_names.python_frames import traceback_frames
from tb_torchcompile_plugin.torch_names.records import CUDAGRAPH_SKIP_REASON, GROUPS, SUPPRESS_ERRORS, Phase

_GROUP_OF = {field: group for group, fields in GROUPS.items() for field in fields.split()}
_GROUP_ORDER = {group: index for index, group in enumerate([*GROUPS, "other"])}

Row = TypeVar("Row", Compilation, GraphBreak, recompile_rows.Recompile)


class CompileTime(PhaseSpans, frozen=True, kw_only=True):
    """The compile time of one process by phase, with its spans and its cache lookups."""

    total_s: float | None
    recorded_s: float | None  # wall time that the recording covers
    # Of `recorded_s`; None where something was compiled outside of it, and for a log, which covers little but
    # compilations.
    share_percent: float | None
    phases_s: dict[Phase, float]
    cache: tuple[CacheLookup, ...]
    # By cache hits; one of AOTAutograd's cache includes those of the FX graphs in it.
    time_saved_s: float | None


class Metric(msgspec.Struct, frozen=True):
    """One field that torch wrote into its compilation metrics."""

    group: str
    name: str
    value: str  # JSON text
    known: bool  # a field of a torch version that this package was tested with
    direction: Direction
    runtime: bool  # written when the compiled code first ran, not while compiling
    # number of the record of its kind, from 0 (DDP compiles several backwards for one compile id)
    record: int


class Guard(msgspec.Struct, frozen=True):
    """One check before a compiled frame is run again."""

    text: str  # its line as torch wrote it, without the tree's bars
    kind: str  # "TENSOR_MATCH"
    source: str | None  # what is guarded ("L['x']"), None for what is global
    user_line: str | None  # the code that made torch guard it, and its location


class GuardChecks(msgspec.Struct, frozen=True):
    """What is checked at each call of one compile id, in this order. Thousands, for a large model."""

    guards: list[Guard]
    warnings: list[Notice]


class Elements(NamedTuple):
    """The elements of one list or dict that are checked one by one."""

    source: str  # the container
    many: int
    line: str  # "m.py:3", the code that made torch guard them; "" where unknown


class DetailedFailure(Failure, frozen=True):
    """A failure with its traceback and what it meant for the program."""

    traceback: str | None
    # Torch suppressed the error and ran the frame without compiling it; None where unknown.
    ran_eager: bool | None
    consequence: str  # the same as a sentence


class Counts(msgspec.Struct, frozen=True):
    """Sizes of a compiled graph."""

    ops: int | None
    nodes: int | None
    inputs: int | None
    parameters: int | None
    guard_checks: int | None  # length of `GuardChecks.guards`; None where the guard tree was not stored


class CompilationDetails(msgspec.Struct, frozen=True):
    """Everything recorded about one compile id."""

    compile_id: str
    epoch: int
    rows: list[Compilation]  # its forward and its backwards
    stack: list[Frame]
    restart_reasons: list[str]
    failure: DetailedFailure | None
    graph_breaks: list[GraphBreak]
    recompile: recompile_rows.Recompile | None
    counts: Counts
    symbolic_shapes: list[recompile_rows.SymbolicShape]
    specializations: list[recompile_rows.Specialization]
    shape_guards: list[recompile_rows.ShapeGuard]
    dynamic_changes: list[recompile_rows.DynamicChange]
    metrics: list[Metric]
    cudagraph_skip_reasons: list[str]
    artifacts: list[Artifact]
    warnings: list[Notice]


def compile_time(starts: Starts) -> CompileTime:
    """Return the compile time of the process in view with what it consists of."""
    data = starts.own.data
    return CompileTime(
        **msgspec.structs.asdict(data.of(phase_spans)),
        total_s=data.of(ct.total_s),
        recorded_s=_recorded_s(data.summary),
        share_percent=data.of(_share_percent),
        phases_s=data.of(phases_s),
        cache=starts.of(compared_lookups),
        time_saved_s=data.of(time_saved_s),
    )


def compile_time_headline(data: CompileData) -> str:
    """Summarize in a sentence: "4 compilations took 6.69 s, 55.7 % of the 12.0 s that were recorded."."""
    rows = [row for row in data.of(compilations) if row.status not in NOT_COMPILED_HERE]
    if not rows:
        return data.of(none_compiled)
    share = data.of(_share_percent)
    recorded = seconds(_recorded_s(data.summary))
    of_recorded = f", {percent(share)} of the {recorded} that were recorded" if share is not None else ""
    backward = sum(row.direction == "backward" for row in rows)
    were = "was" if backward == 1 else "were"
    lazy = f"; {plural(backward, 'backward graph')} {were} compiled on first use" if backward else ""
    others = data.of(other_rows_summary)
    not_here = f"; {others}" if others else ""
    total = seconds(data.of(ct.total_s))
    return (
        f"{plural(data.of(ct.count_compilations), 'compilation')} took {total}{of_recorded}{lazy}{not_here}."
    )


def _recorded_s(summary: CompileSummary) -> float | None:
    environment = summary.environment
    if not (environment.HasField("recording_start_ns") and environment.HasField("written_ns")):
        return None
    return to_seconds(environment.written_ns - environment.recording_start_ns)


def _share_percent(data: CompileData) -> float | None:
    environment = data.summary.environment
    total, recorded = data.of(ct.total_s), _recorded_s(data.summary)
    is_log = not environment.capture  # only the trace handler writes how much it captures
    if total is None or not recorded or is_log:
        return None
    for row in data.summary.compilations:
        if row.HasField("duration_ns"):
            is_outside = row.recovered
            if row.HasField("start_ns"):
                begins_before = row.start_ns < environment.recording_start_ns
                is_outside = begins_before or row.start_ns + row.duration_ns > environment.written_ns
            if is_outside:
                return None
    return 100 * total / recorded


def compilation(data: CompileData, epoch: int, compile_id: str) -> CompilationDetails:
    """Return the details of one compile id; raises NotFound where nothing was recorded of it."""
    rows, texts = _recorded(data, epoch, compile_id)
    first = next((row for row in rows if row.direction == "forward"), rows[0] if rows else None)
    fields = data.of(metrics, epoch, compile_id)
    parameters = next(iter(_values(fields, "param_count")), None)
    shapes = data.of(recompile_rows.symbolic_shapes, epoch, compile_id)
    warnings: list[Notice] = []
    return CompilationDetails(
        compile_id=compile_id,
        epoch=epoch,
        rows=rows,
        stack=first.stack if first else [],
        restart_reasons=first.restart_reasons if first else [],
        failure=_failure(data, rows, texts, fields, warnings),
        graph_breaks=_select(data.of(graph_breaks), epoch, compile_id),
        recompile=next(iter(_select(data.of(recompile_rows.recompiles), epoch, compile_id)), None),
        counts=Counts(
            ops=first.graph_ops if first else None,
            nodes=first.graph_nodes if first else None,
            inputs=first.graph_inputs if first else None,
            parameters=parameters if isinstance(parameters, int) else None,
            guard_checks=len(guards(_last_text(data, texts, GUARDS, warnings) or "")) or None,
        ),
        symbolic_shapes=shapes.symbols,
        specializations=shapes.specializations,
        shape_guards=shapes.guards,
        dynamic_changes=shapes.changes,
        metrics=fields,
        cudagraph_skip_reasons=_skip_reasons(data.summary, first, fields),
        artifacts=texts,
        warnings=warnings,
    )


def guard_checks(data: CompileData, epoch: int, compile_id: str) -> GuardChecks:
    """Return the guards of one compile id; raises NotFound where nothing was recorded of it."""
    _, texts = _recorded(data, epoch, compile_id)
    warnings: list[Notice] = []
    return GuardChecks(guards(_last_text(data, texts, GUARDS, warnings) or ""), warnings)


def _recorded(data: CompileData, epoch: int, compile_id: str) -> tuple[list[Compilation], list[Artifact]]:
    rows = _select(data.of(compilations), epoch, compile_id)
    texts = data.of(artifacts, epoch, compile_id)
    if not rows and not texts:
        raise NotFound(f"there is no compilation {compile_id!r} (epoch {epoch})", next_step="Reload")
    return rows, texts


def _select(rows: Iterable[Row], epoch: int, compile_id: str) -> list[Row]:
    return [row for row in rows if (row.epoch, row.compile_id) == (epoch, compile_id)]


def metrics(data: CompileData, epoch: int, compile_id: str) -> list[Metric]:
    """Return all fields of all metrics records of one compile id, record by record, by group, then name."""
    compile_key = CompileKey(epoch=epoch, compile_id=compile_id)
    rows = []
    for runtime, messages in ((False, data.summary.compilations), (True, data.summary.runtime_metrics)):
        records = Counter[Direction]()
        for message in messages:
            if message.key != compile_key or not message.metrics:
                continue
            direction = direction_of(message.direction)
            for name, value in message.metrics.items():
                group = _GROUP_OF.get(name, "other")
                is_known = name in _GROUP_OF
                rows.append(Metric(group, name, value, is_known, direction, runtime, records[direction]))
            records[direction] += 1
    rows.sort(key=lambda row: (_GROUP_ORDER[row.group], row.name))
    return sorted(rows, key=lambda row: (row.direction == "backward", row.runtime, row.record))


def _failure(
    data: CompileData,
    rows: list[Compilation],
    texts: list[Artifact],
    fields: list[Metric],
    warnings: list[Notice],
) -> DetailedFailure | None:
    row = next((row for row in rows if row.failure is not None), None)
    if row is None or row.failure is None:
        return None
    eager = ran_eager(row, row.failure, _values(fields, SUPPRESS_ERRORS))
    traceback = _last_text(data, texts, names.ERROR, warnings)
    if not traceback:
        values = _values(fields, "exception_stack_trace")
        lines = values[0] if values and isinstance(values[0], list) else values
        traceback = "\n".join(str(line) for line in lines) or None
    failure = msgspec.structs.asdict(row.failure)
    return DetailedFailure(
        **failure, traceback=traceback, ran_eager=eager, consequence=consequence(row, eager)
    )


def _last_text(data: CompileData, texts: list[Artifact], name: str, warnings: list[Notice]) -> str | None:
    """Read the newest artifact of this name; None where there is none or, with a warning, where it is unreadable."""
    last = max((text for text in texts if text.name == name), key=lambda text: text.id, default=None)
    if last is None:
        return None
    try:
        return read_payload(data, last.id)
    except UserError as error:
        warnings.append(error.notice)
        return None


def _values(fields: list[Metric], name: str) -> list[Any]:
    return [json.loads(field.value) for field in fields if field.name == name]


def _skip_reasons(summary: CompileSummary, row: Compilation | None, fields: list[Metric]) -> list[str]:
    """Return why CUDA graphs were not used, each reason once.

    A reason that torch found when the code first ran names no compile id. It counts where it quotes this function, if
    the function was compiled once.
    """
    reasons = [str(value) for value in _values(fields, CUDAGRAPH_SKIP_REASON)]
    functions = [(other.file, other.function) for other in summary.compilations if other.direction == FORWARD]
    if row is not None and functions.count((row.file, row.function)) == 1:
        for message in summary.runtime_metrics:
            if not message.key.compile_id and CUDAGRAPH_SKIP_REASON in message.metrics:
                reason = str(json.loads(message.metrics[CUDAGRAPH_SKIP_REASON]))
                if any((at.file, at.function) == (row.file, row.function) for at in traceback_frames(reason)):
                    reasons.append(reason)
    return list(dict.fromkeys(reasons))


def guards(dump: str) -> list[Guard]:
    """Parse the checks of a `dynamo_cpp_guards_str` payload, in the order in which they are made."""
    checks: list[Guard] = []
    sources: dict[int, str | None] = {}
    nodes: list[list[str]] = []  # a guard whose text has several lines is one
    for line in dump.splitlines():
        if names.TREE_NODE.match(line):
            nodes.append([line])
        elif nodes and line.strip() and not line.startswith(names.TREE_AFTER):
            nodes[-1].append(line)
    for node in filter(None, (names.TREE_NODE.match("\n".join(lines)) for lines in nodes)):
        depth, label, rest = len(node["bars"]) // 2, node["label"], node["rest"] or ""
        if label.endswith("Manager"):
            source = names.TREE_SOURCE.search(rest)
            sources[depth] = source["source"] if source else None
            continue
        comment = names.TREE_COMMENT.split(rest, maxsplit=1)[1:]
        checks.append(
            Guard(
                text=f"{label}: {rest}" if rest else label,
                kind=label,
                source=sources.get(depth - 1),
                user_line=comment[0].strip() if comment else None,
            )
        )
    return checks


def most_guarded_container(checks: Iterable[Guard]) -> Elements | None:
    """Return the container of which most elements are compared with earlier values; None without any."""
    elements = [
        (match["container"], check.user_line or "")
        for check in checks
        if check.kind == names.COMPARED
        and check.source
        and (match := names.TREE_ELEMENT.fullmatch(check.source))
    ]
    if not elements:
        return None
    ((container, count),) = Counter(container for container, _ in elements).most_common(1)
    lines = Counter(line for other, line in elements if other == container)
    match = names.TREE_PLACE.search(lines.most_common(1)[0][0])
    return Elements(container, count, at_line(match["file"], int(match["line"])) if match else "")
