"""Python tracebacks in torch's texts. Standard library only: this runs inside training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE)
_SUMMARY = re.compile(r"Line: (?P<line>\d+), Name: (?P<function>.*), Filename: (?P<file>.*)$", re.DOTALL)


class TracebackFrame(NamedTuple):
    """`source`: the line of code below it, "" where it is not quoted."""

    file: str
    line: int
    function: str
    source: str = ""


def places(text: str) -> Iterator[TracebackFrame]:
    """The frames of all formatted tracebacks in a text, outermost first, each with the code that is quoted below it."""
    for match in _FRAME.finditer(text):
        below = text[match.end() + 1 :].partition("\n")[0]
        quoted = below.startswith(("    ", "\t")) and below.strip("^~ \t\r") and not _FRAME.match(below)
        yield TracebackFrame(
            match["file"], int(match["line"]), match["function"].strip(), below.strip() if quoted else ""
        )


def first_traceback(text: str) -> str:
    """The first traceback of a text, up to the line that does not belong to it."""
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith('  File "')), len(lines))
    last = next((at for at in range(first, len(lines)) if lines[at][:2] != "  "), len(lines))
    return "\n".join(lines[first:last])


def summary_place(text: str) -> TracebackFrame | None:
    """A frame as torch keeps it in its metrics."""
    match = _SUMMARY.match(text)
    return TracebackFrame(match["file"], int(match["line"]), match["function"]) if match else None
