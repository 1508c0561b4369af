"""How are names distinguished? By tests of one pattern, and by tables in which the first matching pattern decides.

Standard library only: this runs inside training.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeVar

NameTest = Callable[[str], bool]
Kind = TypeVar("Kind")
CACHED_NAMES = 1 << 16  # per question; all recordings in tests/data together have fewer than 20,000 names


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile it when the first name is compared with it: importing all of them takes long enough."""
    return re.compile(pattern)


def begins(pattern: str) -> NameTest:
    """Return a test for names that begin with a pattern."""
    return lambda name: _compiled(pattern).match(name) is not None


def contains(pattern: str) -> NameTest:
    """Return a test for names that contain a pattern."""
    return lambda name: _compiled(pattern).search(name) is not None


def equals(pattern: str) -> NameTest:
    """Return a test for names that match a pattern as a whole."""
    return lambda name: _compiled(pattern).fullmatch(name) is not None


def first_group(pattern: str) -> Callable[[str], str | None]:
    """Return a function that gives the first group of a pattern that matches a name as a whole, or None."""
    return lambda name: match[1] if (match := _compiled(pattern).fullmatch(name)) else None


def without(pattern: str) -> Callable[[str], str]:
    """Return a function that removes what matches a pattern from a name."""
    return lambda name: _compiled(pattern).sub("", name)


def first_match(*rows: tuple[Kind, str], default: Kind) -> Callable[[str], Kind]:
    """Return a function that gives the kind of the first row whose pattern a name contains."""

    @lru_cache(CACHED_NAMES)
    def kind_of(name: str) -> Kind:
        return next((kind for kind, pattern in rows if _compiled(pattern).search(name)), default)

    return kind_of
