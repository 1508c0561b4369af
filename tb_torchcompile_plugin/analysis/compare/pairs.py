"""One number on two sides."""

from __future__ import annotations

import msgspec


class Pair(msgspec.Struct, frozen=True):
    """None where it is unknown; `delta` is b less a."""

    a: float | None
    b: float | None
    delta: float | None


def pair(a: float | None, b: float | None) -> Pair:
    return Pair(a, b, None if a is None or b is None else b - a)
