"""A window of the timeline as bytes: a JSON header, then columns that a browser can use as typed arrays.

Little endian: uint32 N, then N bytes of JSON padded with spaces so that 4 + N is a multiple of 8, then the columns,
each at an `offset` behind the header that is a multiple of 8. docs/http.md describes the header and every column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.timeline.layout import Points
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline, Window
from tb_torchcompile_plugin.errors import visible

_ALIGN = 8
BUSY = 65535  # what a full share is sent as

_NO_POINTS = Points(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

Column = npt.NDArray[Any]
Packed = tuple[str, int, bytes]  # dtype, length, and what travels


class WindowColumn(msgspec.Struct, frozen=True):
    """Where a column lies: `length` values of `dtype` from byte `offset` behind the header."""

    dtype: str
    offset: int
    length: int


class WindowHeader(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """`start` … `end` (`from`, `to`) and `width` as they were asked for, and what was answered: whole buckets."""

    start: int
    end: int
    width: int
    aligned: list[int]
    bucket_ns: int
    names: list[str]
    columns: dict[str, WindowColumn]
    notes: list[str]


def timeline_window(timeline: Timeline, window: tuple[int, int], width: int, lanes: Sequence[int]) -> bytes:
    """The rectangles of these lanes in [start, end) ns, for `width` pixels. Raises BadRequest."""
    start, end = window
    return encoded(timeline.window(start, end, width, lanes), start, end, width)


def encoded(window: Window, start: int, end: int, width: int) -> bytes:
    """The answer to a request for [start, end) on `width` pixels."""
    columns, blocks, offset = {}, [], 0
    for name, (dtype, length, block) in _columns(window).items():
        columns[name] = WindowColumn(dtype, offset, length)
        padding = -len(block) % _ALIGN
        blocks += [block, bytes(padding)]
        offset += len(block) + padding
    names = [*map(visible, window.names)]
    header = WindowHeader(
        start, end, width, [window.start, window.end], 1 << window.shift, names, columns, []
    )
    text = msgspec.json.encode(header)
    text += b" " * (-(4 + len(text)) % _ALIGN)
    return b"".join((len(text).to_bytes(4, "little"), text, *blocks))


def _columns(window: Window) -> dict[str, Packed]:
    drawn, runs = window.rectangles, window.rectangles.runs
    length = runs.end - runs.start
    share = np.where(length > 0, runs.covered / np.maximum(length, 1), 1)
    lanes = np.repeat(list(window.counters), [len(counter.start) for counter in window.counters.values()])
    start, greatest, last = map(np.concatenate, zip(_NO_POINTS, *window.counters.values()))
    return {
        "lane": _whole(drawn.lane),
        "depth": _whole(runs.group),
        "start": _whole(runs.start - window.start),
        "dur": _whole(length),
        "name": _whole(drawn.name),
        "color": _whole(drawn.color),
        "count": _whole(runs.size),
        "busy": _whole(np.rint(share * BUSY)),
        "row": _whole(runs.row),
        "counter_lane": _whole(lanes),
        "counter_start": _whole(start - window.start),
        "counter_max": ("f4", len(greatest), greatest.astype("<f4").tobytes()),
        "counter_last": ("f4", len(last), last.astype("<f4").tobytes()),
    }


def _whole(values: Column) -> Packed:
    """Whole numbers in the shortest type that holds them all. "i5": the low 32 bits of all, then their high 8."""
    low, high = (values.min(), values.max()) if len(values) else (0, 0)
    for dtype in ("u1", "u2", "u4", "i4"):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return dtype, len(values), values.astype(f"<{dtype}").tobytes()
    if low >= -(1 << 39) and high < 1 << 39:
        words = values.astype("<i8").view("<u4").reshape(-1, 2)
        return "i5", len(values), words[:, 0].tobytes() + words[:, 1].astype("u1").tobytes()
    return "f8", len(values), values.astype("<f8").tobytes()
