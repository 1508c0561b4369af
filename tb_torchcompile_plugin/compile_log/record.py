"""One compile record; begin and end marks of torch's compiler as spans; and how rows of the summary are looked up.

torch writes a mark when a timed function starts and one when it ends, without saying which belong together.
They nest within one thread and one compile id (a *lane*), so a stack per lane pairs them. An end without
a beginning is counted; what never ends is closed with its parent and flagged.

Standard library and protobuf only.
"""

import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.torch_names.records import BACKEND_CALLS, PHASES, Phase, phase_of


@dataclass(slots=True)
class CompileSpan:
    """One timed function, open or ended."""

    row: pb.PhaseSpan  # its duration is set when it ends
    lane: Hashable
    phase: Phase = "other"
    inside_ns: int = 0  # the sum of its direct children
    exclusive: dict[Phase, int] = field(default_factory=dict)  # phase → ns of itself and all inside it

    def phases(self) -> dict[Phase, int]:
        """Return exclusive ns by phase, in the order of PHASES; they sum to the duration exactly."""
        if any(ns < 0 for ns in self.exclusive.values()):
            # The clock was set back while compiling: no split can be trusted, the sum still can.
            return {"other": self.row.duration_ns}
        return {phase: self.exclusive[phase] for phase in PHASES if self.exclusive.get(phase)}


class OpenSpans:
    """Pairs marks. `begin` and `end` take them in the order of the log; O(depth) each."""

    def __init__(self) -> None:
        self._open: dict[Hashable, list[CompileSpan]] = {}

    def begin(self, span: CompileSpan) -> None:
        """Open a span."""
        stack = self._open.setdefault(span.lane, [])
        around = stack[-1].phase if stack else "other"
        span.phase = phase_of(span.row.name) or phase_of(span.row.function) or around
        stack.append(span)

    def end(self, lane: Hashable, name: str, end_ns: int) -> list[CompileSpan]:
        """Return the spans that this mark ends, inner ones first: the named one, and any inside that never ended.

        Nothing is returned if none is open.
        """
        stack = self._open.get(lane, [])
        depth = next((i for i in range(len(stack) - 1, -1, -1) if stack[i].row.name == name), None)
        if depth is None:
            return []
        ended = []
        while len(stack) > depth:
            span = stack.pop()
            span.row.unfinished = len(stack) > depth
            span.row.duration_ns = max(0, end_ns - span.row.start_ns)
            if span.row.name in BACKEND_CALLS:
                span.phase = "aot_autograd" if span.exclusive.get("aot_autograd") else "other"
            own = span.row.duration_ns - span.inside_ns
            span.exclusive[span.phase] = span.exclusive.get(span.phase, 0) + own
            if stack:
                stack[-1].inside_ns += span.row.duration_ns
                for phase, ns in span.exclusive.items():
                    stack[-1].exclusive[phase] = stack[-1].exclusive.get(phase, 0) + ns
            ended.append(span)
        if not stack:
            del self._open[lane]
        return ended

    def is_inside(self, lane: Hashable, names: frozenset[str]) -> bool:
        """Whether a span with one of these names is open in the lane."""
        return any(span.row.name in names for span in self._open.get(lane, ()))

    def still_open(self) -> list[CompileSpan]:
        """Return the spans without an end so far."""
        return [span for stack in self._open.values() for span in stack]


@dataclass(slots=True)
class Record:
    """One record."""

    metadata: dict[str, Any]
    payload: str | None = None
    thread: int = 0  # the Python thread id, 0 where unknown: a log does not hold it
    damaged: bool = False  # its payload is known to be incomplete, and has been counted as such
    # (offset, bytes) of a record of a log, in its content; the text of its payload need not be stored then.
    place: tuple[int, int] | None = None

    @property
    def attempt(self) -> int:
        """The attempt at compiling a frame, 0 where unknown. Raises ValueError and TypeError for what is no count."""
        attempt = int(self.metadata.get("attempt") or 0)
        if not 0 <= attempt < 1 << 31:
            raise ValueError("no attempt: it does not fit into 31 bits")
        return attempt


def nanoseconds(microseconds: float) -> int:
    """Convert epoch µs of a chromium event to ns. Multiplying the double as a whole would lose 256 ns."""
    whole = int(microseconds)
    time_ns = whole * 1000 + round((microseconds - whole) * 1000)
    if abs(time_ns) >= 1 << 62:
        raise ValueError("no time: what lies between two such does not fit into 64 bits")
    return time_ns


def readable(value: Any) -> Any:
    """Return the value without lone surrogates, which no file can hold: those of file names that are no UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {readable(name): readable(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [readable(item) for item in value]
    return value


def loads(text: str) -> Any:
    """Parse a JSON text. Raises ValueError."""
    value = json.loads(text)
    return readable(value) if "\\ud" in text.lower() else value


# In place of what was captured: the summary was read from the text of TORCH_LOGS, which contains what its topics print.
LOG_TEXT = "log_text"
# Fields of the summary's messages.
Direction = Literal["forward", "backward"]
# Why a CUDA graph was recorded: for the first time; for new sizes; because an input that should stay where it is (a
# parameter, for example) had moved; because a result of an earlier graph had; because results of earlier graphs were
# alive that were dead, or dead that were alive; after another graph than before.
Reason = Literal["first", "size", "static_input", "earlier_result", "liveness", "order"]
REASONS: tuple[Reason, ...] = get_args(Reason)
Key = tuple[int, str]  # epoch and compile id: ids start again when dynamo is reset


def key_of(key: pb.CompileKey) -> Key:
    """Return epoch and compile id, to look up by."""
    return key.epoch, key.compile_id


def direction_of(code: int) -> Direction:
    """Return the word for a `summary.proto` Direction."""
    return "backward" if code == pb.BACKWARD else "forward"


def optional_number(row: Any, field: str) -> int | None:
    """Return an integer field of a message, None where it is missing. Protobuf has no base class with `HasField`."""
    return getattr(row, field) if row.HasField(field) else None


def optional_seconds(row: Any, field: str) -> float | None:
    """Return a time in ns of a message as seconds, None where it is missing."""
    time_ns = optional_number(row, field)
    return None if time_ns is None else time_ns / 1_000_000_000


def forward_compilations(summary: pb.CompileSummary) -> dict[Key, pb.Compilation]:
    """Return the compilation of each frame, without its backwards; of several under one key the last."""
    return {key_of(row.key): row for row in summary.compilations if row.direction == pb.FORWARD}
