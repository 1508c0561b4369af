"""Slices by name and by thread, and the time that they cover."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.intervals import Int64s, Intervals, union, within
from tb_torchcompile_plugin.reader.kineto import Trace

Mask = npt.NDArray[np.bool_]


def host_slices(trace: Trace, pattern: re.Pattern[str]) -> Int64s:
    """Rows of the operators and annotations whose name matches."""
    codes = [code for code, name in enumerate(trace.names) if pattern.match(name)]
    host = trace.select(cat=("cpu_op", "user_annotation"))
    return host[np.isin(trace.name[host], codes)]


def by_track(trace: Trace, rows: Int64s) -> Iterator[tuple[int, Int64s]]:
    """(thread, its share of the rows)."""
    tracks = trace.track[rows]
    for track in np.unique(tracks):
        yield int(track), rows[tracks == track]


class Cover:
    """The time that slices cover, thread by thread."""

    def __init__(self, trace: Trace, rows: Int64s) -> None:
        self._trace = trace
        self._tracks = {
            track: union(trace.ts[mine], trace.ts[mine] + trace.dur[mine])
            for track, mine in by_track(trace, rows)
        }

    def on(self, track: int) -> Intervals:
        return self._tracks.get(track, Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64)))

    def holds(self, rows: Int64s) -> Mask:
        """Whether each slice starts inside; row -1 does not."""
        inside = np.zeros(len(rows), bool)
        tracks = np.where(rows >= 0, self._trace.track[rows], -1)
        for track, covered in self._tracks.items():
            here = np.flatnonzero(tracks == track)
            inside[here] = within(covered, self._trace.ts[rows[here]]) >= 0
        return inside
