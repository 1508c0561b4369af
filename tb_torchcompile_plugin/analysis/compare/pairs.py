"""What are the two sides of a comparison, and how does one number of both read?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.formatting import duration, percent, seconds, signed, significant, size
from tb_torchcompile_plugin.analysis.runtime.program import (
    OTHER,
    ProgramFacts,
    differences,
    program,
    program_of_data,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized

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

    a: float | None
    b: float | None
    delta: float | None  # b less a


class InWords(msgspec.Struct, frozen=True):
    """One number of both sides, and the change from A to B."""

    label: str
    a: str
    b: str
    change: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A row of whatever is compared."""

    outcome: Outcome  # by its first number, a time
    words: dict[str, str]  # each number in words


class SpanName(msgspec.Struct, frozen=True):
    """Which span a side is; `span` and `trace_file` are empty for a worker without a trace."""

    run: str = ""
    worker: str = ""
    span: str = ""
    trace_file: str = ""


class Side(NamedTuple):
    """One side of a comparison."""

    profile: Profile | None  # a span; None without a trace
    data: CompileData | None  # of its worker
    name: SpanName = SpanName()

    @property
    def program(self) -> ProgramFacts:
        """What ran."""
        if self.profile:
            return self.profile.of(program)
        return self.data.of(program_of_data) if self.data else ProgramFacts()


@dataclass(frozen=True, eq=False)
class Sides(Memoized):
    """The two spans that questions are asked of."""

    a: Side
    b: Side


def make_side(about: Profile | CompileData, run: str = "", worker: str = "") -> Side:
    """Return a span, or what a worker without one compiled, as a side."""
    if isinstance(about, CompileData):
        return Side(None, about, SpanName(run, worker))
    span = about.span
    name = SpanName(run, worker, span.span, span.file.name) if span else SpanName(run, worker)
    return Side(about, about.data, name)


def why_no_verdict(a: ProgramFacts, b: ProgramFacts) -> str:
    """Return why neither of two runs is called faster; "" where they run the same program."""
    kind, why = next(((kind, text) for kind, text in differences(a, b) if kind in OTHER), (None, ""))
    return f"A and B {OTHER[kind]}, so neither is called faster. {why}" if kind else ""


def compares_whole_spans(a: Side, b: Side) -> bool:
    """Return whether to compare whole spans: a step of one side and all of the other do not compare."""
    return not all(side.profile and side.profile.of(profiled_steps) for side in (a, b))


def pair(a: float | None, b: float | None) -> Pair:
    """Return both numbers and their difference."""
    return Pair(a, b, None if a is None or b is None else b - a)


def numbers(**fields: Pair) -> dict[str, Any]:
    """Return the number fields of a `Compared` row with its outcome and words; the time that decides comes first."""
    words = {name: "{} → {}, {}".format(*in_words(name, value)) for name, value in fields.items()}
    return {"outcome": outcome(next(iter(fields.values()))), "words": words, **fields}


def outcome(times: Pair) -> Outcome:
    """Return what became of a time; one that is 0 or unknown does not exist."""
    if bool(times.a) != bool(times.b):
        return "vanished" if times.a else "appeared"
    return "equal" if not times.delta else "faster" if times.delta < 0 else "slower"


def in_words(name: str, value: Pair) -> tuple[str, str, str]:
    """Return A, B and the change: "13.0 ms", "13.6 ms", "+550 µs (+4.21 %)". The name's end is the unit."""
    text = text_of(name)
    a, b = ("–" if number is None else text(number) for number in (value.a, value.b))
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
    if not value.delta or not value.a:
        return ""
    return f" ({signed(100 * value.delta / value.a, lambda part: f'{significant(part)} %')})"


def change_of(times: Pair) -> str:
    """Return "12.0 ms instead of 13.0 ms (-7.69 %)" of two known times."""
    assert times.a is not None and times.b is not None
    if times.a == times.b:
        return f"{duration(times.b)} on both sides"
    return f"{duration(times.b)} instead of {duration(times.a)}{change_percent(times)}"
