"""Limit the tables of a report to requested sections, rows and bytes; omitted rows are counted and available."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from shlex import quote
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.api.answers.sections import Address, Table, chosen, id_field, time_of
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.api.catalog import SCHEMA_VERSION
from tb_torchcompile_plugin.errors import WrongArgument

AFTER = "AFTER"  # where the fixed program is recorded


class Commands:
    """Commands of `tb-torchcompile` that return more about a logdir.

    run, top, most_bytes: the options of the current command.
    """

    def __init__(
        self, logdir: str, run: str = "", top: int | None = None, most_bytes: int | None = None
    ) -> None:
        # The standard input is read once; its text can be saved as FILE.
        self._logdir = "FILE" if logdir == "-" else quote(logdir)
        self._run = f" --run {quote(run)}" if run else ""
        bounds = {"--top": top, "--max-bytes": most_bytes}
        self._bounds = "".join(f" {name} {value}" for name, value in bounds.items() if value is not None)

    def show(self, id: str) -> str:
        """Return the command that shows a row."""
        return f"tb-torchcompile show {quote(id)} --logdir {self._logdir}"

    def rows(self, section: str) -> str:
        """Return the command that reports all rows of a section."""
        return f"tb-torchcompile report {self._logdir}{self._run} --json --section {section}"

    def tables(self, sections: Sequence[str]) -> str:
        """Return the command that reports sections."""
        return self.rows(",".join(sections)) + self._bounds

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
_TEXT = 200  # characters that a text keeps: an id or a command is of no use without its end
_COUNTED = 12  # lists and texts of which is said how much they lost


def compact(value: Any) -> Any:
    """Omit null and empty fields, and round numbers to six decimals."""
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
    """Return an answer as JSON of at most this many bytes by shortening its largest list or text repeatedly.

    `cut` contains by path how many of how many items or characters remain. If that is not enough, the last fields are
    omitted and listed in `left_out`.
    """
    short: dict[str, Any] = compact(msgspec.to_builtins(answer))
    cut: dict[str, tuple[int, int]] = {}
    left_out: list[str] = []
    while (excess := size(counted := _counted(short, cut, left_out)) - most_bytes) > 0 and short:
        largest = max(_parts(short, ""), key=lambda part: part.bytes, default=None)
        if largest is None:
            left_out.insert(0, short.popitem()[0])
            continue
        path, holder, key, least, part_bytes = largest
        whole = holder[key]
        # at most half of it at a time: then another one may be the largest
        share = max(1 - excess / part_bytes, 0.5)
        holder[key] = whole[: max(int(len(whole) * share), least)]
        _, total = cut.get(path, (0, len(whole)))
        cut[path] = len(holder[key]), total
    return json_body(counted).decode()


def _counted(short: dict[str, Any], cut: dict[str, tuple[int, int]], left_out: list[str]) -> dict[str, Any]:
    lost = {path: f"{left} of {total}" for path, (left, total) in cut.items() if path.split(".")[0] in short}
    counts: dict[str, Any] = compact({"cut": dict(list(lost.items())[:_COUNTED]), "left_out": left_out})
    return short | counts


class _Part(NamedTuple):
    """A list or a text of an answer that can be shorter, and where it is."""

    path: str
    holder: Any
    key: Any
    least: int  # items or characters that it keeps
    bytes: int


def _parts(holder: Any, path: str) -> Iterator[_Part]:
    """Yield the lists and texts in a value that can be shorter. Items have the path of their list."""
    for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        inner = f"{path}.{key}".lstrip(".") if isinstance(holder, dict) else path
        least = _TEXT if isinstance(value, str) else 1
        if isinstance(value, list | str) and len(value) > least:
            yield _Part(inner, holder, key, least, size(value))
        if isinstance(value, list | dict):
            yield from _parts(value, inner)


_IN_ID = ("key", "run", "worker", "span")
_WARNINGS = 3  # in one answer; each names a file
_LONG = 240  # bytes of a field of a row: what is longer is for `show`


class AnswerLimits(NamedTuple):
    """The requested limits of a report."""

    sections: Sequence[str] = ()  # () for all
    top: int | None = None  # rows of each table, at most
    most_bytes: int | None = None  # of the answer as JSON


NO_LIMITS = AnswerLimits()


class OmittedRows(msgspec.Struct, frozen=True):
    """The omitted rows of a table."""

    rows: int
    share: float | None  # of the sum of `share_of` of the table, from 0 to 1; null where rows have no time
    share_of: str | None
    next: str  # how to get them


class TruncatedTable(msgspec.Struct, frozen=True):
    """The shown part of a table."""

    section: str
    place: str  # RUN/WORKER/SPAN
    total: int
    rows: list[msgspec.Raw]  # `more` in a row names fields that are too long for a table: `show ID` has them
    omitted: OmittedRows | None  # null where these are all rows


class OmittedTables(msgspec.Struct, frozen=True):
    """Tables that were omitted completely."""

    tables: int
    rows: int
    next: str


class Bounded(msgspec.Struct, frozen=True):
    """Tables of a report within the requested limits."""

    headline: str  # the first sentence of the tab
    tables: list[TruncatedTable]
    omitted: OmittedTables | None
    warnings: list[str]  # what could not be read, the first ones
    schema_version: int = SCHEMA_VERSION


def bounded(
    tables: Iterable[Table], ask: AnswerLimits, headline: str, more: Commands, warnings: Iterable[str] = ()
) -> Bounded:
    """Return the requested rows; if not all fit, without the last rows of the largest tables.

    Raises WrongArgument.
    """
    asked, first = selected(tables, ask), [text[:_TEXT] for text in islice(warnings, _WARNINGS)]
    rows = [
        [msgspec.Raw(msgspec.json.encode(brief(row, id))) for row, id in zip(table.rows, table.ids)]
        for table in asked
    ]
    kept = [encoded[: ask.top] for encoded in rows]
    most_bytes = sys.maxsize if ask.most_bytes is None else ask.most_bytes
    while (excess := size(answer := _cut(asked, kept, headline, more, first)) - most_bytes) > 0:
        least = 1 if len(kept) > 1 else 0
        if any(len(rows) > least for rows in kept):
            _drop_rows(kept, least, excess)
        elif kept:
            kept.pop()
        else:
            raise WrongArgument(
                f"{most_bytes} bytes are too few for an answer", next_step=f"Allow at least {size(answer)}"
            )
    return answer


def _drop_rows(kept: list[list[msgspec.Raw]], least: int, excess: int) -> None:
    """Remove rows of the largest table repeatedly, until the size fits or each table has `least` rows."""
    sizes = [sum(len(bytes(row)) for row in rows) for rows in kept]
    while excess > 0 and (longer := [index for index, rows in enumerate(kept) if len(rows) > least]):
        largest = max(longer, key=sizes.__getitem__)
        dropped = len(bytes(kept[largest].pop()))
        sizes[largest] -= dropped
        excess -= dropped


def size(answer: object) -> int:
    """Return the bytes of an answer as JSON, with the line break after it."""
    return len(json_body(answer)) + 1


def brief(row: msgspec.Struct, id: str) -> dict[str, Any]:
    """Return a row of a table, its id first, without what is null, empty, long or part of the id."""
    longer: list[str] = []
    kept: dict[str, Any] = {id_field(type(row)): id}
    for name, value in msgspec.to_builtins(row).items():
        short = compact(value)
        if isinstance(short, str | list | dict) and size(short) > _LONG:
            longer.append(name)
        elif name not in _IN_ID and not is_nothing(short):
            kept[name] = short
    return {**kept, **({"more": longer} if longer else {})}


def selected(tables: Iterable[Table], ask: AnswerLimits) -> list[Table]:
    """Return the tables of the requested sections, in that order. Raises WrongArgument."""
    if not ask.sections:
        return list(tables)
    names = chosen(ask.sections)
    rows = [table for table in tables if table.section in names]
    return sorted(rows, key=lambda table: names.index(table.section))


def _cut(
    tables: Sequence[Table],
    kept: Sequence[list[msgspec.Raw]],
    headline: str,
    more: Commands,
    warnings: list[str],
) -> Bounded:
    """Return these rows of the first tables only."""
    shown = [_truncated_table(table, rows, more) for table, rows in zip(tables, kept)]
    left = tables[len(kept) :]
    sections = list(dict.fromkeys(table.section.partition(".")[0] for table in left))
    count = sum(len(table.rows) for table in left)
    omitted = OmittedTables(len(left), count, more.tables(sections)) if left else None
    return Bounded(headline, shown, omitted, warnings)


def _truncated_table(table: Table, kept: list[msgspec.Raw], more: Commands) -> TruncatedTable:
    omitted = None
    if left := table.rows[len(kept) :]:
        time = time_of(type(left[0]))
        total, lost = (
            sum(getattr(row, time) or 0.0 for row in rows) if time else 0.0 for rows in (table.rows, left)
        )
        share = round(lost / total, 4) if total else None
        omitted = OmittedRows(len(left), share, time, more.rows(table.section))
    return TruncatedTable(table.section, str(table.place), len(table.rows), kept, omitted)
