"""The symbols of each compilation: where each became dynamic, what guards it, and whether it was fixed after all."""

from __future__ import annotations

import re
from collections import Counter

from tb_torchcompile_plugin.analysis.dynamic_shapes.call_sizes import call_sizes
from tb_torchcompile_plugin.analysis.dynamic_shapes.rows import DynamicGuard, DynamicSymbol, SymbolOrigin
from tb_torchcompile_plugin.analysis.recompiles.recompiles import frame_of, recompiles
from tb_torchcompile_plugin.analysis.recompiles.symbolic_shapes import (
    SymbolicShape,
    SymbolicShapes,
    symbolic_shapes,
)
from tb_torchcompile_plugin.compile_log.record import Key, forward_compilations, key_of
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.records import SYMBOLS

_DIGITS = 18  # of a number of 64 bits
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_SIZE = ".size()["


def dynamic_symbols(profile: Profile) -> list[DynamicSymbol]:
    """In the order of their compilations; [] without compile data."""
    data = profile.data
    if data is None:
        return []
    return [
        _symbol(profile, data, key, row)
        for key in data.of(dynamic_compilations)
        for row in data.of(symbolic_shapes, *key).symbols
    ]


def dynamic_compilations(data: CompileData) -> list[Key]:
    """Those with symbols."""
    made = (key_of(row.key) for row in data.summary.shape_events if row.kind in SYMBOLS)
    return list(dict.fromkeys(made))


def free_symbols(shapes: SymbolicShapes) -> list[SymbolicShape]:
    """Sizes that stay dynamic."""
    fixed = {row.symbol for row in shapes.specializations}
    return [row for row in shapes.symbols if row.symbol not in fixed and _is_size(row)]


def changing_sizes(data: CompileData) -> dict[str, list[str]]:
    """By compile id the symbols of sizes that stay dynamic, where there are any."""
    changing: dict[str, list[str]] = {}
    for key in data.of(dynamic_compilations):
        symbols = [row.symbol for row in free_symbols(data.of(symbolic_shapes, *key))]
        changing.setdefault(key[1], []).extend(symbols)
    return {compile_id: sorted(set(symbols)) for compile_id, symbols in changing.items() if symbols}


def _is_size(row: SymbolicShape) -> bool:
    return not row.backed or _SIZE in (row.source or _SIZE)


def symbol_sizes(profile: Profile, key: Key) -> Counter[int] | None:
    """How often each size came that the one free symbol of this compilation had; None for several, and where the trace
    does not tell."""
    assert profile.data is not None
    free = free_symbols(profile.data.of(symbolic_shapes, *key))
    if len(free) != 1:
        return None
    changes = [
        change
        for other in _versions(profile.data, key)
        for change in profile.data.of(symbolic_shapes, *other).changes
    ]
    texts = [free[0].value, *(text for change in changes for text in (change.before, change.now))]
    known = frozenset(size for text in texts if (size := size_of(text)) is not None)
    return call_sizes(profile, key[1], known)


def size_of(text: str | None) -> int | None:
    """The number that torch wrote; None where it wrote an expression, or no size of a tensor."""
    return int(text) if text and text.isdecimal() and len(text) <= _DIGITS else None


def _versions(data: CompileData, key: Key) -> list[Key]:
    """The compilations of the same frame, in their order."""
    known = dict.fromkeys([*forward_compilations(data.summary), *data.of(dynamic_compilations)])
    return [one for one in known if one[0] == key[0] and frame_of(one[1]) == frame_of(key[1])]


def _symbol(profile: Profile, data: CompileData, key: Key, row: SymbolicShape) -> DynamicSymbol:
    shapes = data.of(symbolic_shapes, *key)
    fixed = next((one for one in shapes.specializations if one.symbol == row.symbol), None)
    came = profile.of(symbol_sizes, key) if fixed is None and _is_size(row) else None
    place = users_place(row.stack)
    return DynamicSymbol(
        compile_id=key[1],
        symbol=row.symbol,
        source=row.source or "",
        origin=_origin(data, key, row),
        value=row.value,
        range=row.range,
        fixed=fixed.value if fixed else None,
        reason=fixed.reason if fixed else None,
        guards=sum(bool(re.search(rf"\b{re.escape(row.symbol)}\b", one.expression)) for one in shapes.guards),
        sizes=len(came) if came else None,
        calls=sum(came.values()) if came else None,
        file=place[0],
        line=place[1],
    )


def users_place(stack: list[Frame]) -> tuple[str, int | None]:
    """The innermost line of the program's own; of what torch alone does the innermost."""
    mine = [frame for frame in stack if is_users_file(frame.file)] or stack
    return (mine[-1].file, mine[-1].line) if mine else ("", None)


def _origin(data: CompileData, key: Key, row: SymbolicShape) -> SymbolOrigin:
    if not row.backed:
        return "data"
    changed = (
        _tensor(change.source or "")
        for other in _versions(data, key)
        for change in data.of(symbolic_shapes, *other).changes
    )
    first = _versions(data, key)[0] == key
    return "changed" if not first and _tensor(row.source or "") in changed else "asked"


def _tensor(source: str) -> str:
    """The tensor of a source: "L['x']" of "L['x'].size()[0]"."""
    return source.partition(_SIZE)[0]


def dynamic_guards(data: CompileData) -> list[DynamicGuard]:
    """Expressions over symbols, those that differ in a number together; most recompiles first."""
    rows = [
        (guard, key)
        for key in data.of(dynamic_compilations)
        for guard in data.of(symbolic_shapes, *key).guards
    ]
    failed = Counter(
        (guard.file or "", guard.line)
        for row in data.of(recompiles)
        for guard in row.guards[:1]
        if guard.kind == "shape"
    )
    made = []
    for same in grouped(
        rows, lambda row: (_NUMBER.sub("#", row[0].expression), users_place(row[0].stack))
    ).values():
        expressions = list(dict.fromkeys(guard.expression for guard, _ in same))
        file, line = users_place(same[0][0].stack)
        again = sum(
            times for (name, at), times in failed.items() if line and at == line and file.endswith(name)
        )
        made.append(
            DynamicGuard(
                _shortened(expressions), list(dict.fromkeys(key[1] for _, key in same)), again, file, line
            )
        )
    return sorted(made, key=lambda row: -row.recompiles)


def _shortened(expressions: list[str]) -> str:
    return expressions[0] if len(expressions) == 1 else f"{expressions[0]} … {expressions[-1]}"
