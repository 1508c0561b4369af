"""Answers as bytes, the same from a server and in a file."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.analysis.timeline.trace_events import lane_events
from tb_torchcompile_plugin.errors import ApiErrorBody, Notice, visible, visible_json
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.trace.source import find_head, open_readable, open_source
from tb_torchcompile_plugin.reader.trace.trim import trimmed


def json_body(value: object, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Return a Struct, a dataclass or plain data as JSON. NaN and infinities become null.

    enc_hook: what turns other types into these.
    """
    return visible_json(msgspec.json.encode(value, enc_hook=enc_hook))


class Body(NamedTuple):
    """An answer as it is sent."""

    type: str  # its MIME type
    data: bytes
    status: int = 200


def body_of(answer: object) -> Body:
    """Return a text, bytes, or what becomes JSON."""
    if isinstance(answer, str):
        return Body("text/plain", visible(answer).encode())
    if isinstance(answer, bytes):
        return Body("application/octet-stream", answer)
    return Body("application/json", json_body(answer))


def error_body(code: str, notice: Notice, status: int) -> Body:
    """Return the one shape of errors."""
    error = ApiErrorBody(code, notice.problem, notice.file, notice.next_step)
    return Body("application/json", json_body({"error": error}), status)


PANELS_PAGE = Path(__file__).with_name("panels.md")  # docs/reference/panels.md
_WORDS_FILE = Path(__file__).with_name("words.md")
_ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)


@cache
def terms() -> dict[str, dict[str, str]]:
    """Return what the words of the tab mean: set (a heading) → word → sentence."""
    sets = _WORDS_FILE.read_text(encoding="utf-8").split("\n## ")[1:]
    parts = (part.partition("\n") for part in sets)
    return {title.lower().replace(" ", "_"): dict(_ROW.findall(rows)) for title, _, rows in parts}


_BLOCK = 1 << 20  # bytes of a file that are read at once


@dataclass(frozen=True)
class Download:
    """A file for the user to keep."""

    name: str
    blocks: Iterator[bytes]
    size: int | None = None  # in bytes, None where it is unknown before the end


def trace_file(file: File) -> Download:
    """Return the trace as it is. Raises UserError where it cannot be read."""
    return Download(file.name, started(_raw(file)), None if file.part else file.size)


def timeline_trim(timeline: Timeline, window: tuple[int, int]) -> Download:
    """Return the events that touch [start, end] ns, and our lanes, as a gzipped trace. Raises UserError."""
    span = timeline.profile.span
    assert span is not None
    timeline.check(*window)
    stem = span.file.name.removesuffix(".gz").removesuffix(".json")
    return Download(f"{stem}.part.json.gz", started(_trimmed(timeline, span.file, window)))


def started(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Compute the first block at once: what fails then fails before an answer has begun."""
    first = next(blocks, b"")
    return chain((first,), blocks)


def _trimmed(timeline: Timeline, file: File, window: tuple[int, int]) -> Iterator[bytes]:
    start, end = (time + timeline.origin for time in window)
    with copies.local(file) as path:
        yield from trimmed(timeline.rows.trace, start, end, path, lane_events(timeline, *window))


def _raw(file: File) -> Iterator[bytes]:
    with copies.local(file) as path, os.fdopen(open_readable(path), "rb") as opened:
        with closing(open_source(path)) as source:
            find_head(source)  # a name or a link in a logdir does not make any file a trace
        # A file that grows is cut where the answer said it ends.
        left = os.path.getsize(path) if file.part else file.size
        while left > 0 and (block := opened.read(min(_BLOCK, left))):
            left -= len(block)
            yield block
