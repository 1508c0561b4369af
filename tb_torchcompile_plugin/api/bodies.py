"""Answers as bytes, the same from a server and in a file; and results of analyses as events of a trace."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.source_lines import line_launches
from tb_torchcompile_plugin.analysis.timeline.lanes import Item, ItemSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.errors import ApiErrorBody, Notice, visible, visible_json
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.trace.source import find_head, open_readable, open_source
from tb_torchcompile_plugin.reader.trace.trim import trimmed
from tb_torchcompile_plugin.torch_names.slices import LANE_CAT

_PROCESS = "torch.compile"
_encode = msgspec.json.Encoder(decimal_format="number").encode


def lane_events(timeline: Timeline, start: int, end: int) -> Iterator[bytes]:
    """Yield the items that touch [start, end] ns of the timeline as JSON events of a process of their own."""
    yield _encode({"ph": "M", "name": "process_sort_index", "pid": _PROCESS, "args": {"sort_index": -1}})
    for title, lane in grouped(_items(timeline, start, end), lambda pair: pair[0]).items():
        slices = ItemSlices.of([item for _, item in lane])
        ends, inner = slices.start + slices.dur, np.flatnonzero(slices.line).tolist()
        # Programs that draw slices expect that each ends within the one around it on its thread.
        are_nested = all(ends[row] <= ends[slices.parent(row)] for row in inner)
        for line, item in zip(slices.line.tolist(), slices.items):
            thread = title if are_nested or not line else f"{title} ({line + 1})"
            yield _event(item, thread, timeline.origin)


def _items(timeline: Timeline, start: int, end: int) -> Iterator[tuple[str, Item]]:
    """Yield what there is, with the title of its lane: items of the timeline, then the category of each kernel."""
    for lane in timeline.lanes:
        slices = timeline.slices.get(lane.id)
        title = f"{lane.title}, {lane.group}" if lane.kind == "gaps" else lane.title
        for item in slices.items if isinstance(slices, ItemSlices) else ():
            if item.start <= end and item.start + item.dur >= start:
                yield title, item
    trace = timeline.profile.trace
    for kernel, rows, at, lines, modules, _ in timeline.profile.of(line_launches):
        title = f"Kernel categories, {'CPU' if kernel.device == 'cpu' else f'GPU {kernel.device}'}"
        places = [line.key for line in lines]
        facts = {"kernel": kernel.name, "graph_key": kernel.graph_key, "lines": places, "modules": modules}
        begin = trace.ts[rows.index[at]] - timeline.origin
        for time, duration in zip(begin.tolist(), rows.dur[at].tolist()):
            if time <= end and time + duration >= start:
                yield title, Item(kernel.category, time, duration, "", None, kernel.compile_id, facts=facts)


def _event(item: Item, thread: str, origin: int) -> bytes:
    cause = item.color.partition("gap_")[2].replace("_", " ")  # of idle time, which has the name of host work
    args = {"compile_id": item.compile_id, "host": cause and item.name, **item.facts}
    fields = {"ph": "X", "cat": LANE_CAT, "name": cause or item.name, "pid": _PROCESS, "tid": thread}
    # As torch writes them: µs with all digits of a nanosecond, on the clock of the trace.
    times = {"ts": Decimal(item.start + origin).scaleb(-3), "dur": Decimal(item.dur).scaleb(-3)}
    known = {name: value for name, value in args.items() if value not in (None, "", [])}
    return visible_json(_encode({**fields, **times, "args": known}))


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
