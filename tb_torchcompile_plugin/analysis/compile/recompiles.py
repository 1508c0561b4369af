"""Which frames were compiled again, which guard failed, and what did dynamo do about it?"""

from __future__ import annotations

import json

import msgspec

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.compile_log.record import (
    forward_compilations,
    key_of,
    known_number,
    known_seconds,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, Compilation, CompileKey, ShapeEvent
from tb_torchcompile_plugin.compile_log.summary_pb2 import Recompile as RecompileMessage
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_ahead
from tb_torchcompile_plugin.torch_names.graph_breaks import (
    ENTRY,
    GuardKind,
    guarded_at,
    is_limit,
    kind_of,
    number_kind,
)
from tb_torchcompile_plugin.torch_names.records import (
    CHANGED_SHAPE,
    RECOMPILE_LIMIT,
    SHAPE_GUARDS,
    SPECIALIZATION,
    SYMBOLS,
)

# Which sizes are symbolic in a compilation, which were fixed to a value, and what guards them?


class SymbolicShape(msgspec.Struct, frozen=True):
    """A symbol: `value` is that of the call that was compiled. `backed`: an input has it; else data decides."""

    symbol: str
    value: str | None
    range: str | None
    source: str | None
    backed: bool
    stack: list[Frame]


class Specialization(msgspec.Struct, frozen=True):
    """A symbol that was fixed to one value, and why."""

    symbol: str
    value: str | None
    source: str | None
    reason: str | None
    stack: list[Frame]


class ShapeGuard(msgspec.Struct, frozen=True):
    """An expression over symbols that must hold."""

    expression: str
    stack: list[Frame]


class DynamicChange(msgspec.Struct, frozen=True):
    """An input that torch made dynamic because it changed between two calls. change: "size", "scalar", "stride"."""

    source: str | None
    change: str
    before: str | None
    now: str | None


class SymbolicShapes(msgspec.Struct, frozen=True):
    symbols: list[SymbolicShape]
    specializations: list[Specialization]
    guards: list[ShapeGuard]
    changes: list[DynamicChange]


def symbolic_shapes(data: CompileData, epoch: int, compile_id: str) -> SymbolicShapes:
    """Of the last attempt that says anything of its kind: earlier attempts were thrown away."""
    wanted = CompileKey(epoch=epoch, compile_id=compile_id)
    rows = [row for row in data.summary.shape_events if row.key == wanted]
    return SymbolicShapes(
        symbols=[_symbol(row) for row in _last(rows, *SYMBOLS)],
        specializations=[
            Specialization(
                row.symbol, row.value or None, row.source or None, row.reason or None, frames(row.stack)
            )
            for row in _last(rows, SPECIALIZATION)
        ],
        guards=_unique([ShapeGuard(row.symbol, frames(row.stack)) for row in _last(rows, *SHAPE_GUARDS)]),
        changes=[
            DynamicChange(row.source or None, row.reason, row.range or None, row.value or None)
            for row in _last(rows, CHANGED_SHAPE)
        ],
    )


def _unique(rows: list[ShapeGuard]) -> list[ShapeGuard]:
    """torch writes a guard each time it needs it."""
    unique: dict[str, ShapeGuard] = {}
    for row in rows:
        unique.setdefault(row.expression, row)
    return list(unique.values())


def _last(rows: list[ShapeEvent], *kinds: str) -> list[ShapeEvent]:
    mine = [row for row in rows if row.kind in kinds]
    last = max((row.attempt for row in mine), default=0)
    return [row for row in mine if row.attempt == last]


def _symbol(row: ShapeEvent) -> SymbolicShape:
    return SymbolicShape(
        symbol=row.symbol,
        value=row.value or None,
        range=row.range or None,
        source=row.source or None,
        backed=row.kind == SYMBOLS[0],
        stack=frames(row.stack),
    )


# One line of torch's recompile reasons, taken apart: which guard, on what, which value it had and has, what
# helps. The lines are prose, not a contract: what is not understood keeps its text and has kind "other".


class FailedGuard(msgspec.Struct, frozen=True):
    """A guard of cache entry `entry` that did not hold.

    kind: tensor_size, tensor_property, shape, value, type, identity,
    length, global_state or other. old: what was compiled for; new: what came, null where torch does not tell."""

    entry: str | None
    text: str
    kind: GuardKind
    source: str | None
    old: str | None
    new: str | None
    file: str | None
    line: int | None
    advice: str


_LETTERS = 90  # of a guard in a title


def failed(guard: FailedGuard | None) -> str:
    """ "; the guard that failed: tensor 'x' size mismatch at index 0", "" without one."""
    return f"; the guard that failed: {_short(guard)}" if guard and _short(guard) else ""


def advice_of(guard: FailedGuard | None) -> str:
    """ "The guard that failed last is s == 0. If this number varies, …", "" where nothing is advised."""
    return f"The guard that failed last is {_short(guard)}. {guard.advice}" if guard and guard.advice else ""


def _short(guard: FailedGuard) -> str:
    """A guard's text may end in a comment of the compiler's, far to the right."""
    text = " ".join(guard.text.partition("  #")[0].split())
    return text[:_LETTERS] + ("…" if len(text) > _LETTERS else "")


_ADVICE = {
    "tensor_size": "If this size varies, call torch._dynamo.mark_dynamic({source}, {index}) before the first call, "
    "or compile with dynamic=True. For a data set whose last batch is shorter, drop_last=True avoids it.",
    "tensor_property": "Bring {source} to one dtype, device, layout and requires_grad before the call.",
    "shape": "The graph was compiled for one range of this size. Use mark_dynamic with min and max, or mark_unbacked "
    "if no specialization is wanted, before the first call.",
    "float": "Each new value of this float may compile again. Hoist it: pass it as a tensor, or keep it outside of "
    "the compiled function.",
    "int": "If this number varies, pass it as a tensor, or use torch._dynamo.mark_unbacked on the tensor whose size it "
    "is; for an attribute of a module, set torch._dynamo.config.allow_unspec_int_on_nn_module = True.",
    "value": "A constant of the program changed. Compile one function for each value, or pass it as a tensor.",
    "type": "{source} came with another type. Convert it to one type before the call.",
    "identity": "{source} is another object than the one that was compiled for. Create it once and keep it, or pass it "
    "as an argument.",
    "length": "The number of elements of {source} changed. Keep it constant, or stack the elements into one tensor.",
    "global_state": "A global setting differs between calls: {source}. Call under one setting (for evaluation, compile "
    "a second function), or use torch.compiler.set_stance.",
    "other": "See the guard's text; TORCH_LOGS=guards,recompiles prints all guards of each entry.",
}


def failed_guard(reason: str) -> FailedGuard:
    """Take one reason apart. Never raises."""
    entry = ENTRY.match(reason)
    body = reason[entry.end() :] if entry else reason
    text = body.splitlines()[0] if body else ""
    guard, _, _ = text.partition("  #")
    kind, groups = kind_of(guard.strip())
    place = guarded_at(body)
    return FailedGuard(
        entry=entry["entry"] if entry else None,
        text=guard.strip(),
        kind=kind,
        source=groups.get("source"),
        old=groups.get("old"),
        new=groups.get("new"),
        file=place[0] if place else None,
        line=place[1] if place else None,
        advice=_advice(kind, groups),
    )


def _advice(kind: GuardKind, groups: dict[str, str | None]) -> str:
    topic = number_kind(groups.get("old") or "") if kind == "value" else kind
    known = {name: value or "it" for name, value in groups.items()}
    return _ADVICE[topic].format_map({"source": "it", "index": "0", **known})


class Recompile(msgspec.Struct, frozen=True):
    """One recompile. `reasons` has one entry for each cache entry that was tried, most recent first; `guards` is the
    same, taken apart. `dynamic`: which inputs changed, so that torch made them dynamic. `start_s` is Unix time."""

    compile_id: str
    epoch: int
    reasons: list[str]
    guards: list[FailedGuard]
    dynamic: list[DynamicChange]
    function: str
    file: str
    line: int | None
    start_s: float | None
    duration_s: float | None
    recovered: bool


class Version(msgspec.Struct, frozen=True):
    """`calls`: how often the span ran it; None without a trace."""

    compile_id: str
    duration_s: float | None
    calls: int | None


class RecompiledFrame(msgspec.Struct, frozen=True):
    """A frame with more than one version, in the order in which they were compiled. `limit`: how many torch keeps
    (`torch._dynamo.config.recompile_limit`), None where it does not tell. `limit_hit`: the compile id that there was no
    room for; from there on calls that no version fits run eager."""

    frame: str
    epoch: int
    function: str
    file: str
    line: int | None
    versions: list[Version]
    limit: int | None
    limit_hit: str | None


def recompiles(data: CompileData) -> list[Recompile]:
    """In the order in which torch reported them."""
    compiled = forward_compilations(data.summary)
    return [_recompile(data, row, compiled.get(key_of(row.key))) for row in data.summary.recompiles]


def recompiles_headline(data: CompileData) -> str:
    """ "3 recompiles cost 2.10 s of compile time." """
    rows = data.of(recompiles)
    spent = duration(1e6 * sum(row.duration_s or 0 for row in rows))
    return f"{plural(len(rows), 'recompile')} cost {spent} of compile time." if rows else "No recompiles."


def recompiled_frames(data: CompileData) -> list[RecompiledFrame]:
    """In the order of their first version."""
    rows = (row for row in data.summary.compilations if row.direction == FORWARD and row.key.compile_id)
    frames = grouped(rows, lambda row: (row.key.epoch, frame_of(row.key.compile_id)))
    all_frames = [_frame(frame, epoch, rows) for (epoch, frame), rows in frames.items()]
    return [row for row in all_frames if len(row.versions) > 1 or row.limit_hit]


def frame_of(compile_id: str) -> str:
    """The frame of a compile id: "0" of "0/1", "!1/2" of "!1/2/0". What was compiled ahead of time has no versions."""
    return compile_id if is_ahead(compile_id) else compile_id.rpartition("/")[0]


def _frame(frame: str, epoch: int, rows: list[Compilation]) -> RecompiledFrame:
    first = rows[0]
    failed = sorted((row for row in rows if row.HasField("failure")), key=lambda row: row.start_ns)
    refused = [row for row in failed if is_limit(row.failure.type, row.failure.reason)]
    limits = [json.loads(row.metrics[RECOMPILE_LIMIT]) for row in rows if RECOMPILE_LIMIT in row.metrics]
    return RecompiledFrame(
        frame=frame,
        epoch=epoch,
        function=first.function,
        file=first.file,
        line=known_number(first, "line"),
        versions=[
            Version(row.key.compile_id, known_seconds(row, "duration_ns"), None)
            for row in rows
            if not row.HasField("failure")
        ],
        limit=limits[-1] if limits else None,
        limit_hit=refused[0].key.compile_id if refused else None,
    )


def _recompile(data: CompileData, row: RecompileMessage, frame: Compilation | None) -> Recompile:
    changes = data.of(symbolic_shapes, row.key.epoch, row.key.compile_id).changes
    return Recompile(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        reasons=list(row.reasons),
        guards=[_with_new_value(failed_guard(reason), changes) for reason in row.reasons],
        dynamic=changes,
        function=frame.function if frame else "",
        file=row.file,
        line=known_number(row, "line"),
        start_s=known_seconds(frame, "start_ns") if frame else None,
        duration_s=known_seconds(frame, "duration_ns") if frame else None,
        recovered=row.recovered,
    )


def _with_new_value(guard: FailedGuard, changes: list[DynamicChange]) -> FailedGuard:
    """A guard on a value names only the old one; what torch made dynamic because of it names both."""
    if guard.new is not None or guard.old is None:
        return guard
    sources = (guard.source, f"L['{guard.source}']")
    came = [change.now for change in changes if change.source in sources and change.before == guard.old]
    return msgspec.structs.replace(guard, new=came[0]) if came else guard
