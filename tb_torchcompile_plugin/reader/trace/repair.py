"""Repair the text of one event that is not valid JSON, by what profilers are known to write wrongly.

Each repair is tried on top of the ones before, in this order, until the text decodes to an object.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import islice, pairwise
from typing import Any

_NOT_A_NUMBER = re.compile(
    rb"([:\[,]\s*)(?:[-+]?(?:inf(?:inity)?|nan(?:\([^)\"]*\))?)|N/A)(?=\s*[,}\]])", re.IGNORECASE
)
_COMMA_DECIMAL = re.compile(rb'(":\s*-?\d+),(\d+)(?=\s*(?:[}\]]|,\s*"))')
_INNER_MINUS = re.compile(rb"(:\s*)-?(\d+)\.-(\d+)")
_BACKSLASH = re.compile(rb'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])|\\')
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_NAME_START = re.compile(rb'"name"\s*:\s*"')
_NAME_END = re.compile(rb'"\s*(?:,\s*"(?:pid|tid|ts|dur|ph|cat|args|id|s|bp)"\s*:|\})')
_NAME_ENDS = 8
_BARE_QUOTE = re.compile(rb'(?<!\\)"')
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD]")
_SURROGATES = re.compile("[\ud800-\udfff]")

RAW_BACKSLASHES = "backslashes that escape nothing"
Repair = Callable[[bytes], bytes]


def _raw_backslashes(text: bytes) -> bytes:
    """Escape all backslashes of a string in which one escapes nothing: torch has written Windows paths so."""

    def escaped(string: re.Match[bytes]) -> bytes:
        if all(escape[1] for escape in _BACKSLASH.finditer(string[1])):
            return string[0]
        return b'"%s"' % re.sub(rb'\\(?!")', rb"\\\\", string[1])

    return _BACKSLASH.sub(lambda m: m[0] if m[1] else b"\\\\", _STRING.sub(escaped, text))


def _quotes_in_name(text: bytes) -> bytes:
    """End the name at the first place that looks like an end of it and makes the whole text decode."""
    start = _NAME_START.search(text)
    if start is None:
        return text
    at = start.end()
    for end in islice(_NAME_END.finditer(text, at), _NAME_ENDS):
        mended = text[:at] + _BARE_QUOTE.sub(b'\\"', text[at : end.start()]) + text[end.start() :]
        if load_object(mended) is not None:
            return mended
    return text


def _quotes_anywhere(text: bytes) -> bytes:
    """A quote ends a string only before , : } ] and starts one only after { , : [."""
    out, inside = [], False
    pieces = _BARE_QUOTE.split(text)
    for before, after in pairwise(pieces):
        out.append(before)
        structural = after.lstrip()[:1] in (b",", b":", b"}", b"]") or not after.strip()
        closes = inside and structural
        opens = not inside and before.rstrip()[-1:] in (b"{", b",", b":", b"[")
        out.append(b'"' if closes or opens else b'\\"')
        inside = inside != (closes or opens)
    return b"".join([*out, pieces[-1]])


REPAIRS: tuple[tuple[str, Repair], ...] = (
    ("numbers that are inf, nan or N/A", lambda text: _NOT_A_NUMBER.sub(rb"\1null", text)),
    ("decimal commas", lambda text: _COMMA_DECIMAL.sub(rb"\1.\2", text)),
    # Kineto prints the thousandths of a negative number with their sign, padded to three characters
    (
        "a minus sign inside a number",
        lambda text: _INNER_MINUS.sub(lambda m: m[1] + b"-%s.%03d" % (m[2], int(m[3])), text),
    ),
    (RAW_BACKSLASHES, _raw_backslashes),
    ("quotes inside a name", _quotes_in_name),
    ("quotes inside a text", _quotes_anywhere),
)


def exact(text: str) -> Decimal | float:
    """Return a fraction with all its digits; infinite past any float: as an integer it would fill the memory."""
    number = float(text)
    return Decimal(text) if math.isfinite(number) else number


def load_object(text: bytes, number: Callable[[str], Any] = exact) -> dict[str, Any] | None:
    """Return the object that `text` is, leniently: control characters, invalid UTF-8, NaN and lone surrogates pass.

    number: what fractions become.
    """
    try:
        value = json.loads(text.decode("utf-8", "replace"), strict=False, parse_float=number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return _without_surrogates(value) if _ESCAPED_SURROGATE.search(text) else value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def repair_object(text: bytes, number: Callable[[str], Any] = exact) -> tuple[dict[str, Any], str] | None:
    """Return the object in broken text, and what was repaired last; None where no repair helps."""
    for what, repair in REPAIRS:
        mended = repair(text)
        if mended != text:
            value = load_object(mended, number)
            if value is not None:
                return value, what
            text = mended
    return None
