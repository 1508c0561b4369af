"""One number on two sides, and what that says of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.formatting import duration, percent, seconds, signed, significant, size
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import profiled_steps
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized

Outcome = Literal["vanished", "appeared", "equal", "faster", "slower"]
_TEXTS: dict[str, Callable[[float], str]] = {"us": duration, "s": seconds, "percent": percent, "bytes": size}


class Pair(msgspec.Struct, frozen=True):
    """None where it is unknown; `delta` is b less a."""

    a: float | None
    b: float | None
    delta: float | None


class InWords(msgspec.Struct, frozen=True):
    """One number of both sides, and the change from A to B."""

    label: str
    a: str
    b: str
    change: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A row of whatever is compared. `outcome`: by its first number, a time. `words`: each number in words."""

    outcome: Outcome
    words: dict[str, str]


def pair(a: float | None, b: float | None) -> Pair:
    return Pair(a, b, None if a is None or b is None else b - a)


def numbers(**fields: Pair) -> dict[str, Any]:
    """The numbers of a row by their fields, the time that decides its outcome first, with what they say of it."""
    words = {name: "{} → {}, {}".format(*in_words(name, value)) for name, value in fields.items()}
    return {"outcome": outcome(next(iter(fields.values()))), "words": words, **fields}


def outcome(times: Pair) -> Outcome:
    """A time that is 0 or unknown is none."""
    if bool(times.a) != bool(times.b):
        return "vanished" if times.a else "appeared"
    return "equal" if not times.delta else "faster" if times.delta < 0 else "slower"


def in_words(name: str, value: Pair) -> tuple[str, str, str]:
    """A, B, and the change; the name's end is the unit: "13.0 ms", "13.6 ms", "+550 µs (+4.21 %)"."""
    text = _rate if name.endswith("_gb_s") else _TEXTS.get(name.rsplit("_", 1)[-1], "{:,.0f}".format)
    a, b = ("–" if side is None else text(side) for side in (value.a, value.b))
    if not value.delta:
        return a, b, "–" if value.delta is None else "equal"
    if text is percent:
        return a, b, signed(value.delta, lambda size: f"{significant(size)} points")
    return a, b, signed(value.delta, text) + change_percent(value)


def _rate(gb_s: float) -> str:
    return f"{significant(gb_s)} GB/s"


def change_percent(value: Pair) -> str:
    """ " (+4.21 %)"; "" where that says nothing."""
    if not value.delta or not value.a:
        return ""
    return f" ({signed(100 * value.delta / value.a, lambda part: f'{significant(part)} %')})"


def change_of(times: Pair) -> str:
    """ "12.0 ms instead of 13.0 ms (-7.69 %)"; both are known."""
    assert times.a is not None and times.b is not None
    if times.a == times.b:
        return f"{duration(times.b)} on both sides"
    return f"{duration(times.b)} instead of {duration(times.a)}{change_percent(times)}"


# The two sides of a comparison, and whose they are.


class SpanName(msgspec.Struct, frozen=True):
    """`span` and `trace_file` are empty for what a worker without a trace compiled."""

    run: str = ""
    worker: str = ""
    span: str = ""
    trace_file: str = ""


class Side(NamedTuple):
    """One side of a comparison: a span, and the compile data of its worker; None where there is none."""

    profile: Profile | None
    data: CompileData | None
    name: SpanName = SpanName()

    @property
    def summary(self) -> CompileSummary | None:
        return self.data.summary if self.data else None


@dataclass(frozen=True, eq=False)
class Sides(Memoized):
    """What questions about two spans are asked of."""

    a: Side
    b: Side


def side_of(about: Profile | CompileData, run: str = "", worker: str = "") -> Side:
    """A span, or what a worker without one compiled."""
    if isinstance(about, CompileData):
        return Side(None, about, SpanName(run, worker))
    span = about.span
    name = SpanName(run, worker, span.span, span.file.name) if span else SpanName(run, worker)
    return Side(about, about.data, name)


def as_a_whole(a: Side, b: Side) -> bool:
    """Whether the whole spans are compared: a step of one against all of the other would tell nothing."""
    return not all(side.profile and side.profile.of(profiled_steps) for side in (a, b))
