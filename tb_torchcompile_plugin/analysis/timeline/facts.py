"""What is told of a slice or of a stretch of time in words, line by line."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.words import duration, percent, plural
from tb_torchcompile_plugin.profile.units import us

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))


class Fact(msgspec.Struct, frozen=True):
    """`value` null: not known, `unknown` says why. `title`: what it is."""

    label: str
    value: str | None
    title: str = ""
    unknown: str = ""


def time_fact(label: str, ns: int | None, title: str = "", unknown: str = "") -> Fact:
    return Fact(label, None if ns is None else duration(us(ns)), title, unknown)


def busy_fact(label: str, ns: int, share: float | None, kernels: int | None = None) -> Fact:
    """ "41.2 % (2.06 ms), 21 kernels"."""
    value = f"{percent(share or 0)} ({duration(us(ns))})"
    return Fact(label, value if kernels is None else f"{value}, {plural(kernels, 'kernel')}")


def exact(ns: int) -> str:
    """All digits of a time: "1.234567891 s"."""
    size, name = next((row for row in _UNITS if abs(ns) >= row[0]), _UNITS[-1])
    digits = f"{abs(ns) // size}.{abs(ns) % size * 10**9 // size:09}".rstrip("0").rstrip(".")
    return f"{'-' if ns < 0 else ''}{digits}\u202f{name}"
