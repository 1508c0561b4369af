"""Texts by number, and rows by group."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar


class Codes:
    """`texts`: in the order in which they were met."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the number of a text; a new one where it was not met before."""
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


Row = TypeVar("Row")
Group = TypeVar("Group", bound=Hashable)
Owner = TypeVar("Owner")


def grouped(rows: Iterable[Row], group_of: Callable[[Row], Group]) -> dict[Group, list[Row]]:
    """Return the rows of each group in their order; groups in the order of their first rows."""
    groups: dict[Group, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return groups


def only_owners(pairs: Iterable[tuple[str, Owner]]) -> dict[str, Owner]:
    """Return the owner of each name that has exactly one."""
    owners: dict[str, set[Owner]] = defaultdict(set)
    for name, owner in pairs:
        owners[name].add(owner)
    return {name: of_name.pop() for name, of_name in owners.items() if len(of_name) == 1}
