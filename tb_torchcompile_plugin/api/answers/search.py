"""Rows in which a word stands, wherever they are; and the lines of the program that a recording knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tb_torchcompile_plugin.analysis.runtime.source import ProgramLine
from tb_torchcompile_plugin.api.answers.tables import Table, tables
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.errors import NotFound, WrongArgument

_AROUND = 60  # characters of a text, on each side of the word
_LINES = 6  # before and after the one that is asked for


class Match(msgspec.Struct, frozen=True):
    """says: where the word stands in the row."""

    id: str
    says: str


class Matches(msgspec.Struct, frozen=True):
    """total: of all tables, of which the first are listed."""

    total: int
    matches: list[Match]


class KnownLine(msgspec.Struct, frozen=True):
    """A line of the program. text: None where it was not recorded, and no_text says why. id: of its row in `source`,
    None where nothing was measured of it. Times are a step."""

    line: int
    text: str | None
    no_text: str | None = None
    id: str | None = None
    kernel_us: float | None = None
    host_us: float | None = None
    graph_breaks: int = 0
    recompiles: int = 0


class KnownLines(msgspec.Struct, frozen=True):
    """What was recorded of a file, by no means all of it: lines that ran, or that a stack names."""

    file: str
    lines: list[KnownLine]


def search(report: Report, word: str) -> Matches:
    """Without regard to case, findings first. Raises WrongArgument without a word."""
    if not word.strip():
        raise WrongArgument(
            "there is nothing to search for", next_step="Name a kernel, an operator, a file or a word"
        )
    matches = [match for table in tables(report) for match in _matches(table, word.lower())]
    return Matches(len(matches), matches)


def source_lines(report: Report, place: str) -> KnownLines:
    """place: "train.py:12", or "train.py" for all of it; of a path its end is enough. Raises NotFound."""
    name, _, number = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
    known = _known(report)
    file = next((file for file in known if f"/{file}".endswith(f"/{name}")), None)
    if file is None or not name:
        there = ", ".join(dict.fromkeys(file.rpartition("/")[2] for file in known)) or "none"
        raise NotFound(f"no line of {name!r} was recorded", next_step=f"There are lines of {there}")
    lines = sorted(known[file].values(), key=lambda line: line.line)
    if number:
        lines = [line for line in lines if abs(line.line - int(number)) <= _LINES]
    return KnownLines(file, lines)


def _matches(table: Table, word: str) -> Iterator[Match]:
    for id, row in zip(table.ids, table.rows):
        for text in _texts(msgspec.to_builtins(row)):
            if (at := text.lower().find(word)) >= 0:
                yield Match(id, text[max(0, at - _AROUND) : at + len(word) + _AROUND])
                break


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _known(report: Report) -> dict[str, dict[int, KnownLine]]:
    """By file and line: what was measured, else what a stack tells."""
    known: dict[str, dict[int, KnownLine]] = {}
    for table in tables(report):
        for id, row in zip(table.ids, table.rows):
            if isinstance(row, ProgramLine):
                known.setdefault(row.file, {})[row.line] = _measured(id, row)
            for frame in getattr(row, "stack", None) or ():
                known.setdefault(frame.file, {}).setdefault(frame.line, KnownLine(frame.line, frame.source))
    return known


def _measured(id: str, row: ProgramLine) -> KnownLine:
    counts = len(row.breaks), len(row.recompiles)
    return KnownLine(row.line, row.text, row.no_text, id, row.kernel_us, row.host_us, *counts)
