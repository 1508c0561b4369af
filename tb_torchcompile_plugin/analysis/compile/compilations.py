"""What was compiled, and what came of it? One row for each frame, and for each backward that was compiled later."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.compile.caches import CacheResult, cache_results
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.compile_log import record as fields
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation as CompilationMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.generated_code.artifacts import Artifact, Frame, artifacts, frames, owners
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_ahead, is_export
from tb_torchcompile_plugin.torch_names.graph_breaks import UNSUPPORTED, is_limit, skips_frame
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file
from tb_torchcompile_plugin.torch_names.records import PHASES, SUPPRESS_ERRORS, Phase

Status = Literal[
    "ok", "failed", "limit", "empty", "break", "recovered", "unfinished", "exported", "elsewhere"
]

NOT_COMPILED_HERE: tuple[Status, ...] = ("exported", "elsewhere")


class Failure(msgspec.Struct, frozen=True):
    type: str
    reason: str
    file: str
    line: int | None


class Compilation(msgspec.Struct, frozen=True):
    """One frame, or its lazily compiled backward. `start_s` is Unix time; the phases sum to `duration_s`, and
    `phases_percent` are their shares.

    key: what tells the row from the others. part: which of `parts` rows of its compile id and direction, from 0: under
    DDP one frame is several graphs, and each has a backward that is compiled on its own. breaks: distinct graph breaks;
    these and `recompile_reasons` are the forward's.
    """

    key: str
    compile_id: str
    epoch: int
    direction: fields.Direction
    part: int
    parts: int
    function: str
    file: str
    line: int | None
    status: Status
    attempts: int | None
    start_s: float | None
    duration_s: float | None
    phases_s: dict[Phase, float] | None
    phases_percent: dict[Phase, float]
    graph_ops: int | None
    graph_nodes: int | None
    graph_inputs: int | None
    guards: int | None
    cache: list[CacheResult]
    breaks: int
    recompile_reasons: list[str]
    failure: Failure | None
    restart_reasons: list[str]
    stack: list[Frame]
    recovered: bool


def compilations(data: CompileData) -> list[Compilation]:
    """One row a compilation, in order of time."""
    summary = data.summary
    breaks = Counter(fields.key_of(row.key) for row in summary.graph_breaks)
    reasons: dict[fields.Key, list[str]] = defaultdict(list)
    for recompile in summary.recompiles:
        reasons[fields.key_of(recompile.key)] += recompile.reasons
    parts = Counter((fields.key_of(row.key), row.direction) for row in summary.compilations)
    coded = {fields.key_of(row.key) for row in summary.graphs}
    before: Counter[tuple[fields.Key, int]] = Counter()
    answer = []
    for row in in_order(summary):
        key, kin = fields.key_of(row.key), (fields.key_of(row.key), row.direction)
        forward = fields.direction_of(row.direction) == "forward"
        answer.append(
            _compilation(
                row,
                (before[kin], parts[kin]),
                breaks[key] if forward else 0,
                reasons[key] if forward else [],
                key in coded,
            )
        )
        before[kin] += 1
    return answer


def beside_compilations(data: CompileData) -> str:
    """ "2 exports, 1 package that another process compiled"; "" without any."""
    statuses = [row.status for row in data.of(compilations)]
    exported, elsewhere = (statuses.count(status) for status in NOT_COMPILED_HERE)
    parts = [plural(exported, "export")] if exported else []
    parts += [f"{plural(elsewhere, 'package')} that another process compiled"] if elsewhere else []
    return ", ".join(parts)


def phases_s(data: CompileData) -> dict[Phase, float]:
    """Exclusive times over all compilations, in the order of the pipeline."""
    phases = [row.phases_s or {} for row in data.of(compilations)]
    return {
        phase: sum(row.get(phase, 0) for row in phases)
        for phase in PHASES
        if any(phase in row for row in phases)
    }


def phases_percent(phases: dict[Phase, float]) -> dict[Phase, float]:
    """Shares of their sum; without those that took no time."""
    whole = sum(phases.values())
    return {phase: 100 * time / whole for phase, time in phases.items() if time > 0}


def in_order(summary: CompileSummary) -> list[CompilationMessage]:
    """The messages of `compilations`."""
    return sorted(summary.compilations, key=lambda row: (row.start_ns, row.key.epoch))


def _compilation(
    row: CompilationMessage, place: tuple[int, int], breaks: int, reasons: list[str], coded: bool
) -> Compilation:
    phases: dict[Phase, float] = {phase.name: to_seconds(phase.exclusive_ns) for phase in row.phases}
    direction, failure, (part, parts) = fields.direction_of(row.direction), _failure(row), place
    key = f"{row.key.compile_id},{row.key.epoch},{direction}"
    return Compilation(
        key=key + (f"~{part + 1}" if part else ""),
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        direction=direction,
        part=part,
        parts=parts,
        function=row.function,
        file=row.file,
        line=fields.known_number(row, "line"),
        status=_status_ahead(row, failure, coded) or _status(row, failure, breaks),
        attempts=fields.known_number(row, "attempts"),
        start_s=fields.known_seconds(row, "start_ns"),
        duration_s=fields.known_seconds(row, "duration_ns"),
        phases_s=phases or None,
        phases_percent=phases_percent(phases),
        graph_ops=fields.known_number(row, "graph_ops"),
        graph_nodes=fields.known_number(row, "graph_nodes"),
        graph_inputs=fields.known_number(row, "graph_inputs"),
        guards=fields.known_number(row, "guards"),
        cache=cache_results(row),
        breaks=breaks,
        recompile_reasons=reasons,
        failure=failure,
        restart_reasons=list(row.restart_reasons),
        stack=frames(row.stack),
        recovered=row.recovered,
    )


def _status_ahead(row: CompilationMessage, failure: Failure | None, coded: bool) -> Status | None:
    """Of what was compiled ahead of time. torch counts no operators there, and does not say when an export ends."""
    if row.elsewhere:
        return "elsewhere"
    if failure is not None or not is_ahead(row.key.compile_id):
        return None
    if is_export(row.key.compile_id):
        return "exported"
    return "ok" if coded else "empty" if row.HasField("duration_ns") else "unfinished"


def _status(row: CompilationMessage, failure: Failure | None, breaks: int) -> Status:
    """The first that holds of: limit, failed, recovered (no more is known), break, unfinished, empty (no graph), ok.

    What dynamo does not support is a failure only where it did not break the graph there: with `fullgraph=True`.
    """
    if failure is not None and is_limit(failure.type, failure.reason):
        return "limit"
    broke = bool(breaks) or (failure is not None and skips_frame(failure.reason))
    if failure is not None and not (broke and failure.type == UNSUPPORTED):
        return "failed"
    if row.recovered:
        return "recovered"
    if broke:
        return "break"
    if not row.HasField("duration_ns"):
        return "unfinished"
    return "empty" if fields.direction_of(row.direction) == "forward" and not row.graph_ops else "ok"


def _failure(row: CompilationMessage) -> Failure | None:
    if not row.HasField("failure"):
        return None
    failure = row.failure
    return Failure(failure.type, failure.reason, failure.file, fields.known_number(failure, "line"))


# What was compiled, called from where, and what came of it: a stack trie, a flat list, and what went wrong.


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
