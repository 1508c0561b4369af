"""Which frames were compiled again, which guard failed, when, and how often did a span run each version?

torch's recompile reasons are prose, not a contract: a line that is not understood keeps its text and has kind "other".
"""

import json
from collections import defaultdict
from typing import Annotated, Literal

import msgspec

from tb_torchcompile_plugin.analysis.compile.compile_time import seconds_by_frame
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    column_head,
    duration,
    joined_names,
    often,
    plural,
)
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAMES
from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, ShapeEvent
from tb_torchcompile_plugin.generated_code.output_code import Frame, frames
from tb_torchcompile_plugin.profile.columns import us
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import calls_by_id
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_around
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import graph_breaks as names
from tb_torchcompile_plugin.torch_names import records
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time
from tb_torchcompile_plugin.torch_names.graph_breaks import GuardKind
from tb_torchcompile_plugin.torch_names.python_frames import is_user_file

SymbolOrigin = Literal["asked", "changed", "data"]
_MAX_CLOCK_DIFFERENCE_NS = 1_000_000_000  # the log's clock and the trace's differ by milliseconds at most
SIZE = ".size()["  # behind an input, in the source of one of its sizes
ADVICE = {
    "tensor_size": "If this size varies, call torch._dynamo.mark_dynamic({source}, {index}) before the first call, "
    "or compile with dynamic=True. If only the last batch of a data set is shorter, drop_last=True avoids it.",
    "tensor_property": "Convert {source} to one dtype, device, layout and requires_grad before the call.",
    "shape": "The graph was compiled for one range of this size. Before the first call, use mark_dynamic with min and "
    "max, or mark_unbacked to avoid specialization.",
    "float": "Each new value of this float may cause a recompile. Pass it as a tensor, or keep it outside of the "
    "compiled function.",
    "int": "If this number varies, pass it as a tensor, or use torch._dynamo.mark_unbacked on the tensor whose size it "
    "is; for an attribute of a module, set torch._dynamo.config.allow_unspec_int_on_nn_module = True.",
    "attribute": "The compiled code holds this number, so it does not fit modules or calls with another one. Set "
    "torch._dynamo.config.allow_unspec_int_on_nn_module = True. If the number only selects an element of a list, pass "
    "that element to the module instead.",
    "parameter": "Modules whose parameters have different sizes cannot share a compilation. This is expected.",
    "value": "A constant of the program changed. Compile one function for each value, or pass it as a tensor.",
    "type": "The type of {source} changed. Convert it to one type before the call.",
    "identity": "{source} is not the object that was compiled for. Create it once and keep it, or pass it as an "
    "argument.",
    "length": "The number of elements of {source} changed. Keep it constant, or stack the elements into one tensor.",
    "global_state": "A global setting differs between calls: {source}. Call under one setting (for evaluation, compile "
    "a second function), or use torch.compiler.set_stance.",
    "other": "See the text of the guard; TORCH_LOGS=guards,recompiles prints all guards of each cached version.",
}


class SymbolicShape(msgspec.Struct, frozen=True):
    """A size or number that a graph holds as a symbol."""

    compile_id: str
    symbol: str
    source: str | None  # the input's expression
    origin: SymbolOrigin  # `asked` by mark_dynamic or dynamic=True, `changed` between two calls, or decided by `data`
    value: str | None  # in the call that was compiled
    range: str | None
    fixed: str | None  # the value that it was fixed to after all
    reason: str | None  # why it was fixed
    file: str  # where the program first used it
    line: int | None


class ShapeGuard(msgspec.Struct, frozen=True):
    """An expression over symbols that must hold."""

    expression: str
    stack: list[Frame]


class DynamicChange(msgspec.Struct, frozen=True):
    """An input that torch made dynamic because it changed between two calls."""

    source: str | None
    change: str  # "size", "scalar" or "stride"
    before: str | None
    now: str | None


class SymbolicShapes(msgspec.Struct, frozen=True):
    """Which sizes are symbolic in a compilation, and what guards them."""

    symbols: list[SymbolicShape]
    guards: list[ShapeGuard]


class FailedGuard(msgspec.Struct, frozen=True):
    """A guard that did not hold."""

    entry: Annotated[str | None, column_head("Version")]
    text: Annotated[str, column_head("Guard")]
    kind: Annotated[GuardKind, column_head(unseen=True)]
    source: Annotated[str | None, column_head(unseen=True)]  # what is guarded
    old: Annotated[str | None, column_head("Expected")]  # value that was compiled for
    new: Annotated[str | None, column_head("Actual")]  # value in this call, None where torch does not name it
    file: Annotated[str | None, column_head(unseen=True)]
    line: Annotated[int | None, column_head(unseen=True)]
    advice: Annotated[str, column_head(unseen=True)]


