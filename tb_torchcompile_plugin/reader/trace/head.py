"""What stands around the event array: where it starts, and the metadata before and behind it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.other_formats import other_format
from tb_torchcompile_plugin.reader.trace.repair import load_object, repair_object
from tb_torchcompile_plugin.reader.trace.source import Source

_MAX_HEAD = 32 << 20
_SNIFFED = 64 << 10  # bytes that show whether another tool wrote the file
# a text of any length takes no memory: nothing in it is tried in two ways
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_BOM = re.compile(rb"\A\0*(?:\xef\xbb\xbf)?")
_ARRAY = re.compile(rb"\s*:\s*(\[)")
_ANYWHERE = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE_NS = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d+)')
_EVENT_KEY = re.compile(rb'"ph"\s*:')


@dataclass(frozen=True)
class Head:
    """`start`: the offset behind the `[` of the event array. `text`: what stands before it, "" for a bare array."""

    start: int
    text: bytes


@dataclass
class Surroundings:
    """metadata: every top-level key but traceEvents. second_document_events: events found behind the document."""

    metadata: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    second_document_events: int = 0


def find_head(source: Source) -> Head:
    """Find where the events start. Raises UserError for a file that holds no trace."""
    count = 64 << 10
    while True:
        text = source.read(0, count)
        complete = len(text) < count
        start = _array_start(text)
        if start is None and complete:
            match = _ANYWHERE.search(text)
            start = match.end() if match else None
        if start is not None and not other_format("", text[:_SNIFFED]):
            return Head(start, _BOM.sub(b"", text[: start - 1]))
        if start is not None or complete or count >= _MAX_HEAD:
            raise _no_trace(source, text)
        count *= 8


def _no_trace(source: Source, text: bytes) -> UserError:
    if known := other_format("", text[:_SNIFFED]):
        problem, step = known
    elif not text:
        problem, step = source.problem or "the file holds nothing", "Record the trace again"
    elif text.lstrip()[:1] in (b"{", b"["):
        problem = (
            "this JSON file holds no traceEvents; it is no profiler trace, or it is cut off before its events"
        )
        step = "If the profiler is still writing it, try again later"
    else:
        problem, step = (
            "this is no profiler trace: it is not JSON",
            "Give a *.pt.trace.json or *.pt.trace.json.gz file",
        )
    return UserError(problem, file=source.path, next_step=step)


def _array_start(text: bytes) -> int | None:
    """Return the offset behind the `[`, of the document itself or of its traceEvents; None where there is none."""
    body = _BOM.sub(b"", text).lstrip()
    if body[:1] == b"[":
        start = text.index(b"[") + 1
        return start if text[start:].lstrip()[:1] in (b"{", b"]") else None
    if body[:1] != b"{":
        return None
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token.group(0)[:1]
        if first != b'"':
            depth += 1 if first in (b"{", b"[") else -1
        elif depth == 1 and token.group(0) == b'"traceEvents"' and (array := _ARRAY.match(text, token.end())):
            return array.end(1)
    return None


def read_surroundings(head: Head, tail: bytes | None) -> Surroundings:
    """Read the metadata before the array and behind its `]` (None where the file is cut off before it)."""
    if not head.text.strip():
        return Surroundings(problem="something follows the event array" if tail and tail.strip() else "")
    text = head.text + (b"[]}" if tail is None else b"[]" + tail)
    start = len(text) - len(text.lstrip())
    try:
        end = start + json.JSONDecoder(strict=False).raw_decode(text[start:].decode("latin-1"))[1]
    except (ValueError, RecursionError):
        repaired = repair_object(text, float)
        metadata = dict((repaired and repaired[0]) or load_object(head.text + b"[]}", float) or {})
        if base := _BASE_NS.search(text):
            metadata.setdefault("baseTimeNanoseconds", int(base.group(1)))
        around = Surroundings(metadata, "the metadata around the events is damaged or cut off")
    else:
        rest = text[end:].strip(b" \t\r\n\0")
        problem = "something follows the end of the trace and was ignored" if rest else ""
        metadata = load_object(text[:end], float) or {}
        around = Surroundings(metadata, problem, len(_EVENT_KEY.findall(rest)))
    around.metadata.pop("traceEvents", None)
    return around
