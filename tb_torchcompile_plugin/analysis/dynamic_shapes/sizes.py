"""Which sizes came, by function and input: those that are dynamic in a graph, and those that torch compiled for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.cuda_graphs.recordings import graph_functions
from tb_torchcompile_plugin.analysis.dynamic_shapes.rows import PaddedSize, SizeServed, SizeThatCame
from tb_torchcompile_plugin.analysis.dynamic_shapes.symbols import (
    dynamic_compilations,
    free_symbols,
    size_of,
    symbol_sizes,
)
from tb_torchcompile_plugin.analysis.recompiles.moments import calls_by_id
from tb_torchcompile_plugin.analysis.recompiles.recompiles import recompiles
from tb_torchcompile_plugin.analysis.recompiles.symbolic_shapes import symbolic_shapes
from tb_torchcompile_plugin.analysis.words import function_at
from tb_torchcompile_plugin.compile_log.record import Key, forward_compilations, known_number, known_seconds
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.graph_breaks import is_limit, kind_of

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
