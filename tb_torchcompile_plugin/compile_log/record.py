"""One compile record, and its time. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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


def nanoseconds(microseconds: float) -> int:
    """Epoch µs of a chromium event → ns. Multiplying the double as a whole would lose 256 ns."""
    whole = int(microseconds)
    time_ns = whole * 1000 + round((microseconds - whole) * 1000)
    if abs(time_ns) >= 1 << 63:
        raise ValueError("no time: it does not fit into 64 bits")
    return time_ns