class Recompile(msgspec.Struct, frozen=True):
    """A frame that was compiled again."""

    key: str
    compile_id: str
    epoch: int
    function: str
    # Of the most recent cached version: the guard, the value that it expects, and the one of this call.
    guard: Annotated[str, column_head("Guard that failed", grow=True)]
    change: Annotated[str, column_head("Expected → actual")]
    file: str
    line: int | None
    # Compile time, with that of its backward graph.
    duration_s: Annotated[float | None, column_head("Compile time", bar=True, total=True)]
    advice: Annotated[str, column_head("How to avoid it", hidden=True)]
    # One for each cached version that was tried, most recent first.
    reasons: Annotated[list[str], column_head(unseen=True)]
    guards: Annotated[list[FailedGuard], column_head("Guards that failed", inner=True, hidden=True)]
    # Inputs that changed, so that torch made them dynamic.
    dynamic: Annotated[list[DynamicChange], column_head("Made dynamic", inner=True, hidden=True)]
    # What a span shows of it; None without a trace.
    step: Annotated[str | None, column_head(unseen=True)] = None  # the profiled step around it
    when: str | None = None  # in words
    calls: int | None = None  # how often the span ran this version


class Version(msgspec.Struct, frozen=True):
    """One compilation of a frame."""

    compile_id: str
    duration_s: float | None  # compile time, with that of its backward graph
    calls: int | None  # how often the span ran it; None without a trace


class RecompiledFrame(msgspec.Struct, frozen=True):
    """A frame with more than one version, or the `forward` of several modules."""

    frame: str
    epoch: int
    function: Annotated[str, column_head(grow=True)]
    file: str
    line: int | None
    versions: Annotated[list[Version], column_head(inner=True)]  # in the order in which they were compiled
    # `torch._dynamo.config.recompile_limit`, None where it was not recorded.
    limit: Annotated[int | None, column_head("Recompile limit")]
    # The compilation that was refused; since then, calls that no version fits run eagerly.
    limit_hit: Annotated[str | None, column_head("Refused compilation")]
    module: Annotated[str | None, column_head("Class")] = None  # if it is the `forward` of a module
    modules: int | None = None  # how many of this class the model has; None if one, or unknown
    # What the modules differ in: the sources of their own guards that led to recompiles.
    differences: Annotated[tuple[str, ...], column_head("Modules differ in")] = ()
    # Compile time of versions that exist because the code holds a number of the module.
    avoidable_s: Annotated[float | None, column_head("Avoidable compile time")] = None


class RecompileReport(msgspec.Struct, frozen=True):
    """Why functions were compiled again, and how often each version ran."""

    sentences: tuple[str, ...]
    recompiles: tuple[Recompile, ...]
    frames: Annotated[tuple[RecompiledFrame, ...], column_head("Functions with several versions or modules")]


def recompiles(data: CompileData) -> list[Recompile]:
    """Return all recompiles in the order in which torch reported them."""
    compiled, times = record.forward_compilations(data.summary), data.of(seconds_by_frame)
    expected = data.of(_expected_values)
    rows = []
    for message in data.summary.recompiles:
        changes = data.of(changed_inputs, record.key_of(message.key))
        frame = compiled.get(record.key_of(message.key))
        values = expected.get(record.key_of(message.key), {})
        guards = [_with_new_value(failed_guard(reason), changes, values) for reason in message.reasons]
        first = guards[0] if guards else None
        rows.append(
            Recompile(
                key=f"{message.key.compile_id},{message.key.epoch}",
                compile_id=message.key.compile_id,
                epoch=message.key.epoch,
                function=frame.function if frame else "",
                guard=first.text if first else "",
                change=f"{first.old} → {first.new or 'another'}" if first and first.old else "",
                file=message.file,
                line=record.optional_number(message, "line"),
                duration_s=times.get(record.key_of(message.key)),
                advice=first.advice if first else "",
                reasons=list(message.reasons),
                guards=guards,
                dynamic=changes,
            )
        )
    return rows


def count_recompiles(data: CompileData) -> int | None:
    """Count the recompiles, None where they are unknown. The backward graph of one is a part of it."""
    return None if data.is_unknown("recompiles") else len(data.of(recompiles))


