"""How do integers become the numbers that users see? Each carries its unit in its name."""

from __future__ import annotations

# Standard deviations in a median absolute deviation, of a normal distribution: 1 / its quantile of 75 %.
NORMAL_DEVIATIONS = 1.4826


def us(ns: int) -> float:
    """Return microseconds, exact to the nanosecond: the nearest double of a number with three decimals."""
    return int(ns) / 1000


def to_seconds(ns: int) -> float:
    """Return seconds."""
    return int(ns) / 1_000_000_000


def share_percent(part: int, whole: int) -> float | None:
    """Return a share in percent; None where there is no whole."""
    return 100 * int(part) / int(whole) if whole else None
