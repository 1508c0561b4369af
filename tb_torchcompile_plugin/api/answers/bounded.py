"""Tables of a report cut to what is asked for and to so many bytes; what is left out is counted, and can be had."""

import sys
from collections.abc import Callable, Iterable, Sequence
from shlex import quote
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.api.answers.sections import Address, NoSuchId, Table, address, chosen, time_of
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.api.catalog import SCHEMA_VERSION
from tb_torchcompile_plugin.errors import WrongArgument

AFTER = "AFTER"  # where the fixed program is recorded


class Commands:
    """How a caller asks for more: the commands of `tb-torchcompile` about a logdir, which can be typed as they are.

    run, top, most_bytes: as they were given.
    """

    def __init__(
        self, logdir: str, run: str = "", top: int | None = None, most_bytes: int | None = None
    ) -> None:
        self._logdir = quote(logdir)
        self._run = f" --run {quote(run)}" if run else ""
        bounds = {"--top": top, "--max-bytes": most_bytes}
        self._bounds = "".join(f" {name} {value}" for name, value in bounds.items() if value is not None)

    def show(self, id: str) -> str:
        """Return the command that shows a row."""
        return f"tb-torchcompile show {quote(id)} --logdir {self._logdir}"

    def rows(self, section: str, after: str) -> str:
        """Return the command that reports rows of a section. after: the id of the last known row, "" for none."""
        if after:
            return f"tb-torchcompile report {self._logdir}{self._run} --json --after {quote(after)}{self._bounds}"
        return f"tb-torchcompile report {self._logdir}{self._run} --json --section {section}"

    def tables(self, sections: Sequence[str]) -> str:
        """Return the command that reports sections."""
        of = f"tb-torchcompile report {self._logdir}{self._run} --json --section {','.join(sections)}"
        return of + self._bounds

    def what_if(self, place: Address, fix: str) -> str:
        """Return the command that predicts a span with this fix. fix: "" for all fixes."""
        named = {"--run": place.run, "--worker": place.worker, "--span": place.span, "--fix": fix}
        chosen = "".join(f" {name} {quote(value)}" for name, value in named.items() if value)
        return f"tb-torchcompile what-if {self._logdir}{chosen}"

    def compare(self, run: str, several: bool) -> str:
        """Return the command that compares a run with the one after it. several: whether the logdir has several."""
        if several:
            return f"tb-torchcompile compare {self._logdir} {self._logdir} --run {quote(run)} --run {AFTER}"
        return f"tb-torchcompile compare {self._logdir} {AFTER}"

    def full(self) -> str:
        """Return the command that prints all tables as text."""
        return f"tb-torchcompile report {self._logdir} --full"


# Chosen by eye.
_DECIMALS = 6  # of a number: shares of a microsecond and of a percent stay
_LONGEST = 4096  # items of a list
_TEXT, _PER_ITEM = 80, 100  # characters of a text: at least, and more for each item that lists may have
_COUNTED = 12  # lists of which is said how much they lost


