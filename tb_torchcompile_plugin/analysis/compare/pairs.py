"""How does one number of the two sides of a comparison read?"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.formatting import (
    column_head,
    duration,
    percent,
    seconds,
    signed,
    significant,
    size,
)

Outcome = Literal["vanished", "appeared", "equal", "faster", "slower"]
_TEXT_OF_UNIT: dict[str, Callable[[float], str]] = {
    "us": duration,
    "s": seconds,
    "percent": percent,
    "bytes": size,
    "time": lambda ns: duration(ns / 1000),
}


class Pair(msgspec.Struct, frozen=True):
    """One number on both sides; None where it is unknown."""

    baseline: float | None
    candidate: float | None
    delta: float | None  # the candidate's less the baseline's


class Figure(msgspec.Struct, frozen=True):
    """One number of both sides, in words and as a number; the name carries the unit."""

    name: Annotated[str, column_head(hidden=True)]
    label: Annotated[str, column_head("Figure")]
    baseline: str  # step times with their standard deviation
    candidate: str
    change: str
    value: Annotated[Pair, column_head(hidden=True)]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A row of whatever is compared."""

    # faster or slower by the first time of the row; appeared or vanished where one side has none
    outcome: Annotated[Outcome, column_head("Change", hidden=True)]


Row = TypeVar("Row", bound=Compared)
# Of one side: by what names a row, and by field.
Numbers = Mapping[tuple[Any, ...], Mapping[str, float | None]]


def pair(a: float | None, b: float | None) -> Pair:
    """Return both numbers and their difference."""
    return Pair(a, b, None if a is None or b is None else b - a)


def numbers(**fields: Pair) -> dict[str, Any]:
    """Return the number fields of a `Compared` row with its outcome; the time that decides comes first."""
    return {"outcome": outcome(next(iter(fields.values()))), **fields}


def match(
    row: type[Row], names: Sequence[str], sides: Sequence[Numbers], missing: float | None = 0.0
) -> list[Row]:
    """Return a row for each key of either side, in the order of the baseline and then of the candidate.

    names: the fields that the parts of a key are; all other fields are numbers of both sides, of which the first one is
    the time that decides. missing: what they are on a side without the key.
    """
    fields = [field for field in row.__struct_fields__ if field not in (*names, "outcome")]
    (a, b), none, rows = sides, dict.fromkeys(fields, missing), []
    for key in dict.fromkeys((*a, *b)):
        before, after = a.get(key, none), b.get(key, none)
        pairs = {field: pair(before.get(field), after.get(field)) for field in fields}
        rows.append(row(**dict(zip(names, key)), **numbers(**pairs)))
    return rows


def outcome(times: Pair) -> Outcome:
    """Return what became of a time; one that is 0 or unknown does not exist."""
    if bool(times.baseline) != bool(times.candidate):
        return "vanished" if times.baseline else "appeared"
    return "equal" if not times.delta else "faster" if times.delta < 0 else "slower"


def in_words(name: str, value: Pair) -> tuple[str, str, str]:
    """Return baseline, candidate and change: "13.0 ms", "13.6 ms", "+550 µs (+4.21 %)". The name ends with the unit."""
    text = text_of(name)
    a, b = ("–" if number is None else text(number) for number in (value.baseline, value.candidate))
    if not value.delta:
        return a, b, "–" if value.delta is None else "equal"
    if text is percent:
        return a, b, signed(value.delta, lambda points: f"{significant(points)} points")
    return a, b, signed(value.delta, text) + change_percent(value)


def text_of(name: str) -> Callable[[float], str]:
    """Return what writes a number by the unit at the end of its name."""
    return _rate if name.endswith("_gb_s") else _TEXT_OF_UNIT.get(name.rsplit("_", 1)[-1], "{:,.0f}".format)


def _rate(gb_s: float) -> str:
    return f"{significant(gb_s)} GB/s"


def change_percent(value: Pair) -> str:
    """Return " (+4.21 %)", or "" where that means nothing."""
    if not value.delta or not value.baseline:
        return ""
    return f" ({signed(100 * value.delta / value.baseline, lambda part: f'{significant(part)} %')})"


def change_of(times: Pair) -> str:
    """Return "12.0 ms instead of 13.0 ms (-7.69 %)" of two known times."""
    assert times.baseline is not None and times.candidate is not None
    if times.baseline == times.candidate:
        return f"{duration(times.candidate)} on both sides"
    return f"{duration(times.candidate)} instead of {duration(times.baseline)}{change_percent(times)}"
