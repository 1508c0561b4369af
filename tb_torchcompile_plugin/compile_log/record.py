"""One compile record, its time and its texts. Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.summary_pb2 import Environment


@dataclass(slots=True)
class Record:
    """One record. thread: the Python thread id, 0 where unknown (a log does not tell).

    damaged: its payload is known to be incomplete, and has been counted as such.
    place: (offset, bytes) of a record of a log, in its content; the text of its payload need not be stored then."""

    metadata: dict[str, Any]
    payload: str | None = None
    thread: int = 0
    damaged: bool = False
    place: tuple[int, int] | None = None

    @property
    def attempt(self) -> int:
        """0 where it tells none. Raises ValueError and TypeError for what is no count."""
        attempt = int(self.metadata.get("attempt") or 0)
        if not 0 <= attempt < 1 << 31:
            raise ValueError("no attempt: it does not fit into 31 bits")
        return attempt


def nanoseconds(microseconds: float) -> int:
    """Epoch µs of a chromium event → ns. Multiplying the double as a whole would lose 256 ns."""
    whole = int(microseconds)
    time_ns = whole * 1000 + round((microseconds - whole) * 1000)
    if abs(time_ns) >= 1 << 62:
        raise ValueError("no time: what lies between two such does not fit into 64 bits")
    return time_ns


def readable(value: Any) -> Any:
    """The same without lone surrogates, which no file can hold: those of file names that are no UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {readable(name): readable(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [readable(item) for item in value]
    return value


def loads(text: str) -> Any:
    """A JSON text. Raises ValueError."""
    value = json.loads(text)
    return readable(value) if "\\ud" in text.lower() else value


# Fields of the summary's messages: whose a row is, and what may be missing in it.


Direction = Literal["forward", "backward"]
# Why a CUDA graph was recorded: for the first time; for sizes that it had not seen; because an input that is to stay
# where it is (a parameter, say) lay elsewhere; because a result of an earlier graph did; because results of earlier
# graphs were alive that were dead, or dead that were alive; behind another graph than before.
Reason = Literal["first", "size", "static_input", "earlier_result", "liveness", "order"]
REASONS: tuple[Reason, ...] = get_args(Reason)
Key = tuple[int, str]  # epoch and compile id: ids start anew when dynamo is reset


def key_of(key: pb.CompileKey) -> Key:
    """Epoch and compile id, to look up by."""
    return key.epoch, key.compile_id


def direction_of(code: int) -> Direction:
    """The word for a `summary.proto` Direction."""
    return "backward" if code == pb.BACKWARD else "forward"


def known_number(row: Any, field: str) -> int | None:
    """A whole number of a message, None where it is not there. Protobuf knows no base class with `HasField`."""
    return getattr(row, field) if row.HasField(field) else None


def known_seconds(row: Any, field: str) -> float | None:
    """A time in ns of a message as seconds, None where it is not there."""
    time_ns = known_number(row, field)
    return None if time_ns is None else time_ns / 1_000_000_000


def forward_compilations(summary: pb.CompileSummary) -> dict[Key, pb.Compilation]:
    """The compilation of each frame, without its backwards; of several under one key the last."""
    return {key_of(row.key): row for row in summary.compilations if row.direction == pb.FORWARD}


# What compile records tell of the process that wrote them: versions, rank, first and last time.


_VERSIONS = (
    ("torch_version", "pytorch_version"),
    ("python_version", "python_version"),
    ("cuda_version", "cuda_version"),
    ("triton_version", "triton_version"),
)


class Facts:
    """Each fact as it was told first; the time range grows."""

    def __init__(self) -> None:
        self._environment = Environment()
        self._known: set[str] = set()
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def learn(self, name: str, value: Any) -> None:
        """Raises TypeError and ValueError for what is no such fact."""
        if name not in self._known:
            setattr(self._environment, name, value)
            self._known.add(name)

    def learn_versions(self, metrics: dict[str, Any]) -> None:
        """From torch's compilation metrics."""
        for fact, name in _VERSIONS:
            if metrics.get(name):
                self.learn(fact, str(metrics[name]))

    def see_time(self, time_ns: int) -> None:
        self.first_ns = time_ns if self.first_ns is None else min(time_ns, self.first_ns)
        self.last_ns = time_ns if self.last_ns is None else max(time_ns, self.last_ns)

    def put(self, environment: Environment) -> None:
        """Copies what is known; the rest is the caller's."""
        environment.MergeFrom(self._environment)
        if self.first_ns is not None and self.last_ns is not None:
            environment.recording_start_ns, environment.written_ns = self.first_ns, self.last_ns