def most(upto: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number for which `holds` is true, as it is for all below; 0 where it is for none."""
    low, high = 0, upto
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def compact(value: Any) -> Any:
    """Leave out what is null or empty, and round numbers to the sixth decimal."""
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, list):
        return [compact(item) for item in value]
    if isinstance(value, dict):
        return {name: short for name, item in value.items() if not is_nothing(short := compact(item))}
    return value


def is_nothing(value: Any) -> bool:
    """Whether a value is null or empty."""
    return value is None or value in ("", [], {})


def fitted(answer: msgspec.Struct, most_bytes: int) -> str:
    """Return an answer as JSON of at most so many bytes, its first fields rather than its last ones.

    `cut` in it shows by path how many items or characters of a list or text are left of how many.
    """
    whole: dict[str, Any] = compact(msgspec.to_builtins(answer))
    items = most(_LONGEST, lambda items: _size(_shortened(whole, items)) <= most_bytes)
    fields = most(len(whole), lambda many: _size(_first(whole, many, items)) <= most_bytes)
    return json_body(_first(whole, fields, items)).decode()


def _first(whole: dict[str, Any], fields: int, items: int) -> dict[str, Any]:
    """Keep so many fields, shortened, and the names of the others."""
    left = list(whole)[fields:]
    kept = _shortened({name: whole[name] for name in list(whole)[:fields]}, items)
    return kept | ({"left_out": left} if left else {})


def _shortened(whole: dict[str, Any], items: int) -> dict[str, Any]:
    lost: dict[str, str] = {}
    short: dict[str, Any] = _truncated(whole, items, "", lost)
    return short | ({"cut": dict(list(lost.items())[:_COUNTED])} if lost else {})


def _truncated(value: Any, items: int, path: str, lost: dict[str, str]) -> Any:
    if isinstance(value, str):
        length = _TEXT + _PER_ITEM * items
        if len(value) > length:
            lost[path] = f"{length} of {len(value)}"
        return value[:length]
    if isinstance(value, list):
        if len(value) > items:
            lost[path] = f"{items} of {len(value)}"
        return [_truncated(item, items, path, lost) for item in value[:items]]
    if isinstance(value, dict):
        return {
            name: _truncated(item, items, f"{path}.{name}".lstrip("."), lost) for name, item in value.items()
        }
    return value


def _size(value: Any) -> int:
    return len(json_body(value))


_IN_ID = ("key", "run", "worker", "span")
_LONG = 240  # bytes of a field of a row: what is longer is for `show`


class TooFewBytes(WrongArgument):
    """Not even the frame of an answer fits."""


class AnswerLimits(NamedTuple):
    """What of a report is asked for."""

    sections: Sequence[str] = ()  # () for all
    top: int | None = None  # rows of each table, at most
    most_bytes: int | None = None  # of the answer as JSON
    after: str = ""  # the id of a row: of its table, those behind it are wanted

    @property
    def bounds(self) -> bool:
        """Whether less than everything is asked for."""
        return bool(self.sections or self.after or self.top is not None or self.most_bytes is not None)


class OmittedRows(msgspec.Struct, frozen=True):
    """The rows of a table that are left out."""

    rows: int
    share: float | None  # of the sum of `share_of` of the table, from 0 to 1; null where rows have no time
    share_of: str | None
    next: str  # how to get them


class TruncatedTable(msgspec.Struct, frozen=True):
    """A table, as far as it is shown."""

    section: str
    place: str  # RUN/WORKER/SPAN
    total: int
    rows: list[msgspec.Raw]  # `more` in a row names fields that are too long for a table: `show ID` has them
    omitted: OmittedRows | None  # null where these are all rows


class OmittedTables(msgspec.Struct, frozen=True):
    """Tables for which there was no room at all."""

    tables: int
    rows: int
    next: str


class Bounded(msgspec.Struct, frozen=True):
    """Tables of a report, cut to what was asked for."""

    headline: str  # the first sentence of the tab
    tables: list[TruncatedTable]
    omitted: OmittedTables | None
    schema_version: int = SCHEMA_VERSION


class _Whole(NamedTuple):
    """A table with its rows as JSON, and how long each took."""

    table: Table
    rows: list[msgspec.Raw]
    time: str | None
    times: list[float]
    skipped: int


def bounded(tables: Iterable[Table], ask: AnswerLimits, headline: str, more: Commands) -> Bounded:
    """Return as many rows of each table as fit, the first of all before the last of any. Raises WrongArgument."""
    whole = [_whole(table, skipped) for table, skipped in _wanted(list(tables), ask)]
    counts = [len(table.rows) if ask.top is None else min(ask.top, len(table.rows)) for table in whole]
    of = _Fitting(whole, counts, headline, more, sys.maxsize if ask.most_bytes is None else ask.most_bytes)
    return of.cut_to(counts) if of.fits(counts) else _fitting(of)


def size(answer: msgspec.Struct) -> int:
    """Return the bytes of an answer as JSON, with the line break behind it."""
    return len(json_body(answer)) + 1


def brief(row: msgspec.Struct, field: str, id: str) -> dict[str, Any]:
    """Return a row of a table, its id in `field`, without what is null, empty, long or part of the id."""
    longer: list[str] = []
    kept: dict[str, Any] = {field: id}
    for name, value in msgspec.to_builtins(row).items():
        short = compact(value)
        if isinstance(short, str | list | dict) and _size(short) > _LONG:
            longer.append(name)
        elif name not in _IN_ID and not is_nothing(short):
            kept[name] = short
    return {**kept, **({"more": longer} if longer else {})}


def _wanted(tables: list[Table], ask: AnswerLimits) -> list[tuple[Table, int]]:
    """Return the tables that are asked for, in that order, each with how many of its rows were already shown."""
    if ask.after:
        section = address(ask.after).section
        for table in tables:
            if table.section == section and ask.after in table.ids:
                return [(table, table.ids.index(ask.after) + 1)]
        raise NoSuchId(f"there is no row {ask.after!r}", next_step="Ask again from the first row on")
    if not ask.sections:
        return [(table, 0) for table in tables]
    names = chosen(ask.sections)
    selected = [table for table in tables if table.section in names]
    return [(table, 0) for table in sorted(selected, key=lambda table: names.index(table.section))]


def _whole(table: Table, skipped: int) -> _Whole:
    time = time_of(type(table.rows[0]))
    times = [float(getattr(row, time) or 0) if time else 0.0 for row in table.rows]
    rows = [
        msgspec.Raw(msgspec.json.encode(brief(row, table.id_field, id)))
        for row, id in zip(table.rows, table.ids)
    ]
    return _Whole(table, rows[skipped:], time, times, skipped)


def _cut(whole: _Whole, count: int, more: Commands) -> TruncatedTable:
    table, end, total = whole.table, whole.skipped + count, sum(whole.times)
    omitted = None
    if end < len(table.rows):
        omitted = OmittedRows(
            rows=len(table.rows) - end,
            share=round(sum(whole.times[end:]) / total, 4) if total else None,
            share_of=whole.time,
            next=more.rows(table.section, table.ids[end - 1] if end else ""),
        )
    return TruncatedTable(table.section, str(table.place), len(table.rows), whole.rows[:count], omitted)


class _Fitting(NamedTuple):
    """What is to be cut to so many bytes."""

    whole: Sequence[_Whole]
    counts: Sequence[int]  # rows of each table, at most
    headline: str
    more: Commands
    most_bytes: int

    def cut_to(self, limits: Sequence[int]) -> Bounded:
        """Return so many rows of the first tables, and none of the others."""
        cuts = [_cut(whole, limit, self.more) for whole, limit in zip(self.whole, limits)]
        left = self.whole[len(limits) :]
        sections = list(dict.fromkeys(whole.table.section.partition(".")[0] for whole in left))
        rows = sum(len(whole.rows) for whole in left)
        return Bounded(
            self.headline, cuts, OmittedTables(len(left), rows, self.more.tables(sections)) if left else None
        )

    def level(self, tables: int, most: int) -> list[int]:
        return [min(most, count) for count in self.counts[:tables]]

    def fits(self, limits: Sequence[int]) -> bool:
        return size(self.cut_to(limits)) <= self.most_bytes


def _fitting(of: _Fitting) -> Bounded:
    """Return as many tables as have room for a row each, then rows of all alike, then of the first what is left."""
    tables = most(len(of.counts), lambda many: of.fits(of.level(many, 1)))
    if tables == 0:
        limits = [0] if of.fits([0]) else []
        answer = of.cut_to(limits)
        if size(answer) > of.most_bytes:
            raise TooFewBytes(
                f"{of.most_bytes} bytes hold no answer", next_step=f"Allow {size(answer)} or more"
            )
        return answer
    least = of.level(tables, most(max(of.counts), lambda many: of.fits(of.level(tables, many))))
    for index, count in enumerate(of.counts[:tables]):
        before, after = least[:index], least[index + 1 :]
        least[index] = most(count, lambda many, a=before, b=after: of.fits([*a, many, *b]))  # type: ignore[misc]
    return of.cut_to(least)