def _expected_values(data: CompileData) -> dict[record.Key, dict[str, str]]:
    """Return for each version the values that it was compiled for, by their source.

    torch names them where a guard of that version failed later.
    """
    values = defaultdict[record.Key, dict[str, str]](dict)
    for row in data.summary.recompiles:
        for guard in map(failed_guard, row.reasons):
            if guard.entry and guard.source and guard.old:
                values[row.key.epoch, guard.entry][guard.source] = guard.old
    return values


def _with_new_value(guard: FailedGuard, changes: list[DynamicChange], values: dict[str, str]) -> FailedGuard:
    """Add the new value: a guard on a value names only the old one.

    What torch made dynamic because of it names both; otherwise the version compiled for the call expects the new one.
    """
    if guard.new is not None or guard.old is None:
        return guard
    sources = (guard.source, f"L['{guard.source}']")
    now = (change.now for change in changes if change.source in sources and change.before == guard.old)
    return msgspec.structs.replace(guard, new=next(now, values.get(guard.source or "")))


def recompiles_headline(data: CompileData) -> str:
    """Summarize in a sentence: "3 recompiles cost 2.10 s of compile time."."""
    if not (rows := data.of(recompiles)):
        return data.none_of("recompiles")
    if data.source == "torch_logs":
        return f"{plural(len(rows), 'recompile')}."
    total = duration(1e6 * sum(row.duration_s or 0 for row in rows))
    return f"{plural(len(rows), 'recompile')} cost {total} of compile time."


def recompiled_frames(data: CompileData) -> list[RecompiledFrame]:
    """Return the frames with several versions or modules, or that hit the limit, in order of their first version."""
    rows = (row for row in data.summary.compilations if row.direction == FORWARD and row.key.compile_id)
    by_frame = grouped(rows, lambda row: (row.key.epoch, frame_of(row.key.compile_id)))
    again = grouped(data.of(recompiles), lambda row: (row.epoch, frame_of(row.compile_id)))
    frames, times = [], data.of(seconds_by_frame)
    for (epoch, frame), compiled in by_frame.items():
        failures = [row for row in compiled if row.HasField("failure")]
        refused = [row for row in failures if names.is_limit(row.failure.type, row.failure.reason)]
        first_refused = min(refused, key=lambda row: row.start_ns, default=None)
        limits = [text for row in compiled if (text := row.metrics.get(records.RECOMPILE_LIMIT))]
        versions = [
            Version(row.key.compile_id, times.get(record.key_of(row.key)), None)
            for row in compiled
            if not row.HasField("failure")
        ]
        row = RecompiledFrame(
            frame=frame,
            epoch=epoch,
            function=compiled[0].function,
            file=compiled[0].file,
            line=record.optional_number(compiled[0], "line"),
            versions=versions,
            limit=json.loads(limits[-1]) if limits else None,
            limit_hit=first_refused.key.compile_id if first_refused else None,
        )
        row = _add_modules(row, compiled, again.get((epoch, frame), []))
        if len(versions) > 1 or first_refused or row.modules:
            frames.append(row)
    return frames


def _add_modules(
    row: RecompiledFrame, compiled: list[Compilation], again: list[Recompile]
) -> RecompiledFrame:
    modules = max(json.loads(row.metrics.get(records.MODULE_COUNT, "0")) for row in compiled)
    own = [recompile.guards[0] for recompile in again if names.is_of_self(recompile.guard)]
    differences = (names.difference(guard.kind, guard.source or guard.text) for guard in own)
    return msgspec.structs.replace(
        row,
        module=json.loads(compiled[0].metrics.get(records.MODULE_CLASS, "null")),
        modules=modules if modules > 1 and row.versions else None,
        differences=tuple(dict.fromkeys(differences)),
        avoidable_s=sum(row.duration_s or 0 for row in again if row.advice == ADVICE["attribute"]) or None,
    )


def shared_modules(data: CompileData) -> tuple[str, ...]:
    """Return a sentence for each class: how many compilations its modules have, and what keeps them apart."""
    return tuple(filter(None, map(sharing, data.of(recompiled_frames))))


def sharing(frame: RecompiledFrame) -> str:
    """Return "12 Block modules (model.py:7): 8 compilations. They differ in self.index.". How many ran is unknown."""
    versions, line = plural(len(frame.versions), "compilation"), at_line(frame.file, frame.line)
    differ = joined_names(frame.differences[:MAX_NAMES])
    if not frame.modules:
        name = frame.module or frame.function
        return f"{name} ({line}): {versions}. Its modules or calls differ in {differ}." if differ else ""
    calls = sum(version.calls or 0 for version in frame.versions)
    ran = f", called {often(calls)} in this span" if calls else ""
    refused = ", and calls that none of them fits run eagerly" if frame.limit_hit else ""
    why = f" They differ in {differ}." if differ else ""
    return f"{frame.modules:,} {frame.module} modules ({line}): {versions}{ran}{refused}.{why}"


