"""How does a window of the timeline travel to the browser? As a JSON header, then columns for typed arrays.

Little endian: uint32 N, then N bytes of JSON padded with spaces so that 4 + N is a multiple of 8, then the columns,
each at an `offset` behind the header that is a multiple of 8. docs/http.md describes the header and every column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.timeline.layout import Points
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline, Window
from tb_torchcompile_plugin.errors import visible

_ALIGN = 8  # bytes, of the widest typed array
_FULL_SHARE = 65535  # what a share of 1 is sent as: the most that 16 bits hold
_NO_POINTS = Points(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

_Encoded: TypeAlias = tuple[str, int, bytes]  # dtype, length, and what is sent


class WindowColumn(msgspec.Struct, frozen=True):
    """`length` values of `dtype` from byte `offset` behind the header."""

    dtype: str
    offset: int
    length: int


class WindowHeader(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """What a browser needs to read the columns."""

    start: int  # as requested, as are the next two
    end: int
    width: int
    aligned: list[int]  # what the answer covers: whole buckets
    bucket_ns: int
    names: list[str]
    columns: dict[str, WindowColumn]
    notes: list[str]


def timeline_window(timeline: Timeline, window: tuple[int, int], width: int, lanes: Sequence[int]) -> bytes:
    """Encode the rectangles of these lanes in [start, end) ns, for `width` pixels; raises BadRequest."""
    start, end = window
    return encoded(timeline.window(start, end, width, lanes), start, end, width)


def encoded(window: Window, start: int, end: int, width: int) -> bytes:
    """Encode the answer to a request for [start, end) on `width` pixels."""
    columns, blocks, offset = {}, [], 0
    for name, (dtype, length, block) in _columns(window).items():
        columns[name] = WindowColumn(dtype, offset, length)
        padding = -len(block) % _ALIGN
        blocks += [block, bytes(padding)]
        offset += len(block) + padding
    names = [visible(name) for name in window.names]
    aligned = [window.start, window.end]
    fields = WindowHeader(start, end, width, aligned, 1 << window.shift, names, columns, [])
    header = msgspec.json.encode(fields)
    header += b" " * (-(4 + len(header)) % _ALIGN)
    return b"".join((len(header).to_bytes(4, "little"), header, *blocks))


def _columns(window: Window) -> dict[str, _Encoded]:
    drawn, runs = window.rectangles, window.rectangles.runs
    length = runs.end - runs.start
    share = np.where(length > 0, runs.covered / np.maximum(length, 1), 1)
    lanes = np.repeat(list(window.counters), [len(points.start) for points in window.counters.values()])
    start, greatest, last = map(np.concatenate, zip(_NO_POINTS, *window.counters.values()))
    return {
        "lane": _integers(drawn.lane),
        "depth": _integers(runs.group),
        "start": _integers(runs.start - window.start),
        "dur": _integers(length),
        "name": _integers(drawn.name),
        "color": _integers(drawn.color),
        "count": _integers(runs.size),
        "busy": _integers(np.rint(share * _FULL_SHARE)),
        "row": _integers(runs.row),
        "counter_lane": _integers(lanes),
        "counter_start": _integers(start - window.start),
        "counter_max": ("f4", len(greatest), greatest.astype("<f4").tobytes()),
        "counter_last": ("f4", len(last), last.astype("<f4").tobytes()),
    }


def _integers(values: npt.NDArray[Any]) -> _Encoded:
    """Encode in the shortest type that holds all values. "i5": the low 32 bits of all, then their high 8."""
    low, high = (values.min(), values.max()) if len(values) else (0, 0)
    for dtype in ("u1", "u2", "u4", "i4"):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return dtype, len(values), values.astype(f"<{dtype}").tobytes()
    if low >= -(1 << 39) and high < 1 << 39:
        words = values.astype("<i8").view("<u4").reshape(-1, 2)
        return "i5", len(values), words[:, 0].tobytes() + words[:, 1].astype("u1").tobytes()
    return "f8", len(values), values.astype("<f8").tobytes()
