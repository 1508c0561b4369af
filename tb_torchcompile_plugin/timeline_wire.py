"""A window of the timeline as bytes: a JSON header, then columns that a browser can use as typed arrays.

Little endian: uint32 N, then N bytes of JSON padded with spaces so that 4 + N is a multiple of 8, then the columns,
each at an `offset` behind the header that is a multiple of 8. docs/http.md describes the header and every column.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.timeline import Window

_ALIGN = 8


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


def encoded(window: Window, start: int, end: int, width: int) -> bytes:
    """The answer to a request for [start, end) on `width` pixels."""
    arrays = {name: np.ascontiguousarray(values, dtype) for name, (dtype, values) in _columns(window).items()}
    columns, blocks, offset = {}, [], 0
    for name, values in arrays.items():
        columns[name] = WindowColumn(values.dtype.str[1:], offset, len(values))
        padding = -values.nbytes % _ALIGN
        blocks += [values.tobytes(), bytes(padding)]
        offset += values.nbytes + padding
    header = WindowHeader(
        start, end, width, [window.start, window.end], 1 << window.shift, window.names, columns, []
    )
    text = msgspec.json.encode(header)
    text += b" " * (-(4 + len(text)) % _ALIGN)
    return b"".join((len(text).to_bytes(4, "little"), text, *blocks))


def _columns(window: Window) -> dict[str, tuple[str, Any]]:
    drawn, runs = window.rectangles, window.rectangles.runs
    length = runs.end - runs.start
    points = window.counters.items()
    return {
        "lane": ("<u2", drawn.lane),
        "depth": ("<u2", runs.group),
        "start": ("<f8", runs.start),
        "dur": ("<f8", length),
        "name": ("<i4", drawn.name),
        "color": ("<u1", drawn.color),
        "count": ("<i4", runs.size),
        "busy": ("<f4", np.where(length > 0, runs.covered / np.maximum(length, 1), 1)),
        "row": ("<i4", runs.row),
        "counter_lane": ("<u2", np.repeat(list(window.counters), [len(found.start) for _, found in points])),
        **{
            f"counter_{name}": ("<f8", np.concatenate([getattr(found, field) for _, found in points] or [[]]))
            for name, field in (("start", "start"), ("min", "least"), ("max", "greatest"), ("last", "last"))
        },
    }
