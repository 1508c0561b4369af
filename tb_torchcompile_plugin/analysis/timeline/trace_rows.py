"""In which line of the timeline is each slice of a trace drawn, at which level of detail?

A line is a track and a depth. Slices that outlast their parent would cover what follows it, so they get lines of their
own below all others of the track: nothing overlaps, and nothing is left out.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np

from tb_torchcompile_plugin.profile import level_of_detail as detail
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.reader.trace.kineto import Trace

_MIN_SLICES_FOR_LEVELS = 100_000  # fewer are merged again for each window


class TraceRows:
    """Rows of the trace by (track, line, time). A *group* is one line of one track; times count from `origin`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.origin, self.end = trace.window()
        self.crossing, self._clamped = crossing_rows(trace)
        lines = np.array(trace.depth)
        self.depths = self._count_lines(lines)  # by track, without lines of crossing slices
        lines[self.crossing] = np.array(self.depths)[trace.track[self.crossing]] + self._extra_lines
        self.lines = self._count_lines(lines)
        self.first_group = np.concatenate(([0], np.cumsum(self.lines, dtype=np.int64)))
        self.groups = int(self.first_group[-1])
        group = lines + np.repeat(self.first_group[:-1], np.diff(trace.track_bounds)).astype(np.int32)
        narrow = np.uint16 if self.groups < 2**16 else np.int64  # numpy sorts 16 bits by radix
        order = np.argsort(group.astype(narrow), kind="stable")
        self.order = order.astype(np.int32 if len(trace) < 2**31 else np.int64)
        counts = np.bincount(group, minlength=self.groups) if len(group) else np.zeros(0, np.int64)
        self.bounds = np.concatenate(([0], np.cumsum(counts)))

    def _count_lines(self, lines: Int64s) -> list[int]:
        bounds = self.trace.track_bounds.tolist()
        return [int(lines[first:last].max(initial=-1)) + 1 for first, last in pairwise(bounds)]

    @once
    def _extra_lines(self) -> Int64s:
        """The line of each crossing slice, below the ordinary ones of its track."""
        lines = np.zeros(len(self.crossing), np.int64)
        tracks = self.trace.track[self.crossing]
        for track in np.unique(tracks):
            on_track = np.flatnonzero(tracks == track)
            rows = self.crossing[on_track]
            lines[on_track] = packed(self.trace.ts[rows], self.trace.ts[rows] + self.trace.dur[rows])
        return lines

    def line_of(self, row: int) -> int:
        """Return the line in which a row is drawn."""
        crossing = int(np.searchsorted(self.crossing, row))
        if crossing < len(self.crossing) and self.crossing[crossing] == row:
            return self.depths[int(self.trace.track[row])] + int(self._extra_lines[crossing])
        return int(self.trace.depth[row])

    def clamped_end(self, rows: Int64s) -> Int64s:
        """Return where slices end if none may outlast its parent, in the trace's own time."""
        ends: Int64s = self.trace.ts[rows] + self.trace.dur[rows]
        if len(self.crossing):
            index = np.minimum(np.searchsorted(self.crossing, rows), len(self.crossing) - 1)
            ends = np.where(self.crossing[index] == rows, self._clamped[index], ends)
        return ends

    def runs(self, track: int, start: int, end: int, shift: int) -> detail.MergedSlices:
        """Return the runs of level `shift` of one track that touch [start, end), by (group, start)."""
        level, window = detail.coarsest(self._levels, shift), (start, end, shift)
        near = level.window(self._groups(track), *window) if level else self._slices(track, *window)
        return detail.touching(detail.merged(near, shift), start, end)

    def touching(self, track: int, start: int, end: int) -> Int64s:
        """Return the rows of one track that touch [start, end)."""
        rows: Int64s = detail.touching(self._slices(track, start, end, 0), start, end).row
        return rows

    def _groups(self, track: int) -> range:
        return range(int(self.first_group[track]), int(self.first_group[track + 1]))

    @once
    def _levels(self) -> list[detail.Level]:
        """Computed once, because browsers ask for several windows at a time."""
        if len(self.trace) < _MIN_SLICES_FOR_LEVELS:
            return []
        groups = (
            self._singles(np.array([group]), [self.order[self.bounds[group] : self.bounds[group + 1]]])
            for group in range(self.groups)
        )
        return list(detail.levels(groups, self.groups, self.end - self.origin))

    def _slices(self, track: int, start: int, end: int, shift: int) -> detail.MergedSlices:
        first, last = self.trace.track_bounds[track : track + 2].tolist()
        moments = np.array((start - (1 << shift), end)) + self.origin
        row_bounds = first + np.searchsorted(self.trace.ts[first:last], moments)
        rows = []
        for group in self._groups(track):
            begin, stop = int(self.bounds[group]), int(self.bounds[group + 1])
            low, high = begin + np.searchsorted(self.order[begin:stop], row_bounds)
            rows.append(self.order[max(low - 1, begin) : high])  # the one that began before may still run
        return self._singles(np.array(self._groups(track)), rows)

    def _singles(self, groups: Int64s, rows_of: list[detail.Integers]) -> detail.MergedSlices:
        """Return the rows of each group as runs of one slice."""
        group = np.repeat(groups.astype(np.int32), [len(rows) for rows in rows_of])
        rows = np.concatenate([np.zeros(0, np.int32), *rows_of])
        return detail.singles(group, self.trace.ts[rows] - self.origin, self.trace.dur[rows], rows)


def crossing_rows(trace: Trace) -> tuple[Int64s, Int64s]:
    """Return the slices that outlast their parent, or what is left of it, in order of rows; and where that ends."""
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
        rows = inner[shorter[trace.parent[inner]]]  # what is inside of those may now outlast them, too
    crossing = np.flatnonzero(clamped < end)
    return crossing, clamped[crossing]


def packed(start: Int64s, end: Int64s) -> Int64s:
    """Return for intervals in order of start the first line that is free when each begins."""
    lines = np.zeros(len(start), np.int64)
    busy: list[tuple[int, int]] = []  # (until when, line)
    free: list[int] = []
    for index, (begin, stop) in enumerate(zip(start.tolist(), end.tolist())):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lines[index] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stop, int(lines[index])))
    return lines
