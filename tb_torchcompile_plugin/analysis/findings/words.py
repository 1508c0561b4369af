"""Numbers in the titles of findings."""

from __future__ import annotations

from math import floor, log10

_UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))


def significant(value: float) -> str:
    """Three significant digits: 22.4, 0.713, 1,234."""
    value = float(f"{value:.3g}")
    decimals = max(0, 2 - floor(log10(abs(value)))) if value else 0
    return f"{value:,.{decimals}f}"


def duration(us: float) -> str:
    """In the largest unit in which it is at least 1, as it will be written: 999.7 µs is 1.00 ms."""
    size, unit = next((row for row in _UNITS if float(f"{us:.3g}") >= row[0]), _UNITS[-1])
    return f"{significant(us / size)} {unit}"


def percent(value: float) -> str:
    return f"{significant(value)} %"


def plural(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
