"""Print rows as tables that fit the terminal. The types of the rows determine the columns, as in the tab."""

import codecs
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import reduce
from textwrap import shorten, wrap
from typing import Any, Literal, NamedTuple

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_torchcompile_plugin.analysis.compare.pairs import Pair, in_words
from tb_torchcompile_plugin.analysis.formatting import duration, signed, significant, size
from tb_torchcompile_plugin.api.answers.sections import time_of
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.api.sheets import NAMES, UNSEEN, RowColumn, columns_of
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import explain_write_errors

# Columns where there is neither COLUMNS nor a terminal: logs of CI and agents, which show or read long lines.
WIDTH = 120
MAX_ROWS = 12  # of a table, so that a span fits a few screens; chosen by eye
# Least characters of a text: of the first one of a row, of other names, of sentences. Chosen by eye for 80 columns.
_FIRST_TEXT, _TEXT, _SENTENCE = 20, 12, 24
_BAR = 16  # characters of the longest bar; chosen by eye
_FIRST_COLUMNS = 3  # of which prose is shown before numbers
_PROSE = 160  # characters of a sentence in a table, of which `show` has all
_WIDEST = 40  # a place that is longer is folded
_GAP = 2
# Fields that `show` and --json have and a table has not: where generated code is, Unix times, texts of torch's docs,
# rows of other tables, and what other columns tell nearly as well.
_DETAILS = frozenset(
    (
        *("docs_url", "explanation", "hints", "graph_key", "output_code_file", "artifact", "code_line"),
        *("idle", "start_s", "why_no_text", "whole_function", "source_lines", "compilation", "worker"),
        *("span", "step_gpu_idle_us", "configs", "phases_percent", "parts"),
    )
)
_PLACES = ("file", "where", "run", "compile_id", "resume_compile_id")  # are to be typed or opened
_UNIX_TIME = "start_s"
_LAST_DATE = 253402300799.0  # in 9999: what datetime knows
_UNSHOWN = ("key", "run", "worker", "span", "panel", "row")  # are in the id, or in the link to the tab
_UNKNOWN = "–"
_UNIT = re.compile(r"(?<=\d) (?=(?:[nµm]?s|h|[kMGT]?B|points)\b|%)")  # what a number is not parted from
_SAVINGS = ("saves_us", "saves_percent")  # of a graph break, as predicted
_PREDICTED: dict[str, Callable[[Any, int], str]] = {"us": duration, "percent": significant}
_NUMBER = re.compile(r"(?=.{1,24}$)[-+−]?\d.*|–|equal")  # in words, or a compile id: not cut
_TEXT_OF_KIND: dict[str, Callable[[Any], str]] = {
    "us": lambda us: signed(us, duration).lstrip("+"),
    "ns": lambda ns: duration(ns / 1e3),
    "s": lambda s: duration(1e6 * s),
    "unix": lambda s: _date(s),
    "bytes": size,
    "percent": significant,
    "number": significant,
    "count": "{:,}".format,
    "flag": lambda flag: "yes" if flag else "no",
}
# Numbers and places are whole in one line, names are cut, prose is folded and long prose cut, ids are folded.
_Style = Literal["number", "place", "name", "prose", "id", "bar"]


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a stream that cannot be written
# What an encoding without them shows instead.
_ASCII = str.maketrans(
    {"µ": "u", "–": "-", "−": "-", "─": "-", "±": "+/-", "×": "x", "█": "#", "…": "...", "→": "->", "≈": "~"}
)


def accept_any_encoding() -> None:
    """Make stdout and stderr write similar characters, or escapes, for those that their encoding does not have."""
    codecs.register_error("similar", _similar)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="similar")


