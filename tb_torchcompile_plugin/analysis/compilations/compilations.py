"""What was compiled, called from where, and what came of it: a stack trie, a flat list, and what went wrong."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.compilations.rows import (
    Compilation,
    Failure,
    Status,
    compilations,
    in_order,
)
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, Frame, artifacts, owners
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_ahead
from tb_torchcompile_plugin.torch_names.graph_breaks import is_limit
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.records import SUPPRESS_ERRORS

ProblemKind = Literal["limit", "failed", "skipped"]


class TrieNode(msgspec.Struct):
    """A call on the way to a compilation, with the calls made from there and what was compiled there.

    users: whether it is a function of the user's program.
    """

    frame: Frame
    users: bool
    children: list[TrieNode]
    compilations: list[Compilation]


class Problem(msgspec.Struct, frozen=True):
    """What must not be overlooked. `ran_eager`: torch went on without compiling the frame; None where unknown.

    kind: "limit" (compiled too often; from here on the frame runs eager), "failed" (an error while compiling),
    "skipped" (a graph break that torch cannot resume from: all of the frame runs eager). what_happened: to the frame,
    in words; consequence: a sentence.
    """

    kind: ProblemKind
    compile_id: str
    epoch: int
    function: str
    file: str
    line: int | None
    type: str
    reason: str
    ran_eager: bool | None
    what_happened: str
    consequence: str

    @property
    def given_up(self) -> bool:
        """Whether torch runs the frame eager: it cannot resume it, or compiled it too often."""
        return bool(self.ran_eager) and self.kind in ("skipped", "limit")


class OtherArtifacts(msgspec.Struct, frozen=True):
    compile_id: str
    epoch: int
    artifacts: list[Artifact]


class Compilations(msgspec.Struct, frozen=True):
    """`trie` holds each compile id once, at the frame that was compiled: there the way from the root is the `stack` of
    the row.

    frames: how many frames the compilations are of. statuses: how many of each there are, backwards not counted.
    others: texts that belong to none of them, by the id under which torch filed them.
    """

    trie: list[TrieNode]
    frames: int
    statuses: dict[Status, int]
    problems: list[Problem]
    others: list[OtherArtifacts]


def compilations_overview(data: CompileData) -> Compilations:
    """All compilations of a process, in order of time."""
    rows = data.of(compilations)
    return Compilations(
        trie=_trie(rows),
        frames=len(
            {(row.epoch, row.compile_id.rpartition("/")[0]) for row in rows if not is_ahead(row.compile_id)}
        ),
        statuses=dict(Counter(row.status for row in rows if row.direction == "forward")),
        problems=data.of(problems),
        others=_others(data),
    )


def _others(data: CompileData) -> list[OtherArtifacts]:
    have = {key for row in data.summary.compilations for key in owners(row.key.epoch, row.key.compile_id)}
    keys = dict.fromkeys(key_of(row.key) for row in data.summary.artifacts)
    return [
        OtherArtifacts(compile_id, epoch, data.of(artifacts, epoch, compile_id))
        for epoch, compile_id in keys
        if (epoch, compile_id) not in have
    ]


def _trie(rows: list[Compilation]) -> list[TrieNode]:
    """Frames that are equal in all but their callees share a node. Without a stack the frame itself is the root."""
    root = TrieNode(Frame("", 0, "", None), False, [], [])
    for row in rows:
        if row.direction == "backward":
            continue
        node = root
        for frame in row.stack or [Frame(row.file, row.line or 0, row.function, None)]:
            node = _child(node, frame)
        node.compilations.append(msgspec.structs.replace(row, stack=[]))
    return root.children


def _child(node: TrieNode, frame: Frame) -> TrieNode:
    for child in node.children:
        if child.frame == frame:
            return child
    node.children.append(TrieNode(frame, is_users_file(frame.file), [], []))
    return node.children[-1]


def problems(data: CompileData) -> list[Problem]:
    """What went wrong, in order of time."""
    return [
        _problem(row, row.failure, _setting(message))
        for message, row in zip(in_order(data.summary), data.of(compilations), strict=True)
        if row.failure is not None
    ]


def _problem(row: Compilation, failure: Failure, suppress_errors: list[bool]) -> Problem:
    kind, eager = _kind(row), ran_eager(row, failure, suppress_errors)
    return Problem(
        kind=kind,
        compile_id=row.compile_id,
        epoch=row.epoch,
        function=row.function,
        file=failure.file or row.file,
        line=failure.line if failure.file else row.line,
        type=failure.type,
        reason=failure.reason,
        ran_eager=eager,
        what_happened=_HAPPENED[kind].format(failure.type),
        consequence=consequence(row, eager),
    )


def consequence(row: Compilation, eager: bool | None) -> str:
    """What a failure meant for the program. eager: see `ran_eager`."""
    return _CONSEQUENCES.get(_kind(row)) or _SUPPRESSED[eager]


def _kind(row: Compilation) -> ProblemKind:
    return row.status if row.status in ("limit", "failed") else "skipped"


_HAPPENED: dict[ProblemKind, str] = {
    "limit": "hit the recompile limit: from here on it runs eager",
    "failed": "failed to compile: {}",
    "skipped": "cannot be resumed after a graph break: all of it runs eager",
}
_CONSEQUENCES: dict[ProblemKind, str] = {
    "limit": "The versions compiled before are still used where their guards hold.",
    "skipped": "The functions that it calls may still be compiled.",
}
_SUPPRESSED = {
    None: "Whether the error was suppressed is not known.",
    True: "The error was suppressed (suppress_errors): the frame ran eager, and nothing else says so.",
    False: "The error was raised into the program.",
}


def ran_eager(row: Compilation, failure: Failure, suppress_errors: list[bool]) -> bool | None:
    """Whether torch went on without compiling the frame. suppress_errors: that setting, as far as known."""
    if is_limit(failure.type, failure.reason) or _kind(row) == "skipped":
        return True
    return suppress_errors[0] if suppress_errors else None


def _setting(row: CompilationMessage) -> list[bool]:
    """`torch._dynamo.config.suppress_errors` as the metrics have it."""
    value = row.metrics.get(SUPPRESS_ERRORS)
    return [value == "true"] if value in ("true", "false") else []