def recompile_moments(profile: Profile) -> list[Recompile]:
    """Return the recompiles as the span shows them, in torch's order; [] without compile data."""
    if profile.data is None:
        return []
    calls = profile.of(calls_by_id)
    compiled = record.forward_compilations(profile.data.summary)
    return [
        _moment(profile, row, compiled.get((row.epoch, row.compile_id)), calls[row.compile_id])
        for row in profile.data.of(recompiles)
    ]


def _moment(profile: Profile, row: Recompile, compilation: Compilation | None, calls: int) -> Recompile:
    moment = msgspec.structs.replace(row, calls=calls)
    if compilation is None or not compilation.HasField("start_ns"):
        return moment
    first, last = profile.trace.window()
    # The start of the trace's own slice of that compilation, otherwise that in the log.
    trace, ownership = profile.trace, profile.of(Ownership)
    logged = compilation.start_ns - trace.base_ns
    slices = (index for index, code in ownership.compilations if ownership.names[code] == row.compile_id)
    starts = [int(trace.ts[index]) for index in slices]
    nearest = min(starts, key=lambda start: abs(start - logged), default=logged)
    start = nearest if abs(nearest - logged) < _MAX_CLOCK_DIFFERENCE_NS else logged
    step, when = step_around(profile, start), f"{duration(us(start - first))} into the span"
    if step:
        when = f"in {step}"
    elif start < first:
        when = f"{duration(us(first - start))} before the span"
    elif start >= last:
        when = "after the span"
    return msgspec.structs.replace(moment, step=step, when=when)


def frame_versions(profile: Profile) -> list[RecompiledFrame]:
    """Return `recompiled_frames` with the calls of their versions.

    Without compile data: the frames that ran in several versions, or in another one than the first.
    """
    calls, replace = profile.of(calls_by_id), msgspec.structs.replace
    if profile.data is not None:
        return [
            replace(
                row, versions=[replace(version, calls=calls[version.compile_id]) for version in row.versions]
            )
            for row in profile.data.of(recompiled_frames)
        ]
    ran = (Version(compile_id, None, count) for compile_id, count in calls.items())
    frames = grouped(ran, lambda version: frame_of(version.compile_id))
    return [
        RecompiledFrame(frame, 0, "", "", None, versions, None, None)
        for frame, versions in frames.items()
        if len(versions) > 1 or not versions[0].compile_id.endswith("/0")
    ]


def headline(profile: Profile) -> str:
    """Return what recompiles cost; without compile data, that there were some."""
    if profile.data is not None:
        return profile.data.of(recompiles_headline)
    frames = profile.of(frame_versions)
    if not frames:
        return "Recompiles are unknown: there is no compile data."
    which = "it was" if len(frames) == 1 else "they were"
    return f"{plural(len(frames), 'function')} ran in more than one version: {which} recompiled."


def recompile_report(about: Profile | CompileData) -> RecompileReport:
    """Return the recompiles, and the versions of the frames that have several."""
    if isinstance(about, Profile):
        sentence, rows, frames = about.of(headline), about.of(recompile_moments), about.of(frame_versions)
    else:
        sentence, rows = about.of(recompiles_headline), about.of(recompiles)
        frames = about.of(recompiled_frames)
    refused = (refusal(frame) for frame in frames if frame.limit_hit)
    shared = filter(None, map(sharing, frames))
    return RecompileReport((sentence, *refused, *shared), tuple(rows), tuple(frames))


def refusal(frame: RecompiledFrame) -> str:
    """Return a sentence: torch compiles no more versions of this frame, and what helps."""
    name = f"`{frame.function}`" if frame.function else f"Frame {frame.frame}"
    limit = "" if frame.limit is None else f" ({frame.limit:,})"
    return (
        f"{name} reached the recompile limit{limit}: calls that none of its "
        f"{plural(len(frame.versions), 'version')} fits run eagerly. Remove the cause of the recompiles, or raise "
        "`torch._dynamo.config.recompile_limit`."
    )


def frame_of(compile_id: str) -> str:
    """Return the frame of a compile id: "0" of "0/1", "!1/2" of "!1/2/0".

    What was compiled ahead of time has no versions.
    """
    return compile_id if is_ahead_of_time(compile_id) else compile_id.rpartition("/")[0]


