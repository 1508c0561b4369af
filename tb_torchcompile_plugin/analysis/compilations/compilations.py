"""What was compiled, called from where, and what came of it: a stack trie, a flat list, and what went wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.compile_time.caches import CacheResult
from tb_torchcompile_plugin.analysis.compile_time.compile_time import Compilation, Failure, compilations
from tb_torchcompile_plugin.compile_log.directions import Direction
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, artifacts, owners
from tb_torchcompile_plugin.generated_code.frame import Frame
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.failures import UNSUPPORTED, is_limit
from tb_torchcompile_plugin.torch_names.metrics import SUPPRESS_ERRORS
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file

Status = Literal["ok", "failed", "limit", "empty", "break", "recovered", "unfinished"]
ProblemKind = Literal["limit", "failed", "skipped"]
Key = tuple[int, str]


class CompilationRow(msgspec.Struct, frozen=True):
    """One compilation with what else is known of its id. `breaks`: distinct graph breaks."""

    compile_id: str
    epoch: int
    direction: Direction
    function: str
    file: str
    line: int | None
    status: Status
    attempts: int | None
    start_s: float | None
    duration_s: float | None
    graph_ops: int | None
    graph_nodes: int | None
    graph_inputs: int | None
    guards: int | None
    cache: list[CacheResult]
    breaks: int
    recompile_reasons: list[str]
    failure: Failure | None
    recovered: bool


class TrieCompilation(msgspec.Struct, frozen=True):
    compile_id: str
    epoch: int
    function: str
    status: Status
    duration_s: float | None


class TrieNode(msgspec.Struct):
    """A call on the way to a compilation, with the calls made from there and what was compiled there.

    users: whether it is a function of the user's program.
    """

    frame: Frame
    users: bool
    children: list[TrieNode]
    compilations: list[TrieCompilation]


class Problem(msgspec.Struct, frozen=True):
    """What must not be overlooked. `ran_eager`: torch went on without compiling the frame; None where unknown.

    kind: "limit" (compiled too often; from here on the frame runs eager), "failed" (an error while compiling),
    "skipped" (a graph break that torch cannot resume from: all of the frame runs eager).
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


class OtherArtifacts(msgspec.Struct, frozen=True):
    compile_id: str
    epoch: int
    artifacts: list[Artifact]


class Compilations(msgspec.Struct, frozen=True):
    """`trie` holds each compile id once, at the frame that was compiled; `flat` has its backwards too.

    others: texts that belong to none of them, by the id under which torch filed them.
    """

    trie: list[TrieNode]
    flat: list[CompilationRow]
    problems: list[Problem]
    others: list[OtherArtifacts]


def compilations_overview(data: CompileData) -> Compilations:
    """All compilations of a process, in order of time."""
    rows, summary = data.of(compilations), data.summary
    breaks = Counter(_key(row.key) for row in summary.graph_breaks)
    reasons: dict[Key, list[str]] = defaultdict(list)
    for recompile in summary.recompiles:
        reasons[_key(recompile.key)] += recompile.reasons
    flat = [_row(row, breaks[row.epoch, row.compile_id], reasons[row.epoch, row.compile_id]) for row in rows]
    return Compilations(_trie(rows, flat), flat, data.of(problems), _others(data))


def _others(data: CompileData) -> list[OtherArtifacts]:
    have = {key for row in data.summary.compilations for key in owners(row.key.epoch, row.key.compile_id)}
    keys = dict.fromkeys(_key(row.key) for row in data.summary.artifacts)
    return [
        OtherArtifacts(compile_id, epoch, data.of(artifacts, epoch, compile_id))
        for epoch, compile_id in keys
        if (epoch, compile_id) not in have
    ]


def _key(key: CompileKey) -> Key:
    return key.epoch, key.compile_id


def status(row: Compilation, breaks: int) -> Status:
    """The first that holds of: limit, failed, recovered (no more is known), break, unfinished, empty (no graph), ok.

    What dynamo does not support is a failure only where it did not break the graph there: with `fullgraph=True`.
    """
    if row.failure is not None and is_limit(row.failure.type, row.failure.reason):
        return "limit"
    if row.failure is not None and not (breaks and row.failure.type == UNSUPPORTED):
        return "failed"
    if row.recovered:
        return "recovered"
    if breaks:
        return "break"
    if row.duration_s is None:
        return "unfinished"
    return "empty" if row.direction == "forward" and not row.graph_ops else "ok"


def _row(row: Compilation, breaks: int, reasons: list[str]) -> CompilationRow:
    forward = row.direction == "forward"
    return CompilationRow(
        compile_id=row.compile_id,
        epoch=row.epoch,
        direction=row.direction,
        function=row.function,
        file=row.file,
        line=row.line,
        status=status(row, breaks if forward else 0),
        attempts=row.attempts,
        start_s=row.start_s,
        duration_s=row.duration_s,
        graph_ops=row.graph_ops,
        graph_nodes=row.graph_nodes,
        graph_inputs=row.graph_inputs,
        guards=row.guards,
        cache=row.cache,
        breaks=breaks if forward else 0,
        recompile_reasons=reasons if forward else [],
        failure=row.failure,
        recovered=row.recovered,
    )


def _trie(rows: list[Compilation], flat: list[CompilationRow]) -> list[TrieNode]:
    """Frames that are equal in all but their callees share a node. Without a stack the frame itself is the root."""
    root = TrieNode(Frame("", 0, "", None), False, [], [])
    for row, listed in zip(rows, flat, strict=True):
        if row.direction == "backward":
            continue
        node = root
        for frame in row.stack or [Frame(row.file, row.line or 0, row.function, None)]:
            node = _child(node, frame)
        node.compilations.append(
            TrieCompilation(row.compile_id, row.epoch, row.function, listed.status, row.duration_s)
        )
    return root.children


def _child(node: TrieNode, frame: Frame) -> TrieNode:
    for child in node.children:
        if child.frame == frame:
            return child
    node.children.append(TrieNode(frame, is_users_file(frame.file), [], []))
    return node.children[-1]


def problems(data: CompileData) -> list[Problem]:
    """What went wrong, in order of time."""
    broken = {_key(row.key) for row in data.summary.graph_breaks}
    messages = sorted(data.summary.compilations, key=lambda row: (row.start_ns, row.key.epoch))
    return [
        _problem(row, row.failure, status(row, _key(message.key) in broken), _setting(message))
        for message, row in zip(messages, data.of(compilations), strict=True)
        if row.failure is not None
    ]


def _problem(row: Compilation, failure: Failure, state: Status, suppress_errors: list[bool]) -> Problem:
    kind: ProblemKind = "limit" if state == "limit" else "failed" if state == "failed" else "skipped"
    return Problem(
        kind=kind,
        compile_id=row.compile_id,
        epoch=row.epoch,
        function=row.function,
        file=failure.file or row.file,
        line=failure.line if failure.file else row.line,
        type=failure.type,
        reason=failure.reason,
        ran_eager=True if kind == "skipped" else ran_eager(failure, suppress_errors),
    )


def ran_eager(failure: Failure, suppress_errors: list[bool]) -> bool | None:
    """Whether torch went on without compiling the frame. suppress_errors: that setting, as far as known."""
    if is_limit(failure.type, failure.reason):
        return True
    return suppress_errors[0] if suppress_errors else None


def _setting(row: CompilationMessage) -> list[bool]:
    """`torch._dynamo.config.suppress_errors` as the metrics have it."""
    value = row.metrics.get(SUPPRESS_ERRORS)
    return [value == "true"] if value in ("true", "false") else []
