"""Which of the user's lines lead to compile time? A call tree with cumulative and own seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis.compile.cache_lookups import Starts
from tb_torchcompile_plugin.analysis.compile.startup_parts import pieces
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import Key, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file

_Function: TypeAlias = tuple[str, int, str]  # file, line, name


class CompiledLine(msgspec.Struct, frozen=True):
    """A function of the program below which something was compiled; callers first, of siblings the longest first."""

    function: str
    file: str
    line: int  # the line of the call, or the first line of a compiled function
    depth: int
    parent: int  # row of its caller, -1 for none
    cumulative_s: float  # compile time of this function and of all below it
    own_s: float  # compile time of this very function
    percent: Annotated[float, head("Share")]
    compilations: int  # with their recompiles; a backward belongs to its forward
    most_elsewhere_s: float | None  # the most compile time of this function in another process of the logdir
    elsewhere: Annotated[str | None, head("In run", hidden=True)]  # that process


@dataclass
class _Node:
    own_ns: int = 0
    total_ns: int = 0  # with all nodes below
    keys: set[Key] = field(default_factory=set)  # with those of all nodes below
    children: dict[_Function, _Node] = field(default_factory=lambda: defaultdict(_Node))

    def add(self, ns: int, key: Key) -> None:
        self.total_ns += ns
        self.keys.add(key)

    def longest_first(self) -> list[tuple[_Function, _Node]]:
        return sorted(self.children.items(), key=lambda child: -child[1].total_ns)


def compiled_lines(starts: Starts) -> tuple[CompiledLine, ...]:
    """Return the call tree of all compilations with a time of the process in view."""
    root = starts.mine.data.of(_tree)
    elsewhere = starts.of(_longest_elsewhere)
    rows: list[CompiledLine] = []
    pending = [(-1, *child) for child in reversed(root.longest_first())]
    while pending:
        parent, function, node = pending.pop()
        pending += [(len(rows), *child) for child in reversed(node.longest_first())]
        file, line, name = function
        longest = elsewhere.get(function) if node.own_ns else None
        rows.append(
            CompiledLine(
                function=name,
                file=file,
                line=line,
                depth=rows[parent].depth + 1 if parent >= 0 else 0,
                parent=parent,
                cumulative_s=to_seconds(node.total_ns),
                own_s=to_seconds(node.own_ns),
                percent=100 * node.total_ns / root.total_ns if root.total_ns else 0.0,
                compilations=len(node.keys),
                most_elsewhere_s=to_seconds(longest[0]) if longest else None,
                elsewhere=longest[1] if longest else None,
            )
        )
    return tuple(rows)


def _tree(data: CompileData) -> _Node:
    root = _Node()
    paths = {key_of(row.key): _path(row) for row in data.summary.compilations if row.stack}
    for row, own_ns in data.of(own_times):
        key = key_of(row.key)
        node = root
        node.add(own_ns, key)
        for function in paths.get(key) or [_function(row)]:
            node = node.children[function]
            node.add(own_ns, key)
        node.own_ns += own_ns
    return root


def _path(row: Compilation) -> list[_Function]:
    """Return the user's calls that led to a compilation, and the function that was compiled, whoever wrote it."""
    *callers, _ = row.stack
    users = [(frame.file, frame.line, frame.function) for frame in callers if is_users_file(frame.file)]
    return [*users, _function(row)]


def _function(row: Compilation) -> _Function:
    return row.file, row.line, row.function


def own_times(data: CompileData) -> list[tuple[Compilation, int]]:
    """Pair each compilation with its time (ns) without those that ran inside of it on the same thread."""
    timed = (row for row in data.summary.compilations if row.HasField("start_ns") and row.duration_ns)
    pairs: list[tuple[Compilation, int]] = []
    for rows in grouped(timed, lambda row: row.thread).values():
        spans = [(row.start_ns, row.start_ns + row.duration_ns) for row in rows]
        own = [0] * len(rows)
        for piece in pieces(spans, min(start for start, _ in spans), max(end for _, end in spans)):
            if piece.span is not None:
                own[piece.span] += piece.end_ns - piece.start_ns
        pairs += zip(rows, own)
    return pairs


def _longest_elsewhere(starts: Starts) -> dict[_Function, tuple[int, str]]:
    """Map each function to the most time (ns) that it took in another process, and which."""
    longest: dict[_Function, tuple[int, str]] = {}
    for other in starts.others:
        for function, ns in other.data.of(_by_function).items():
            longest[function] = max(longest.get(function, (0, "")), (ns, other.name))
    return longest


def _by_function(data: CompileData) -> Counter[_Function]:
    times = Counter[_Function]()
    for row, own_ns in data.of(own_times):
        times[_function(row)] += own_ns
    return times