def failed_guard(reason: str) -> FailedGuard:
    """Parse one recompile reason: which guard, on what, which value it had and has, and what helps. Never raises."""
    entry = names.ENTRY.match(reason)
    body = reason[entry.end() :] if entry else reason
    text = (body.splitlines()[0] if body else "").partition("  #")[0].strip()
    kind, groups = names.guard_kind(text)
    file, line = names.guarded_at(body) or (None, None)
    topic: str = names.number_kind(groups.get("old") or "") if kind == "value" else kind
    if names.is_of_self(text):
        topic = {"int": "attribute", "tensor_size": "parameter"}.get(topic, topic)
    values = {name: value or "it" for name, value in groups.items()}
    return FailedGuard(
        entry=entry["entry"] if entry else None,
        text=text,
        kind=kind,
        source=groups.get("source"),
        old=groups.get("old"),
        new=groups.get("new"),
        file=file,
        line=line,
        advice=ADVICE[topic].format_map({"source": "it", "index": "0", **values}),
    )


def dynamic_compilations(data: CompileData) -> list[record.Key]:
    """Return the compilations with symbols."""
    keys = (record.key_of(row.key) for row in data.summary.shape_events if row.kind in records.SYMBOLS)
    return list(dict.fromkeys(keys))


def versions_of(data: CompileData, key: record.Key) -> list[record.Key]:
    """Return the compilations of the same frame, in their order."""
    keys = dict.fromkeys([*record.forward_compilations(data.summary), *data.of(dynamic_compilations)])
    return [other for other in keys if other[0] == key[0] and frame_of(other[1]) == frame_of(key[1])]


def symbolic_shapes(data: CompileData, epoch: int, compile_id: str) -> SymbolicShapes:
    """Return the symbols of one compilation, each kind from the last attempt that has it."""
    rows = _shape_events(data, (epoch, compile_id))
    guards: dict[str, ShapeGuard] = {}  # torch writes one each time it needs it
    for row in _last_attempt(rows, *records.SHAPE_GUARDS):
        guards.setdefault(row.symbol, ShapeGuard(row.symbol, frames(row.stack)))
    symbols, fixed = _last_attempt(rows, *records.SYMBOLS), _last_attempt(rows, records.SPECIALIZATION)
    fixed_by_symbol = {row.symbol: row for row in reversed(fixed)}
    return SymbolicShapes(
        symbols=[_symbol(data, row, fixed_by_symbol.get(row.symbol, ShapeEvent())) for row in symbols],
        guards=list(guards.values()),
    )


def changed_inputs(data: CompileData, *keys: record.Key) -> list[DynamicChange]:
    """Return the inputs that changed before these compilations."""
    return [
        DynamicChange(row.source or None, row.reason, row.range or None, row.value or None)
        for key in keys
        for row in _last_attempt(_shape_events(data, key), records.CHANGED_SHAPE)
    ]


def _shape_events(data: CompileData, key: record.Key) -> list[ShapeEvent]:
    return [row for row in data.summary.shape_events if record.key_of(row.key) == key]


def _symbol(data: CompileData, row: ShapeEvent, fixed: ShapeEvent) -> SymbolicShape:
    file, line = users_line(frames(row.stack))
    return SymbolicShape(
        compile_id=row.key.compile_id,
        symbol=row.symbol,
        source=row.source or None,
        origin=_origin(data, row),
        value=row.value or None,
        range=row.range or None,
        fixed=fixed.value or None,
        reason=fixed.reason or None,
        file=file,
        line=line,
    )


def _origin(data: CompileData, row: ShapeEvent) -> SymbolOrigin:
    if row.kind != records.SYMBOLS[0]:
        return "data"
    versions = versions_of(data, record.key_of(row.key))
    # "L['x']" of "L['x'].size()[0]".
    changed = {(change.source or "").partition(SIZE)[0] for change in data.of(changed_inputs, *versions)}
    is_changed = versions[0] != record.key_of(row.key) and row.source.partition(SIZE)[0] in changed
    return "changed" if is_changed else "asked"


def users_line(stack: list[Frame]) -> tuple[str, int | None]:
    """Return the innermost line of the user's program; without one, the innermost line of all."""
    users = [frame for frame in stack if is_user_file(frame.file)] or stack
    return (users[-1].file, users[-1].line) if users else ("", None)


def _last_attempt(rows: list[ShapeEvent], *kinds: str) -> list[ShapeEvent]:
    """Keep the rows of the last attempt with any of these kinds: earlier attempts were thrown away."""
    events = [row for row in rows if row.kind in kinds]
    last = max((row.attempt for row in events), default=0)
    return [row for row in events if row.attempt == last]
