"""Tables, and the words that they share, in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

_CELL_WIDTH = 72
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline
Cell = str | int | float | None


def visible(text: str) -> str:
    """Text of a program or a log, with the control characters written out that a terminal would obey."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Plain(Text):
    """Words on the terminal: never markup, never control characters."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(visible(text), style=style)


def table(console: Console, title: str, columns: Iterable[str], rows: Iterable[tuple[Cell, ...]]) -> None:
    """A table, or nothing without rows. `>x` is aligned right, `~x` may wrap.

    Cells are text, never markup.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        justify: JustifyMethod = "right" if column[0] == ">" else "left"
        table.add_column(column.lstrip(">~"), justify=justify, overflow="fold", no_wrap=column[0] != "~")
    for row in rows:
        table.add_row(*(Plain(_cell(value)) for value in row))
    if table.row_count:
        console.print(Plain(title, style="bold"), soft_wrap=True)
        console.print(table)
        console.print()


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if len(text) <= _CELL_WIDTH else text[: _CELL_WIDTH - 1] + "…"


def place(file: str, line: int | None) -> str | None:
    """`…/train/model.py:12`: the end of a path tells more than its start."""
    if not file:
        return None
    parts = file.split("/")
    short = file if len(parts) <= 3 else "/".join(["…", *parts[-2:]])
    return short if line is None else f"{short}:{line}"


class _OfACompilation(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def compile_id(self) -> str: ...


def compile_id(row: _OfACompilation) -> str | None:
    """ "0/0", and "0/0 (after reset 1)" where ids began anew; None where torch told none."""
    if not row.compile_id:
        return None
    return f"{row.compile_id} (after reset {row.epoch})" if row.epoch else row.compile_id


def first_lines(reasons: list[str]) -> str:
    """One line out of several texts."""
    return "; ".join(reason.splitlines()[0] for reason in reasons if reason)


def plural(number: int, one: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{number} {one}{'' if number == 1 else 's'}"
