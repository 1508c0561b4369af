"""Print tables and lines in a terminal: the helpers that all commands share."""

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
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.logdir.filesystem import explain_write_errors

# Characters: two such cells and some numbers fit into 160 columns, which most tables print to.
_CELL_WIDTH = 72
_UNIT = re.compile(r"_(us|s|percent)$")
_UNITS = {"us": "µs", "s": "s", "percent": "%"}
Cell = str | int | float | Pair | list[str] | None
Row = TypeVar("Row")


class Plain(Text):
    """Words on the terminal: never markup, never control characters."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(visible(text), style=style)


class FullText(str):
    """A text that is not cut, however long: to be copied."""


def stdout_console(width: int | None = None) -> Console:
    """Return a console on stdout. width: where stdout is not a terminal; None for 80 columns."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else width)


def print_lines(console: Console, *lines: str, indent: str = "") -> None:
    """Print each line as it is, however long."""
    for line in lines:
        console.print(Plain(indent + line), soft_wrap=True)


def print_json(value: object) -> None:
    """Print one JSON object."""
    sys.stdout.write(json_body(value).decode() + "\n")


def write_text(file: str, text: str, mode: str = "w") -> None:
    """Write a file. Raises UserError where that fails."""
    with explain_write_errors(file), open(file, mode, encoding="utf-8", errors="backslashreplace") as target:
        target.write(text)


def discard_stdout() -> None:
    """Discard what is still to be printed. Called after BrokenPipeError: `| head` has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(
    console: Console,
    title: str,
    rows: Iterable[Row],
    columns: str | list[str],
    max_rows: int | None = None,
    /,
    **cells: Callable[[Row], Cell],
) -> None:
    """Print a table, or nothing without rows.

    A column is named after the field of the rows that it shows, or after the function among `cells` that makes its
    cells; its head is that name. A row may be a tuple of a record and its part: a field is the part's if it has it.
    """
    rows = list(rows)
    if not rows:
        return
    names = columns.split() if isinstance(columns, str) else columns
    cell_of = {name: cells.get(name) or _field(name) for name in names}
    lines = [[cell(row) for cell in cell_of.values()] for row in islice(rows, max_rows)]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, column in zip(cell_of, zip(*lines)):
        for head in _heads(name, column):
            words = all(isinstance(cell, str | list | None) for cell in column) and not _UNIT.search(name)
            grid.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for line in lines:
        grid.add_row(*(Plain(text) for cell in line for text in _texts(cell)))
    count = f", {max_rows} of {len(rows)}" if max_rows is not None and len(rows) > max_rows else ""
    console.print(Plain(title + count, style="bold"), soft_wrap=True)
    console.print(grid)
    console.print()


def _field(name: str) -> Callable[[Any], Cell]:
    def cell(row: Any) -> Cell:
        part = next(part for part in reversed(row) if hasattr(part, name)) if type(row) is tuple else row
        value: Cell = _DERIVED[name](part) if name in _DERIVED else getattr(part, name)
        return value

    return cell


def _heads(name: str, column: tuple[Cell, ...]) -> Iterator[str]:
    """Yield "wall µs" for "wall_us"; a number of two sides has three heads."""
    unit = _UNIT.search(name)
    words = name[: unit.start()] if unit else name
    head = " ".join([words.replace("_", " ").replace("gpu", "GPU"), *([_UNITS[unit[1]]] if unit else [])])
    yield from (f"{head} A", "B", "change") if isinstance(column[0], Pair) else (head,)


def _texts(cell: Cell) -> Iterator[str]:
    if isinstance(cell, Pair):
        for number in (cell.a, cell.b, cell.delta):
            yield "–" if number is None else f"{number:,.3f}".rstrip("0").rstrip(".")
    elif isinstance(cell, float):
        yield f"{cell:.3f}"
    else:
        text = ", ".join(dict.fromkeys(cell)) if isinstance(cell, list) else str(cell)
        text = "–" if cell is None or cell == [] else text
        fits = len(text) <= _CELL_WIDTH or isinstance(cell, FullText)
        yield text if fits else text[: _CELL_WIDTH - 1] + "…"


def place(file: str | None, line: int | None) -> str | None:
    """Return `…/train/model.py:12`: the end of a path says more than its start."""
    if not file:
        return None
    parts = file.split("/")
    short = file if len(parts) <= 3 else "/".join(["…", *parts[-2:]])
    return short if line is None else f"{short}:{line}"


def _epoch_and_id(row: Any) -> str | None:
    """Return "0/0", and "0/0 (after reset 1)" where ids began again; None where torch recorded none."""
    epoch = getattr(row, "epoch", 0)
    return f"{row.compile_id} (after reset {epoch})" if epoch else row.compile_id or None


_DERIVED: dict[str, Callable[[Any], Cell]] = {
    "compile_id": _epoch_and_id,
    "device": lambda row: str(row.device),
    "where": lambda row: place(row.file, row.line),
}


def first_lines(reasons: list[str]) -> str:
    """Return one line from several texts."""
    return "; ".join(reason.splitlines()[0] for reason in reasons if reason)
