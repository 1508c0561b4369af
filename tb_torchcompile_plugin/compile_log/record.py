"""One compile record, its time and its texts. Standard library only."""

from __future__ import annotations

import json
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
