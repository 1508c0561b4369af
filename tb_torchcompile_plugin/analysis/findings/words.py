"""Numbers in the titles of findings."""

from __future__ import annotations

from math import floor, log10

# From how many µs on, the size in µs, the name: as in the tab, a compile time of 101 s is not 1.69 min.
_UNITS = ((3600e6, 3600e6, "h"), (1000e6, 60e6, "min"), (1e6, 1e6, "s"), (1e3, 1e3, "ms"), (1.0, 1.0, "µs"))


def significant(value: float) -> str:
    """Three significant digits: 22.4, 0.713, 1,234."""
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - floor(log10(abs(rounded)))) if rounded else 0
    return f"{rounded if decimals else value:,.{decimals}f}"


def duration(us: float) -> str:
    """In the largest unit in which such a value is written: 999.7 µs is 1.00 ms."""
    _, size, unit = next((row for row in _UNITS if float(f"{us:.3g}") >= row[0]), _UNITS[-1])
    return f"{significant(us / size)} {unit}"


def percent(value: float) -> str:
    return f"{significant(value)} %"


def plural(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
