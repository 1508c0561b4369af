"""Which sizes came, by function and input: those that are dynamic in a graph, and those that torch compiled for."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import graph_functions
from tb_torchcompile_plugin.analysis.compile.recompile_moments import calls_by_id
from tb_torchcompile_plugin.analysis.compile.recompiles import (
    SymbolicShape,
    SymbolicShapes,
    frame_of,
    recompiles,
    symbolic_shapes,
)
from tb_torchcompile_plugin.analysis.formatting import function_at
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import (
    Key,
    forward_compilations,
    key_of,
    known_number,
    known_seconds,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.graph_breaks import is_limit, kind_of
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.records import SYMBOLS
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS

# The rows of the panel *Dynamic shapes*.


SymbolOrigin = Literal["asked", "changed", "data"]
SizeServed = Literal["dynamic", "specialised", "eager"]


class DynamicSymbol(msgspec.Struct, frozen=True):
    """A size that is not fixed in a compiled graph. source: the input's expression. origin: `asked` by mark_dynamic or
    dynamic=True, `changed` between two calls, so that torch made it dynamic, or `data` decides it. value: in the call
    that was compiled. file, line: where the program first used it. guards: expressions over it that must hold.
    fixed: the value it was fixed to after all, reason: why. sizes: how many came in this span, calls: in how many
    calls; None where the trace does not tell."""

    compile_id: str
    symbol: str
    source: str
    origin: SymbolOrigin
    value: str | None
    range: str | None
    fixed: str | None
    reason: str | None
    guards: int
    sizes: int | None
    calls: int | None
    file: str
    line: int | None


class DynamicGuard(msgspec.Struct, frozen=True):
    """An expression over symbols that must hold. recompiles: how often one of this form, whatever its number, failed
    and was compiled for again. file, line: the code that made torch ask."""

    expression: str
    compile_ids: list[str]
    recompiles: int
    file: str
    line: int | None


class SizeThatCame(msgspec.Struct, frozen=True):
    """One value of one size of one function. served: by a graph in which the size is `dynamic`, by one compiled for it
    (`specialised`), or `eager` behind the recompile limit. calls: of this span, None where the trace does not tell.
    compile_s: of the graph that was compiled for it alone."""

    function: str
    source: str
    size: int
    served: SizeServed
    compile_id: str
    calls: int | None
    compile_s: float | None


class PaddedSize(msgspec.Struct, frozen=True):
    """If a size were padded to multiples of `multiple`: how many sizes would be left, and how much more data, on
    average over the calls (over the sizes where calls are not known)."""

    function: str
    source: str
    multiple: int
    sizes: int
    left: Annotated[int, head("Sizes left")]
    more_percent: Annotated[float, head("More data")]


class DynamicShapeReport(msgspec.Struct, frozen=True):
    """says: the first sentence is the answer. code: what to paste where marking helps."""

    says: tuple[str, ...]
    sizes: tuple[SizeThatCame, ...]
    symbols: tuple[DynamicSymbol, ...]
    guards: tuple[DynamicGuard, ...]
    padded: tuple[PaddedSize, ...]
    code: str | None


# Which value had a symbol in each call of a compiled graph? Read off the shapes that the profiler recorded.
# torch writes no symbol's value. Inside each call the operators have shapes; where one size alone is
# dynamic, a dimension that changes from call to call is that size or grows with it, and the smallest that
# does is the size.


_SIZES_END = 1 << 62  # torch's are of 64 bits
_MOST_OPERATORS = 24  # of one call: a size that no one of the first takes is looked for no further
Place = tuple[int, int, int]  # which operator of the call, which argument, which dimension


def call_sizes(profile: Profile, compile_id: str, known: frozenset[int]) -> Counter[int] | None:
    """How often each size came in the forward calls of one compilation whose only dynamic size this is; None where the
    shapes do not tell. known: sizes that are known to have come."""
    runs = profile.of(graph_runs)
    mine = (runs.compile_id == profile.of(Ownership).code(compile_id)) & ~runs.backward
    calls = [_dimensions(profile.trace, row) for row in runs.row[mine].tolist()]
    if not calls or not all(calls):
        return None
    common = set.intersection(*(set(call) for call in calls))
    columns = {place: [call[place] for call in calls] for place in common}
    moving = {place: values for place, values in columns.items() if len(set(values)) > 1}
    still = {place: values for place, values in columns.items() if values[0] in known}
    candidates = moving or still
    if not candidates:
        return None
    best = min(candidates.values(), key=lambda values: (-len(known & set(values)), sum(values)))
    return Counter(best)


def _dimensions(trace: Trace, call: int) -> dict[Place, int]:
    """Every dimension of every tensor that the first operators of a call take."""
    rows = _inside(trace, call)
    codes = codes_of(trace, "input_dims", rows)
    texts = trace.texts["input_dims"]
    shaped = (code for code in codes.tolist() if code >= 0 and texts[code].strip("[], "))
    return {
        (number, *place): size
        for number, code in zip(range(_MOST_OPERATORS), shaped)
        for place, size in _sizes(texts[code])
    }


def _inside(trace: Trace, call: int) -> Int64s:
    """The calls of operators inside of a slice, in order of time."""
    low, high = call + 1, int(np.searchsorted(_track_ts(trace, call), trace.ts[call] + trace.dur[call]))
    first = int(trace.track_bounds[trace.track[call]])
    rows = np.arange(low, first + high)
    cats = [code for code, name in enumerate(trace.cats) if name in CALL_CATS]
    return rows[np.isin(trace.cat[rows], cats)]


def _track_ts(trace: Trace, call: int) -> Int64s:
    track = int(trace.track[call])
    return trace.ts[int(trace.track_bounds[track]) : int(trace.track_bounds[track + 1])]


def _sizes(dims: str) -> Iterator[tuple[tuple[int, int], int]]:
    try:
        shapes = json.loads(dims)
    except (ValueError, RecursionError):
        return
    for argument, shape in enumerate(shapes if isinstance(shapes, list) else ()):
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape):
            known = ((dimension, size) for dimension, size in enumerate(shape) if 1 < size < _SIZES_END)
            yield from (((argument, dimension), size) for dimension, size in known)


# The symbols of each compilation: where each became dynamic, what guards it, and whether it was fixed after
# all.


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


MULTIPLES = (8, 16, 32, 64, 128, 256, 512)
_FEWEST = 3  # sizes, from which on padding is worth a look


class _Static(NamedTuple):
    """A size that a graph was compiled for, and of which compilation."""

    source: str
    size: int
    key: Key


def sizes_that_came(profile: Profile) -> list[SizeThatCame]:
    """By function and input, smallest first; [] without compile data."""
    data = profile.data
    if data is None:
        return []
    rows = [*_dynamic(profile, data), *_specialised(profile, data)]
    return sorted(rows, key=lambda row: (row.function, row.source, row.size))


def function_name(row: Compilation | None) -> str:
    """ "forward (model.py:12)" """
    return "" if row is None else function_at(row.function, row.file, known_number(row, "line"))


def _dynamic(profile: Profile, data: CompileData) -> Iterator[SizeThatCame]:
    for key in data.of(dynamic_compilations):
        free = free_symbols(data.of(symbolic_shapes, *key))
        if len(free) != 1:
            continue
        came = profile.of(symbol_sizes, key) or dict.fromkeys(_recorded(data, key))
        name = function_name(forward_compilations(data.summary).get(key))
        for size, calls in came.items():
            yield SizeThatCame(name, free[0].source or free[0].symbol, size, "dynamic", key[1], calls, None)


def _recorded(data: CompileData, key: Key) -> Iterator[int]:
    """The sizes for which torch recorded a CUDA graph of this compilation: inside of a replay nothing has a shape."""
    for row in data.of(graph_functions):
        if row.key.compile_id == key[1]:
            yield from (one.sizes[0] for one in row.recordings if len(one.sizes) == 1)


def _specialised(profile: Profile, data: CompileData) -> Iterator[SizeThatCame]:
    """Sizes that a guard compared with: each was compiled for alone."""
    made, calls = forward_compilations(data.summary), profile.of(calls_by_id)
    dynamic = {
        (key, row.source)
        for key in data.of(dynamic_compilations)
        for row in free_symbols(data.of(symbolic_shapes, *key))
    }
    for source, size, key in _compared(data):
        row = made.get(key)
        if row is None or (key, source) in dynamic:
            continue
        refused = row.HasField("failure") and is_limit(row.failure.type, row.failure.reason)
        served: SizeServed = "eager" if refused else "specialised"
        ran = None if refused else calls[key[1]]
        yield SizeThatCame(
            function_name(row), source, size, served, key[1], ran, known_seconds(row, "duration_ns")
        )


def _compared(data: CompileData) -> Iterator[_Static]:
    """The sizes that each version of a frame expected, and that the next one was compiled for; each once."""
    seen: set[_Static] = set()
    for row in data.of(recompiles):
        for guard in row.guards:
            kind, parts = kind_of(guard.text)
            if kind != "tensor_size" or guard.entry is None:
                continue
            source = f"L['{parts['source']}'].size()[{parts['index']}]"
            pairs = ((parts["old"], guard.entry), (parts["new"], row.compile_id))
            for text, compile_id in pairs:
                size = size_of(text)
                one = _Static(source, size or 0, (row.epoch, compile_id))
                if size is not None and one not in seen:
                    seen.add(one)
                    yield one


def padded_sizes(profile: Profile) -> list[PaddedSize]:
    """What padding to multiples would leave of the sizes that came, for sizes that differ often."""
    rows = profile.of(sizes_that_came)
    return [
        padded
        for (function, source), mine in grouped(rows, lambda row: (row.function, row.source)).items()
        for padded in _padded(function, source, weighted(mine))
    ]


def weighted(rows: list[SizeThatCame]) -> Mapping[int, int]:
    """Size → in how many calls; 1 for each where calls are not known."""
    known = all(row.calls is not None for row in rows) and any(row.calls for row in rows)
    counts = Counter[int]()
    for row in rows:
        counts[row.size] += (row.calls or 0) if known else 1
    return counts


def _padded(function: str, source: str, sizes: Mapping[int, int]) -> Iterator[PaddedSize]:
    if len(sizes) < _FEWEST:
        return
    came = sum(size * calls for size, calls in sizes.items())
    for multiple in MULTIPLES:
        left = {-(-size // multiple) * multiple for size in sizes}
        now = sum(-(-size // multiple) * multiple * calls for size, calls in sizes.items())
        if came and len(left) < len(sizes):
            yield PaddedSize(function, source, multiple, len(sizes), len(left), 100 * (now / came - 1))
        if len(left) == 1:
            return
