"""Tables, and the words that they share, in a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_torchcompile_plugin.analysis.compare.pairs import Pair
from tb_torchcompile_plugin.errors import visible

_CELL_WIDTH = 72
_UNIT = re.compile(r"_(us|s|percent)$")
_UNITS = {"us": "µs", "s": "s", "percent": "%"}
Cell = str | int | float | Pair | list[str] | None
Row = TypeVar("Row")


class Plain(Text):
    """Words on the terminal: never markup, never control characters."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(visible(text), style=style)


class Whole(str):
    """A text that is not cut, however long: to be copied."""


def nobody_reads() -> None:
    """After BrokenPipeError: `| head` has seen enough, and what is still to be printed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(
    console: Console,
    title: str,
    rows: Iterable[Row],
    columns: str,
    most: int | None = None,
    /,
    **makers: Callable[[Row], Cell],
) -> None:
    """A table, or nothing without rows. A column is named after the field of the rows that it shows, or after the
    function among `makers` that makes its cells; its head is that name. Of many rows the first `most` are shown.

    Cells are text, never markup.
    """
    rows = list(rows)
    if not rows:
        return
    cell_of = {name: makers.get(name) or _maker(name) for name in columns.split()}
    cells = [[make(row) for make in cell_of.values()] for row in islice(rows, most)]
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, column in zip(cell_of, zip(*cells)):
        for head in _heads(name, column):
            words = all(isinstance(cell, str | list | None) for cell in column) and not _UNIT.search(name)
            shown.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for line in cells:
        shown.add_row(*(Plain(text) for cell in line for text in _texts(cell)))
    of = f", {most} of {len(rows)}" if most is not None and len(rows) > most else ""
    console.print(Plain(title + of, style="bold"), soft_wrap=True)
    console.print(shown)
    console.print()


def _maker(name: str) -> Callable[[Any], Cell]:
    return _OTHERWISE.get(name) or (lambda row: getattr(row, name))


def _heads(name: str, column: tuple[Cell, ...]) -> Iterator[str]:
    """ "wall_us" → "wall µs"; a number of two sides has three heads."""
    unit = _UNIT.search(name)
    words = name[: unit.start()] if unit else name
    head = " ".join([words.replace("_", " ").replace("gpu", "GPU"), *([_UNITS[unit[1]]] if unit else [])])
    yield from (f"{head} A", "B", "change") if isinstance(column[0], Pair) else (head,)


def _texts(cell: Cell) -> Iterator[str]:
    if isinstance(cell, Pair):
        yield from (_short(number) for number in (cell.a, cell.b, cell.delta))
    elif isinstance(cell, float):
        yield f"{cell:.3f}"
    else:
        text = ", ".join(dict.fromkeys(cell)) if isinstance(cell, list) else str(cell)
        text = "–" if cell is None or cell == [] else text
        yield text if len(text) <= _CELL_WIDTH or isinstance(cell, Whole) else text[: _CELL_WIDTH - 1] + "…"


def _short(number: float | None) -> str:
    return "–" if number is None else f"{number:,.3f}".rstrip("0").rstrip(".")


def place(file: str | None, line: int | None) -> str | None:
    """`…/train/model.py:12`: the end of a path tells more than its start."""
    if not file:
        return None
    parts = file.split("/")
    short = file if len(parts) <= 3 else "/".join(["…", *parts[-2:]])
    return short if line is None else f"{short}:{line}"


def epoch_and_id(row: Any) -> str | None:
    """ "0/0", and "0/0 (after reset 1)" where ids began anew; None where torch told none."""
    epoch = getattr(row, "epoch", 0)
    return f"{row.compile_id} (after reset {epoch})" if epoch else row.compile_id or None


_OTHERWISE: dict[str, Callable[[Any], Cell]] = {
    "compile_id": epoch_and_id,
    "device": lambda row: str(row.device),
    "where": lambda row: place(row.file, row.line),
}


def first_lines(reasons: list[str]) -> str:
    """One line out of several texts."""
    return "; ".join(reason.splitlines()[0] for reason in reasons if reason)
