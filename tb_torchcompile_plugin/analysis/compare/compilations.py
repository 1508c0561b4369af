"""Which compilation of one run is which of another? Ids do not tell where the code in between changed.

A function is known by its name and that of its file: the same program may lie in another folder. A file that only one
side has may be the other's under a new name, so there the function's name is all.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Pair, numbers, pair
from tb_torchcompile_plugin.analysis.compilations.rows import Compilation, compilations
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.reader.compile_data import CompileData


class Compiled(msgspec.Struct, frozen=True):
    """One side of a row."""

    compile_id: str
    epoch: int
    graph_ops: int | None


class CompilationDifference(Compared, frozen=True):
    """The same function's n-th compilation on both sides; None where a side has none. `compile_ids`: "0/0 → 1/0"."""

    function: str
    file: str
    line: int | None
    direction: Direction
    a: Compiled | None
    b: Compiled | None
    compile_ids: str
    duration_s: Pair
    graph_ops: Pair


_Function = tuple[str, str, Direction]
_Key = tuple[_Function, int]


def compare_compilations(a: CompileData | None, b: CompileData | None) -> list[CompilationDifference]:
    """In the order in which they were compiled; [] where a side has no compile data."""
    if a is None or b is None:
        return []
    shared = _files(a) & _files(b)
    ours, theirs = _numbered(a, shared), _numbered(b, shared)
    return [_difference(ours.get(key), theirs.get(key)) for key in dict.fromkeys((*ours, *theirs))]


def _files(data: CompileData) -> set[str]:
    return {_name_of(row.file) for row in data.summary.compilations}


def _name_of(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _numbered(data: CompileData, files: set[str]) -> dict[_Key, Compilation]:
    """By function, its file if it is one of `files`, direction, and how often it had been compiled before."""
    before: Counter[_Function] = Counter()
    numbered: dict[_Key, Compilation] = {}
    for row in data.of(compilations):
        file = _name_of(row.file)
        function = row.function, file if file in files else "", row.direction
        numbered[function, before[function]] = row
        before[function] += 1
    return numbered


def _difference(a: Compilation | None, b: Compilation | None) -> CompilationDifference:
    either = b or a
    assert either is not None
    known = numbers(
        duration_s=pair(a.duration_s if a else None, b.duration_s if b else None),
        graph_ops=pair(a.graph_ops if a else None, b.graph_ops if b else None),
    )
    if not (a and b):
        known["outcome"] = "vanished" if a else "appeared"
    return CompilationDifference(
        function=either.function,
        file=either.file,
        line=either.line,
        direction=either.direction,
        a=_compiled(a),
        b=_compiled(b),
        compile_ids=" → ".join(row.compile_id if row else "–" for row in (a, b)),
        **known,
    )


def _compiled(row: Compilation | None) -> Compiled | None:
    return Compiled(row.compile_id, row.epoch, row.graph_ops) if row else None