def _similar(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode(), error.end


class _Stdout(Console):
    """Standard output, of which a closed pipe discards the rest: `| head` has seen enough."""

    def on_broken_pipe(self) -> None:
        discard_stdout()


class Plain(Text):
    """Words on the terminal: never markup, never control characters."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(visible(text), style=style)


def stdout_console() -> Console:
    """Return a console on stdout, as wide as COLUMNS or the terminal, into a pipe, too."""
    return _Stdout(file=sys.stdout, highlight=False, width=_width())


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        with suppress(OSError, ValueError, AttributeError):  # redirected, closed, or absent
            if known := os.get_terminal_size(stream.fileno()).columns:
                return known
    return WIDTH


def print_lines(console: Console, *lines: str, indent: str = "", style: str = "") -> None:
    """Print texts of any length, folded between words."""
    for line in (visible(line) for text in lines for line in text.splitlines()):
        inner = f"{indent}    " if len(indent) + len(line) > console.width else indent
        folded = wrap(
            _UNIT.sub("\N{NO-BREAK SPACE}", line),
            console.width,
            initial_indent=indent,
            subsequent_indent=inner,
            break_on_hyphens=False,
        )
        for part in folded:
            console.print(Plain(part.replace("\N{NO-BREAK SPACE}", " "), style), soft_wrap=True)


def print_command(console: Console, command: str, why: str = "", indent: str = "  ") -> None:
    """Print a command that is to be copied, whole in one line, after its purpose where both do not fit."""
    line = f"{indent}{command}"
    if why and len(line) + len(f"  # {why}") > console.width:
        print_lines(console, f"# {why}", indent=indent)
    elif why:
        line += f"  # {why}"
    print_whole(console, line)


def print_whole(console: Console, text: str) -> None:
    """Print a line that is not folded: code, an id, a link."""
    console.print(Plain(text), soft_wrap=True)


def print_json(value: object) -> None:
    """Print one JSON object."""
    write_stdout(json_body(value).decode() + "\n")


def write_stdout(text: str) -> None:
    """Write a text and everything before it; a closed pipe discards it."""
    if sys.stdout is None:  # closed before the process began
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def write_text(file: str, text: str, mode: str = "w") -> None:
    """Write a file. Raises UserError where that fails."""
    with explain_write_errors(file), open(file, mode, encoding="utf-8", errors="backslashreplace") as target:
        target.write(text)


def discard_stdout() -> None:
    """Discard what is still to be printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class TextColumn(NamedTuple):
    """A column as it is printed."""

    head: str
    texts: tuple[str, ...]
    style: _Style = "number"
    is_time: bool = False  # how long a row took: shown before others
    needs: str = ""  # the head of the column without which it says nothing

    @property
    def width(self) -> int:
        """The width at which nothing of it is cut."""
        return max(map(cell_len, (*self.texts, *self.head.split())))

    def least(self, text: int) -> int:
        """The least width. text: of a name or of prose."""
        if self.style in ("number", "place", "bar"):
            text = _WIDEST
        elif self.style == "prose":
            text = _SENTENCE
        return min(text, self.width)


def print_table(
    console: Console,
    title: str,
    rows: Sequence[msgspec.Struct],
    max_rows: int | None = MAX_ROWS,
    names: Sequence[str] = (),
) -> None:
    """Print the columns that fit, and nothing without rows. The title counts what is not shown.

    names: of the fields to show, in their order; () for those of the type.
    """
    if not rows:
        return
    shown = rows[:max_rows]
    columns = list(_columns(shown, names)) if shown else []
    fitting = _fitting(columns, console.width)
    print_title(console, title, rows=(len(shown), len(rows)), columns=(len(fitting), len(columns)))
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column, characters in _widened(fitting, console.width).items():
        justify: Literal["left", "right"] = "right" if column.style == "number" else "left"
        grid.add_column(Plain(column.head), justify=justify, width=characters, overflow="fold")
    for texts in zip(*(column.texts for column in fitting)):
        grid.add_row(*map(_cell, fitting, texts))
    console.print(grid)
    console.print()


def print_title(console: Console, title: str, **counts: tuple[int, int]) -> None:
    """Print the title of a table with how many of its rows and columns are shown, where not all are."""
    omitted = ", ".join(f"{part} of {whole} {what}" for what, (part, whole) in counts.items() if part < whole)
    print_lines(console, f"{title}: {omitted}" if omitted else title, style="bold")


def _cell(column: TextColumn, text: str) -> Text:
    cell = Plain(shorten(text, _PROSE, placeholder="…") if column.style == "prose" else text)
    if column.style == "name":
        cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


def _fitting(columns: Sequence[TextColumn], width: int) -> dict[TextColumn, int]:
    """Return the columns that fit next to each other, in their order, and their least widths.

    The first one and the time of a row are chosen before the others; prose in the middle and bars last.
    """
    last = [column for column in columns[_FIRST_COLUMNS:] if column.style in ("prose", "bar")]
    needed: dict[TextColumn, int] = {}
    left, least = width + _GAP, _FIRST_TEXT
    for column in sorted(
        columns, key=lambda column: (column is not columns[0], not column.is_time, column in last)
    ):
        characters = column.least(least) if needed else min(column.least(least), width)
        # a bar cuts no name
        wishes = sum(max(other.width - needed[other], 0) for other in needed) if column.style == "bar" else 0
        if characters + _GAP + wishes <= left:
            needed[column] = characters
            left -= characters + _GAP
            least = least if column.style == "number" else _TEXT
    heads = {"", *(column.head for column in needed)}
    return {column: needed[column] for column in columns if column in needed and column.needs in heads}


def _widened(needed: dict[TextColumn, int], width: int) -> dict[TextColumn, int]:
    """Share what is left of the width among the columns, those that want least of it first."""
    widths = dict(needed)
    left = width + _GAP - sum(widths.values()) - _GAP * len(widths)
    wishes = {column: max(column.width, cell_len(column.head)) - least for column, least in needed.items()}
    for number, column in enumerate(sorted(wishes, key=wishes.__getitem__)):
        more = min(wishes[column], left // (len(wishes) - number))
        widths[column] += more
        left -= more
    return widths


def print_row(console: Console, row: msgspec.Struct) -> None:
    """Print each field that is known on lines of its own, then the rows within it."""
    lists = []
    heads: dict[str, str] = {}
    for place in columns_of(type(row)):
        value = getattr(_value(row, place.path[:-1]), place.path[-1], None)
        if isinstance(value, list | tuple) and value and not is_names(value):
            lists.append((place.column.label, value))
        elif place.path[-1] not in _UNSHOWN:
            for column in _texts(place, [row]):
                heads.setdefault(column.head, column.texts[0])
    known = (f"{head}: {text}" for head, text in heads.items() if text != _UNKNOWN)
    print_lines(console, *known, indent="  ")
    for label, rows in lists:
        print_table(console, label, rows)


def _columns(rows: Sequence[msgspec.Struct], names: Sequence[str]) -> Iterator[TextColumn]:
    """Yield the columns that say something of any of these rows."""
    places = columns_of(type(rows[0]))
    by_name = {place.path[-1]: place for place in sorted(places, key=lambda place: -len(place.path))}
    heads: set[str] = set()
    time = time_of(type(rows[0]), tuple(names))
    for place in map(by_name.__getitem__, names) if names else _usual(places):
        columns = list(_texts(place, rows))
        is_time = place.path[-1] == time and len(columns) == 1
        for column in columns:
            if column.head not in heads and set(column.texts) != {_UNKNOWN}:
                depths = [getattr(row, "depth", 0) if not heads else 0 for row in rows]
                heads.add(column.head)
                texts = ("  " * depth + text for depth, text in zip(depths, column.texts))
                yield column._replace(texts=tuple(texts), is_time=is_time)
        if place.column.bar and "" not in heads:
            heads.add("")
            yield _bar(place, rows)


def _bar(place: RowColumn, rows: Sequence[msgspec.Struct]) -> TextColumn:
    """Return the bars of a number: of 100 %, otherwise of the largest."""
    values = [_value(row, place.path) or 0.0 for row in rows]
    whole = 100.0 if place.column.kind == "percent" else max(values) or 1.0
    return TextColumn("", tuple("█" * round(_BAR * min(value / whole, 1.0)) for value in values), "bar")


def _usual(places: Sequence[RowColumn]) -> Iterator[RowColumn]:
    """Yield the columns of a table for which no names are given."""
    unseen = _DETAILS | UNSEEN | ({"line"} if any(place.path == ("file",) for place in places) else set())
    for place in places:
        if (
            not place.column.hidden
            and not unseen.intersection(place.path)
            and "_us_per_" not in place.path[-1]
        ):
            yield place


def _texts(place: RowColumn, rows: Sequence[msgspec.Struct]) -> Iterator[TextColumn]:
    """Yield a column of texts; three of a number of two sides."""
    (*_, name), column = place
    owners = [_value(row, place.path[:-1]) for row in rows]
    values = [None if owner is None else getattr(owner, name) for owner in owners]
    if any(isinstance(value, Pair) for value in values):
        pairs = [in_words(name, value) if value else (_UNKNOWN,) * 3 for value in values]
        for side, texts_of_side in zip(("baseline", "candidate", "change"), zip(*pairs)):
            needs = f"{column.label} candidate" if side == "baseline" else ""
            yield TextColumn(f"{column.label} {side}", texts_of_side, needs=needs)
        return
    kind = "unix" if name == _UNIX_TIME else column.kind or name.rpartition("_")[2]
    is_predicted = name in _SAVINGS or ("predicted" in place.path and name != "step_us")
    texts = [text_of(kind, value, is_predicted) for value in values]
    if name == "file":
        texts = [place_of(value, getattr(owner, "line", None)) for owner, value in zip(owners, values)]
    elif name == "compile_id":
        epochs = [getattr(owner, "epoch", 0) for owner in owners]
        texts = [f"{text} (after reset {epoch})" if epoch else text for text, epoch in zip(texts, epochs)]
    yield TextColumn(column.label, tuple(map(visible, texts)), _style(name, values, texts))


def _style(name: str, values: Sequence[Any], texts: Sequence[str]) -> _Style:
    if name in _PLACES:
        return "place"
    if name == "id":
        return "id"
    is_text = any(isinstance(value, str | dict) or is_names(value) for value in values)
    if not is_text or all(map(_NUMBER.fullmatch, texts)):
        return "number"
    is_name = name in NAMES or name == "finding"  # that has a row of its own
    is_prose = any(isinstance(value, str) and " " in value for value in values) and not is_name
    return "prose" if is_prose else "name"


def _value(row: Any, path: tuple[str, ...]) -> Any:
    return reduce(lambda value, name: None if value is None else getattr(value, name), path, row)


def text_of(kind: str, value: Any, is_predicted: bool = False) -> str:
    """Write a value of a column of this kind, a predicted one with two digits; a dash for what is unknown or empty."""
    if value is None or value in ("", [], (), {}):
        return _UNKNOWN
    if isinstance(value, dict):
        return ", ".join(_named(name, item, kind) for name, item in value.items())
    if isinstance(value, list | tuple):
        unique = dict.fromkeys(value) if isinstance(value[0], str) else value
        return ", ".join(map(str, unique)) if is_names(value) else f"{len(value):,}"
    if isinstance(value, str):
        return " ".join(value.split())
    if is_predicted and kind in _PREDICTED:
        return _PREDICTED[kind](value, 2)
    return _TEXT_OF_KIND.get(kind, "{:,}".format if isinstance(value, int) else significant)(value)


def _date(unix_s: float) -> str:
    if not 0 <= unix_s <= _LAST_DATE:
        return significant(unix_s)
    return f"{datetime.fromtimestamp(unix_s, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def is_names(value: Any) -> bool:
    """Whether a value is a list of names or numbers, and not of rows."""
    return isinstance(value, list | tuple) and not any(isinstance(item, msgspec.Struct) for item in value)


def _named(name: str, value: Any, kind: str) -> str:
    """Write an item of a dictionary, whose name may end with a unit."""
    words, unit, per = re.fullmatch(r"(.+?)(?:_(us|ns|s|percent|bytes)((?:_per_\w+)?))?", name).groups()  # type: ignore[union-attr]
    return f"{words}{per or ''} {text_of(unit or kind, value)}".replace("_", " ")


def place_of(file: str | None, line: int | None) -> str:
    """Return `train/model.py:12`: the end of a path says more than its start."""
    if not file:
        return _UNKNOWN
    short = "/".join(file.split("/")[-2:])
    return short if line is None else f"{short}:{line}"
