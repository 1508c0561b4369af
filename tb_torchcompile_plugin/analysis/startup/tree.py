"""Compile time as a tree of the user's lines: who called what was compiled, with cumulative and own seconds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis.startup.pieces import pieces
from tb_torchcompile_plugin.compile_log.fields import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.units import seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file

Place: TypeAlias = tuple[str, int, str]  # file, line, function


class CompiledLine(msgspec.Struct, frozen=True):
    """A line of the program below which something was compiled; parents first, of siblings the longest first.

    name: indented by its depth. own_s: of compilations of this very function, cumulative_s: with all that are below.
    compilations: with their recompiles; a backward belongs to its forward.
    """

    name: str
    file: str
    line: int
    function: str
    depth: int
    own_s: float
    cumulative_s: float
    percent: float
    compilations: int


@dataclass
class _Node:
    own_ns: int = 0
    ids: set[tuple[int, str]] = field(default_factory=set)
    below: dict[Place, _Node] = field(default_factory=lambda: defaultdict(_Node))

    @property
    def all_ns(self) -> int:
        return self.own_ns + sum(node.all_ns for node in self.below.values())


def compiled_lines(data: CompileData) -> tuple[CompiledLine, ...]:
    """Of all compilations of the process that have a time."""
    root = _Node()
    stacks = {key_of(row.key): _path(row) for row in data.summary.compilations if row.stack}
    for row, own_ns in data.of(own_times):
        node = root
        for place in stacks.get(key_of(row.key)) or [_frame(row)]:
            node = node.below[place]
        node.own_ns += own_ns
        node.ids.add(key_of(row.key))
    rows: list[CompiledLine] = []
    _add(rows, root, 0, root.all_ns)
    return tuple(rows)


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


def _frame(row: Compilation) -> Place:
    return row.file, row.line, row.function


def _path(row: Compilation) -> list[Place]:
    """The user's lines on the way, and the function that was compiled, whoever wrote it."""
    *outer, _ = row.stack
    return [
        *((one.file, one.line, one.function) for one in outer if is_users_file(one.file)),
        _frame(row),
    ]


def _add(rows: list[CompiledLine], node: _Node, depth: int, whole_ns: int) -> None:
    for (file, line, function), child in sorted(node.below.items(), key=lambda pair: -pair[1].all_ns):
        rows.append(
            CompiledLine(
                name="  " * depth + function,
                file=file,
                line=line,
                function=function,
                depth=depth,
                own_s=seconds(child.own_ns),
                cumulative_s=seconds(child.all_ns),
                percent=100 * child.all_ns / whole_ns if whole_ns else 0.0,
                compilations=len(_ids(child)),
            )
        )
        _add(rows, child, depth + 1, whole_ns)


def _ids(node: _Node) -> set[tuple[int, str]]:
    return node.ids.union(*map(_ids, node.below.values()))
