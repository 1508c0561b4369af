"""Rows by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Row = TypeVar("Row")
Group = TypeVar("Group", bound=Hashable)


def grouped(rows: Iterable[Row], group_of: Callable[[Row], Group]) -> dict[Group, list[Row]]:
    """The rows of each group in their order; groups in the order of their first rows."""
    groups: dict[Group, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return groups
