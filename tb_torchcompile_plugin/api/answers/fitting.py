"""Any answer made short enough: its lists and texts are cut alike, and what was cut is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

_DECIMALS = 6
_LONGEST = 4096  # items of a list
_TEXT, _PER_ITEM = 80, 100  # characters of a text: at least, and more for each item that lists may have
_COUNTED = 12  # lists of which is said how much they lost


def most(upto: int, holds: Callable[[int], bool]) -> int:
    """The largest number for which it holds, as it does for all below; 0 where it does for none."""
    low, high = 0, upto
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def compact(value: Any) -> Any:
    """Without what is null or empty; numbers to the sixth decimal."""
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, list):
        return [compact(one) for one in value]
    if isinstance(value, dict):
        return {name: short for name, one in value.items() if not is_nothing(short := compact(one))}
    return value


def is_nothing(value: Any) -> bool:
    return value is None or value in ("", [], {})


def fitted(answer: msgspec.Struct, most_bytes: int) -> str:
    """As JSON of at most so many bytes, its first fields rather than its last ones. `cut`: by path how many items or
    characters of a list or text are left of how many."""
    whole: dict[str, Any] = compact(msgspec.to_builtins(answer))
    items = most(_LONGEST, lambda items: _size(_shortened(whole, items)) <= most_bytes)
    fields = most(len(whole), lambda many: _size(_first(whole, many, items)) <= most_bytes)
    return msgspec.json.encode(_first(whole, fields, items)).decode()


def _first(whole: dict[str, Any], fields: int, items: int) -> dict[str, Any]:
    """So many fields, shortened, and the names of the others."""
    left = list(whole)[fields:]
    kept = _shortened({name: whole[name] for name in list(whole)[:fields]}, items)
    return kept | ({"left_out": left} if left else {})


def _shortened(whole: dict[str, Any], items: int) -> dict[str, Any]:
    lost: dict[str, str] = {}
    short = _cut(whole, items, "", lost)
    shortened: dict[str, Any] = short | ({"cut": dict(list(lost.items())[:_COUNTED])} if lost else {})
    return shortened


def _cut(value: Any, items: int, path: str, lost: dict[str, str]) -> Any:
    if isinstance(value, str):
        length = _TEXT + _PER_ITEM * items
        if len(value) > length:
            lost[path] = f"{length} of {len(value)}"
        return value[:length]
    if isinstance(value, list):
        if len(value) > items:
            lost[path] = f"{items} of {len(value)}"
        return [_cut(one, items, path, lost) for one in value[:items]]
    if isinstance(value, dict):
        return {name: _cut(one, items, f"{path}.{name}".lstrip("."), lost) for name, one in value.items()}
    return value


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
