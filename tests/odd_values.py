"""Values that nobody expects, at any place of a JSON value."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Place = tuple[str | int, ...]

LONE_SURROGATE = "file \ud800"
NUMBERS = (-1, 0, 2**31, 2**63, 2**64, 2**200, 1.5, float("nan"), float("inf"), 1e300, True)
TEXTS = ("", "x", "12", "0/0", LONE_SURROGATE, "\0", "‮")
OTHERS: tuple[Any, ...] = (None, [], [1], ["x"], [None], {}, {"a": 1}, {"a": [{}]})
odd_values = st.sampled_from((*NUMBERS, *TEXTS, *OTHERS))
picks = st.integers(0, 2**32)  # of several, by the remainder


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Where something stands in it: itself, and all that is inside."""
    yield before
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inside:
        yield from places(item, (*before, name))


def with_value(value: Any, place: Place, new: Any) -> Any:
    """A copy that has something else there."""
    if not place:
        return new
    changed = copy.copy(value)
    changed[place[0]] = with_value(value[place[0]], place[1:], new)
    return changed
