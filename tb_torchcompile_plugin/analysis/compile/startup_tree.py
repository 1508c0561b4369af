"""Compile time as a tree of the user's lines: who called what was compiled, with cumulative and own seconds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis.compile.cache_lookups import Starts
from tb_torchcompile_plugin.analysis.compile.startup_parts import pieces
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file

_Frame: TypeAlias = tuple[str, int, str]  # file, line, function


class CompiledLine(msgspec.Struct, frozen=True):
    """A function of the program below which something was compiled; callers first, of siblings the longest first.

    parent: place of the row of its caller, -1 for none. line: that it was at, or that a compiled function begins at.
    own_s: of compilations of this very function, cumulative_s: with all that are below. compilations: with their
    recompiles; a backward belongs to its forward. most_elsewhere_s: the most that compilations of this function took in
    another process of the logdir, which is `elsewhere`.
    """

    function: str
    file: str
    line: int
    depth: int
    parent: int
    cumulative_s: float
    own_s: float
    percent: Annotated[float, head("Share")]
    compilations: int
    most_elsewhere_s: float | None
    elsewhere: Annotated[str | None, head("In run", hidden=True)]


@dataclass
class _Line:
    """all_ns, ids: with what is below."""

    own_ns: int = 0
    all_ns: int = 0
    ids: set[tuple[int, str]] = field(default_factory=set)
    below: dict[_Frame, _Line] = field(default_factory=lambda: defaultdict(_Line))

    def add(self, ns: int, key: tuple[int, str]) -> None:
        self.all_ns += ns
        self.ids.add(key)

    def callees(self) -> list[tuple[_Frame, _Line]]:
        """The longest first."""
        return sorted(self.below.items(), key=lambda pair: -pair[1].all_ns)


def compiled_lines(starts: Starts) -> tuple[CompiledLine, ...]:
    """Of all compilations of the process in view that have a time."""
    root, elsewhere = starts.mine.data.of(_tree), starts.of(_elsewhere)
    rows: list[CompiledLine] = []
    waiting = [(-1, *pair) for pair in reversed(root.callees())]
    while waiting:
        parent, place, node = waiting.pop()
        waiting += [(len(rows), *pair) for pair in reversed(node.callees())]
        depth = rows[parent].depth + 1 if parent >= 0 else 0
        most = elsewhere.get(place) if node.own_ns else None
        rows.append(_row(place, node, parent, depth, root.all_ns, most))
    return tuple(rows)


def _elsewhere(starts: Starts) -> dict[_Frame, tuple[int, str]]:
    """Function → the most ns that it took in another process, and which."""
    most: dict[_Frame, tuple[int, str]] = {}
    for other in starts.others:
        for place, ns in other.data.of(_by_function).items():
            most[place] = max(most.get(place, (0, "")), (ns, other.name))
    return most


def _by_function(data: CompileData) -> dict[_Frame, int]:
    times = defaultdict[_Frame, int](int)
    for row, own_ns in data.of(own_times):
        times[_frame_of(row)] += own_ns
    return dict(times)


def _tree(data: CompileData) -> _Line:
    root = _Line()
    stacks = {key_of(row.key): _path(row) for row in data.summary.compilations if row.stack}
    for row, own_ns in data.of(own_times):
        node, key = root, key_of(row.key)
        node.add(own_ns, key)
        for place in stacks.get(key) or [_frame_of(row)]:
            node = node.below[place]
            node.add(own_ns, key)
        node.own_ns += own_ns
    return root


def own_times(data: CompileData) -> list[tuple[Compilation, int]]:
    """Each compilation with its ns, less those that ran inside of it on the same thread: they sum to the union of
    each thread."""
    by_thread: dict[int, list[Compilation]] = defaultdict(list)
    for row in data.summary.compilations:
        if row.HasField("start_ns") and row.duration_ns:
            by_thread[row.thread].append(row)
    return [pair for rows in by_thread.values() for pair in _own(rows)]


def _own(rows: list[Compilation]) -> list[tuple[Compilation, int]]:
    spans = [(row.start_ns, row.start_ns + row.duration_ns) for row in rows]
    own = [0] * len(rows)
    for piece in pieces(spans, min(start for start, _ in spans), max(end for _, end in spans)):
        if piece.span is not None:
            own[piece.span] += piece.end_ns - piece.start_ns
    return list(zip(rows, own))


def _frame_of(row: Compilation) -> _Frame:
    return row.file, row.line, row.function


def _path(row: Compilation) -> list[_Frame]:
    """The user's lines on the way, and the function that was compiled, whoever wrote it."""
    *outer, _ = row.stack
    return [
        *((one.file, one.line, one.function) for one in outer if is_users_file(one.file)),
        _frame_of(row),
    ]


def _row(
    place: _Frame, node: _Line, parent: int, depth: int, whole_ns: int, most: tuple[int, str] | None
) -> CompiledLine:
    file, line, function = place
    return CompiledLine(
        function=function,
        file=file,
        line=line,
        depth=depth,
        parent=parent,
        cumulative_s=to_seconds(node.all_ns),
        own_s=to_seconds(node.own_ns),
        percent=100 * node.all_ns / whole_ns if whole_ns else 0.0,
        compilations=len(node.ids),
        most_elsewhere_s=to_seconds(most[0]) if most else None,
        elsewhere=most[1] if most else None,
    )
