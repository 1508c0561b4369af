"""Which sizes are symbolic in a compilation, which were fixed to a value, and what guards them?"""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, ShapeEvent
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.records import CHANGED_SHAPE, SHAPE_GUARDS, SPECIALIZATION, SYMBOLS


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
