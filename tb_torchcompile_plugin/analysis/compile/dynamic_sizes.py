"""Which sizes are dynamic, which occurred, and what would keep torch from compiling for each of them?

torch writes no symbol's value, but the profiler recorded the shapes of operators. Where one size of a graph is dynamic,
a dimension that changes from call to call is that size or grows with it, and the smallest that does is the size.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import graph_functions
from tb_torchcompile_plugin.analysis.compile.recompiles import (
    SIZE,
    SymbolicShape,
    changed_inputs,
    dynamic_compilations,
    recompiles,
    symbolic_shapes,
    users_line,
    versions_of,
)
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    duration,
    function_at,
    joined_names,
    listed_numbers,
    plural,
)
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAMES
from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import calls_by_id
from tb_torchcompile_plugin.profile.gpu.captures import graph_runs
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.graph_breaks import guard_kind, is_limit
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS

SizeHandling = Literal["dynamic", "specialized", "eager"]
_Dimension: TypeAlias = tuple[int, int, int]  # number of the operator in its call, argument, dimension

_SIZES_END = 1 << 62  # larger numbers are no sizes: torch's have 64 bits
_MAX_DIGITS = 18  # of a number of 64 bits
_MAX_OPERATORS = 24  # operators of one call that are searched for the size
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_SOURCE = re.compile(r"L\['(?P<name>\w+)'\]\.size\(\)\[(?P<index>\d+)\]$")
_UNKNOWN = "Whether sizes are dynamic is unknown: there is no compile data for this process."


class DynamicGuard(msgspec.Struct, frozen=True):
    """An expression over symbols that must hold."""

    expression: str
    compile_ids: list[str]
    recompiles: int  # how often one of this form, with any number, failed and was compiled for again
    file: str  # the code that made torch ask
    line: int | None


class ObservedSize(msgspec.Struct, frozen=True):
    """One value of one size of one function."""

    function: str
    source: str
    size: int
    # By a graph in which the size is dynamic, by one for it alone, or eager at the recompile limit.
    handling: SizeHandling
    compile_id: str
    calls: int | None  # in this span; None where unknown
    compile_s: float | None  # of the graph for this size alone


class DynamicShapeReport(msgspec.Struct, frozen=True):
    """Which sizes are dynamic, and what was compiled for each."""

    sentences: tuple[str, ...]  # the first sentence is the answer
    sizes: tuple[ObservedSize, ...]
    symbols: tuple[SymbolicShape, ...]
    guards: tuple[DynamicGuard, ...]
    code: str | None  # to paste where marking helps


class Advice(NamedTuple):
    """What to do about sizes that torch compiles for one by one."""

    sentence: str
    code: str | None  # to paste, None where there is none


def free_symbols(data: CompileData, key: record.Key) -> list[SymbolicShape]:
    """Return the sizes that stay dynamic."""
    return [
        row
        for row in data.of(symbolic_shapes, *key).symbols
        if row.fixed is None and (row.origin == "data" or SIZE in (row.source or SIZE))
    ]


def changing_sizes(data: CompileData) -> dict[str, list[str]]:
    """Return the symbols of sizes that stay dynamic, for the compile ids that have some."""
    changing: dict[str, set[str]] = {}
    for key in data.of(dynamic_compilations):
        changing.setdefault(key[1], set()).update(row.symbol for row in data.of(free_symbols, key))
    return {compile_id: sorted(symbols) for compile_id, symbols in changing.items() if symbols}


def dynamic_symbols(data: CompileData) -> list[SymbolicShape]:
    """Return all symbols in the order of their compilations."""
    return [row for key in data.of(dynamic_compilations) for row in data.of(symbolic_shapes, *key).symbols]


def symbol_sizes(profile: Profile, key: record.Key) -> Counter[int] | None:
    """Count how often each size of the only free symbol of a compilation occurred.

    None for several symbols, and where the trace's shapes do not show it.
    """
    assert profile.data is not None
    free = profile.data.of(free_symbols, key)
    if len(free) != 1:
        return None
    changes = profile.data.of(changed_inputs, *versions_of(profile.data, key))
    texts = [free[0].value, *(text for change in changes for text in (change.before, change.now))]
    known_sizes = {size for text in texts if (size := _size_of(text)) is not None}
    runs = profile.of(graph_runs)
    is_call = (runs.compile_id == profile.of(Ownership).code(key[1])) & ~runs.backward
    calls = [_dimensions(profile.trace, row) for row in runs.row[is_call].tolist()]
    if not calls or not all(calls):
        return None
    common = set.intersection(*(set(call) for call in calls))
    columns = [[call[dimension] for call in calls] for dimension in common]
    changing = [sizes for sizes in columns if len(set(sizes)) > 1]
    candidates = changing or [sizes for sizes in columns if sizes[0] in known_sizes]
    if not candidates:
        return None
    return Counter(min(candidates, key=lambda sizes: (-len(known_sizes & set(sizes)), sum(sizes))))


def _size_of(text: str | None) -> int | None:
    """Parse a number that torch wrote; None where it wrote an expression, or no size of a tensor."""
    return int(text) if text and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _dimensions(trace: Trace, call: int) -> dict[_Dimension, int]:
    """Return every dimension of every tensor that the first operators of a call take."""
    track_end = int(trace.track_bounds[trace.track[call] + 1])
    inside = np.searchsorted(trace.ts[call + 1 : track_end], trace.ts[call] + trace.dur[call])
    rows = np.arange(call + 1, call + 1 + int(inside))
    cats = [code for code, name in enumerate(trace.cats) if name in CALL_CATS]
    texts = trace.texts["input_dims"]
    codes = codes_of(trace, "input_dims", rows[np.isin(trace.cat[rows], cats)])
    with_shapes = [texts[code] for code in codes.tolist() if code >= 0 and texts[code].strip("[], ")]
    return {
        (operator, argument, dimension): size
        for operator, text in enumerate(with_shapes[:_MAX_OPERATORS])
        for argument, dimension, size in _sizes(text)
    }


def _sizes(dims: str) -> Iterator[tuple[int, int, int]]:
    try:
        shapes = json.loads(dims)
    except (ValueError, RecursionError):
        return
    for argument, shape in enumerate(shapes if isinstance(shapes, list) else ()):
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape):
            for dimension, size in enumerate(shape):
                if 1 < size < _SIZES_END:
                    yield argument, dimension, size


def dynamic_guards(data: CompileData) -> list[DynamicGuard]:
    """Return the expressions over symbols, those that differ in a number together; most recompiles first."""
    guards = [
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
    groups = grouped(guards, lambda row: (_NUMBER.sub("#", row[0].expression), users_line(row[0].stack)))
    rows = []
    for (_, (file, line)), group in groups.items():
        expressions = list(dict.fromkeys(guard.expression for guard, _ in group))
        first, last = expressions[0], expressions[-1]
        at_line = [(end, times) for (end, number), times in failed.items() if line and number == line]
        rows.append(
            DynamicGuard(
                expression=first if len(expressions) == 1 else f"{first} … {last}",
                compile_ids=list(dict.fromkeys(key[1] for _, key in group)),
                recompiles=sum(times for end, times in at_line if file.endswith(end)),
                file=file,
                line=line,
            )
        )
    return sorted(rows, key=lambda row: -row.recompiles)


def occurring_sizes(profile: Profile) -> list[ObservedSize]:
    """Return the sizes by function and input, smallest first; needs compile data."""
    data = profile.data
    assert data is not None
    compiled = record.forward_compilations(data.summary)
    rows: list[ObservedSize] = []
    for key in data.of(dynamic_compilations):
        if len(free := data.of(free_symbols, key)) == 1:
            # Inside of a replay nothing has a shape: torch records a CUDA graph for each size.
            recorded = [
                recording.sizes[0]
                for row in data.of(graph_functions)
                if row.key.compile_id == key[1]
                for recording in row.recordings
                if len(recording.sizes) == 1
            ]
            sizes = profile.of(symbol_sizes, key) or dict.fromkeys(recorded)
            function, source = _function_name(compiled.get(key)), free[0].source or free[0].symbol
            rows += [
                ObservedSize(function, source, size, "dynamic", key[1], calls, None)
                for size, calls in sizes.items()
            ]
    rows += _specialised(profile, data)
    return sorted(rows, key=lambda row: (row.function, row.source, row.size))


def _function_name(row: Compilation | None) -> str:
    return "" if row is None else function_at(row.function, row.file, record.optional_number(row, "line"))


def _specialised(profile: Profile, data: CompileData) -> Iterator[ObservedSize]:
    """Return the sizes that a guard compared with: each was compiled for alone."""
    compiled, calls = record.forward_compilations(data.summary), profile.of(calls_by_id)
    for source, size, key in _compared_sizes(data):
        row = compiled.get(key)
        if row is None or any(symbol.source == source for symbol in data.of(free_symbols, key)):
            continue
        function, compile_s = _function_name(row), record.optional_seconds(row, "duration_ns")
        if row.HasField("failure") and is_limit(row.failure.type, row.failure.reason):
            yield ObservedSize(function, source, size, "eager", key[1], None, compile_s)
        else:
            yield ObservedSize(function, source, size, "specialized", key[1], calls[key[1]], compile_s)


def _compared_sizes(data: CompileData) -> list[tuple[str, int, record.Key]]:
    """Return the sizes that each version of a frame expected, and that the next one was compiled for; each once."""
    rows: dict[tuple[str, int, record.Key], None] = {}
    for row in data.of(recompiles):
        for guard in row.guards:
            kind, parts = guard_kind(guard.text)
            if kind != "tensor_size" or guard.entry is None:
                continue
            source = f"L['{parts['source']}'].size()[{parts['index']}]"
            for text, compile_id in ((parts["old"], guard.entry), (parts["new"], row.compile_id)):
                if (size := _size_of(text)) is not None:
                    rows[source, size, (row.epoch, compile_id)] = None
    return list(rows)


def dynamic_shapes(profile: Profile) -> DynamicShapeReport:
    """Return the dynamic sizes of one span, with what its process compiled."""
    if profile.data is None:
        return DynamicShapeReport((_UNKNOWN,), (), (), (), None)
    sizes, symbols = profile.of(occurring_sizes), profile.data.of(dynamic_symbols)
    guards = profile.data.of(dynamic_guards)
    answer = _headline(sizes, symbols, guards)
    advice = profile.of(size_advice)
    return DynamicShapeReport(
        sentences=(answer, f"{advice.sentence}.") if advice else (answer,),
        sizes=tuple(sizes),
        symbols=tuple(symbols),
        guards=tuple(guards),
        code=advice.code if advice else None,
    )


def _headline(sizes: list[ObservedSize], symbols: list[SymbolicShape], guards: list[DynamicGuard]) -> str:
    """Answer in a sentence: what is compiled for each size comes first."""
    if failed := next((row for row in guards if row.recompiles), None):
        line = at_line(failed.file, failed.line)
        return (
            f"A dynamic size is specialized again{f' at {line}' if line else ''}: the guard {failed.expression} "
            f"caused {plural(failed.recompiles, 'recompile')}."
        )
    static = [row for row in sizes if row.handling != "dynamic"]
    if len(static) > 2:
        compiled = sorted({row.size for row in static if row.handling == "specialized"})
        eager = next((row for row in static if row.handling == "eager"), None)
        limit = f". From {eager.source} = {eager.size:,} on, new sizes run eagerly" if eager else ""
        subject = (
            f"{static[0].function} was compiled for {plural(len(compiled), 'size')} of {static[0].source}"
        )
        return f"{subject} ({listed_numbers(compiled)}){limit}."
    if names := list(dict.fromkeys(row.source or row.symbol for row in symbols if row.fixed is None)):
        distinct = sorted({row.size for row in sizes if row.handling == "dynamic"})
        occurred = (
            f". {plural(len(distinct), 'size')} occurred ({listed_numbers(distinct)})" if distinct else ""
        )
        return f"{joined_names(names[:MAX_NAMES])} {'is' if len(names) == 1 else 'are'} dynamic{occurred}."
    if fixed := len({row.symbol for row in symbols}):
        return f"No size stayed dynamic: {plural(fixed, 'symbol')} of the compiled graphs were fixed to one value."
    return "No size is dynamic: each graph is compiled for the sizes of its first call."


def size_advice(profile: Profile) -> Advice | None:
    """Return how to avoid a compilation for each size; None where there is none."""
    data = profile.data
    if data is None or not (data.summary.recompiles or data.of(dynamic_compilations)):
        return None
    if failed := next((row for row in data.of(dynamic_guards) if row.recompiles), None):
        line = at_line(failed.file, failed.line)
        return Advice(
            f"Do not use the size in Python{f' at {line}' if line else ''}: compute with tensors, or outside the "
            "compiled function",
            None,
        )
    static = [row for row in profile.of(occurring_sizes) if row.handling != "dynamic"]
    if not static:
        return None
    # "L['x'].size()[0]"
    source = _SOURCE.match(static[0].source)
    code = f"torch._dynamo.mark_dynamic({source['name']}, {source['index']})" if source else None
    sentence = "Mark the size dynamic before the first call"
    became_dynamic = any(row.origin == "changed" for row in data.of(dynamic_symbols))
    if became_dynamic and len({row.size for row in static}) == 1:
        size, compile_s = static[0].size, static[0].compile_s
        sentence = "Mark the size dynamic before the first call: one graph then works for all sizes"
        if compile_s is not None:
            sentence += f". The graph for size {size:,} alone took {duration(1e6 * compile_s)}"
    return Advice(sentence, code)
