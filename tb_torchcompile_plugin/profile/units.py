"""From the integers inside to the numbers that leave: each carries its unit in its name."""

from __future__ import annotations


def us(ns: int) -> float:
    """Microseconds. Exact to the nanosecond: the nearest double of a number with three decimals."""
    return int(ns) / 1000


def to_seconds(ns: int) -> float:
    return int(ns) / 1_000_000_000


def share_percent(part: int, whole: int) -> float | None:
    """None where there is no whole to have a share of."""
    return 100 * int(part) / int(whole) if whole else None
