"""How are names distinguished? By tests of one pattern, and by tables in which the first matching pattern decides.

Standard library only: this runs inside training.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar

NameTest = Callable[[str], bool]
Kind = TypeVar("Kind")
CACHED_NAMES = 1 << 16  # per question; all recordings in tests/data together have fewer than 20,000 names


def begins(pattern: str | re.Pattern[str]) -> NameTest:
    """Return a test for names that begin with a pattern."""
    match = re.compile(pattern).match
    return lambda name: match(name) is not None


def contains(pattern: str | re.Pattern[str]) -> NameTest:
    """Return a test for names that contain a pattern."""
    search = re.compile(pattern).search
    return lambda name: search(name) is not None


def equals(pattern: str | re.Pattern[str]) -> NameTest:
    """Return a test for names that match a pattern as a whole."""
    fullmatch = re.compile(pattern).fullmatch
    return lambda name: fullmatch(name) is not None


def first_group(pattern: str | re.Pattern[str]) -> Callable[[str], str | None]:
    """Return a function that gives the first group of a pattern that matches a name as a whole, or None."""
    fullmatch = re.compile(pattern).fullmatch
    return lambda name: match[1] if (match := fullmatch(name)) else None


def without(pattern: str) -> Callable[[str], str]:
    """Return a function that removes what matches a pattern from a name."""
    return partial(re.compile(pattern).sub, "")


def first_match(*rows: tuple[Kind, str], default: Kind) -> Callable[[str], Kind]:
    """Return a function that gives the kind of the first row whose pattern a name contains."""
    searches = [(kind, re.compile(pattern).search) for kind, pattern in rows]

    @lru_cache(CACHED_NAMES)
    def kind_of(name: str) -> Kind:
        return next((kind for kind, search in searches if search(name)), default)

    return kind_of
