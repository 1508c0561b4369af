"""The slices of a trace line by line, as a timeline draws them, with their levels of detail.

A line is a track and a depth. Slices that outlast their parent would cover what follows it, so they get lines of their
own below all others of the track: nothing overlaps, and nothing is left out.
"""

from __future__ import annotations

import heapq

import numpy as np

from tb_torchcompile_plugin.profile import level_of_detail as detail
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.reader.trace.kineto import Trace


class TraceRows:
    """Rows of the trace by (track, line, time). A *group* is one line of one track; times count from `origin`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.origin, self.end = trace.window()
        depth = np.array(trace.depth)
        self.crossing, self._clamped = crossing_rows(trace)
        tracks = range(len(trace.tracks))
        self.depths = [self._deepest(depth, track) for track in tracks]  # without lines of crossing slices
        lines = self._lines(depth)
        self.lines = [self._deepest(lines, track) for track in tracks]
        self.first_group = np.concatenate(([0], np.cumsum(self.lines, dtype=np.int64)))
        group = lines + np.repeat(self.first_group[:-1], np.diff(trace.track_bounds)).astype(np.int32)
        self.groups = int(self.first_group[-1])
        narrow = np.uint16 if self.groups < 2**16 else np.int64  # 16 bits are sorted by radix
        self.order = np.argsort(group.astype(narrow), kind="stable").astype(
            np.int32 if len(trace) < 2**31 else np.int64
        )
        counts = np.bincount(group, minlength=self.groups) if len(group) else np.zeros(0, np.int64)
        self.bounds = np.concatenate(([0], np.cumsum(counts)))

    def runs(self, track: int, start: int, end: int, shift: int) -> detail.MergedSlices:
        """The runs of level `shift` of one track that touch [start, end), by (group, start)."""
        groups = range(int(self.first_group[track]), int(self.first_group[track + 1]))
        level = detail.coarsest(self._levels, shift)
        window = start, end, shift
        near = level.window(groups, *window) if level else self._slices(groups, track, *window)
        return detail.touching(detail.merged(near, shift), start, end)

    def line_of(self, row: int) -> int:
        """The line in which a row is drawn."""
        track = int(self.trace.track[row])
        crossing = int(np.searchsorted(self.crossing, row))
        if crossing < len(self.crossing) and self.crossing[crossing] == row:
            return self.depths[track] + int(self._extra_lines[crossing])
        return int(self.trace.depth[row])

    def touching(self, track: int, start: int, end: int) -> Int64s:
        """The rows of one track that touch [start, end)."""
        groups = range(int(self.first_group[track]), int(self.first_group[track + 1]))
        rows: Int64s = detail.touching(self._slices(groups, track, start, end, 0), start, end).row
        return rows

    def clamped_end(self, rows: Int64s) -> Int64s:
        """Where slices end if none may outlast its parent, in the trace's own time."""
        ends: Int64s = self.trace.ts[rows] + self.trace.dur[rows]
        if len(self.crossing):
            place = np.minimum(np.searchsorted(self.crossing, rows), len(self.crossing) - 1)
            ends = np.where(self.crossing[place] == rows, self._clamped[place], ends)
        return ends

    @once
    def _levels(self) -> list[detail.Level]:
        """Browsers ask for several windows at a time, and would wait for as many times the work."""
        if len(self.trace) < _WORTH_LEVELS:
            return []
        lines = (self._line(group) for group in range(self.groups))
        return list(detail.levels(lines, self.groups, self.end - self.origin))

    def _line(self, group: int) -> detail.MergedSlices:
        rows = self.order[int(self.bounds[group]) : int(self.bounds[group + 1])]
        return detail.singles(
            np.full(len(rows), group, np.int32), self.trace.ts[rows] - self.origin, self.trace.dur[rows], rows
        )

    def _slices(self, groups: range, track: int, start: int, end: int, shift: int) -> detail.MergedSlices:
        first, last = self.trace.track_bounds[track : track + 2].tolist()
        moments = np.array((start - (1 << shift), end)) + self.origin
        low_row, high_row = first + np.searchsorted(self.trace.ts[first:last], moments)
        places, sizes = [], []
        for group in groups:
            begin, stop = int(self.bounds[group]), int(self.bounds[group + 1])
            low, high = begin + np.searchsorted(self.order[begin:stop], (low_row, high_row))
            low = max(low - 1, begin)  # one that began before may still run
            places.append(self.order[low:high])
            sizes.append(high - low)
        rows = np.concatenate(places) if places else np.zeros(0, np.int64)
        group_of = np.repeat(np.array(groups, np.int32), sizes)
        return detail.singles(group_of, self.trace.ts[rows] - self.origin, self.trace.dur[rows], rows)

    def _lines(self, depth: Int64s) -> Int64s:
        lines = depth
        lines[self.crossing] = np.array(self.depths)[self.trace.track[self.crossing]] + self._extra_lines
        return lines

    @once
    def _extra_lines(self) -> Int64s:
        """Of each crossing slice its line below the ordinary ones of its track."""
        lines = np.zeros(len(self.crossing), np.int64)
        tracks = self.trace.track[self.crossing]
        for track in np.unique(tracks):
            here = np.flatnonzero(tracks == track)
            start = self.trace.ts[self.crossing[here]]
            lines[here] = packed(start, start + self.trace.dur[self.crossing[here]])
        return lines

    def _deepest(self, depth: Int64s, track: int) -> int:
        first, last = self.trace.track_bounds[track : track + 2].tolist()
        return int(depth[first:last].max()) + 1 if last > first else 0


_WORTH_LEVELS = 100_000  # slices; fewer are merged anew for each window


def crossing_rows(trace: Trace) -> tuple[Int64s, Int64s]:
    """The slices that outlast their parent, or what is left of it, in order of rows; and where that ends."""
    if not trace.crossing:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    end = trace.ts + trace.dur
    clamped = end.copy()
    rows = inner = np.flatnonzero(trace.parent >= 0)
    while len(rows):
        limit = clamped[trace.parent[rows]]
        cut = limit < clamped[rows]
        clamped[rows[cut]] = limit[cut]
        shorter = np.zeros(len(end), bool)
        shorter[rows[cut]] = True
        rows = inner[shorter[trace.parent[inner]]]  # what lies inside of those may now outlast them, too
    crossing = np.flatnonzero(clamped < end)
    return crossing, clamped[crossing]


def packed(start: Int64s, end: Int64s) -> Int64s:
    """For intervals by start: the first line that is free again when each begins."""
    lines = np.zeros(len(start), np.int64)
    busy: list[tuple[int, int]] = []  # (until when, line)
    free: list[int] = []
    for place, (begin, stop) in enumerate(zip(start.tolist(), end.tolist())):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lines[place] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stop, int(lines[place])))
    return lines
