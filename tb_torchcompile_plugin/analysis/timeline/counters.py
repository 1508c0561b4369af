"""The plots of a timeline: how busy each GPU was, and how much memory was taken.

A plot has one point a bucket: the greatest value that occurred in it and the last one. Where nothing changed there is
no point: the last value holds until the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.reader.trace.kineto import Trace

Float64s = npt.NDArray[np.float64]
_MEMORY = (("total_allocated", "Memory allocated"), ("total_reserved", "Memory reserved"))


class Points(NamedTuple):
    """Columns of equal length by time: where a bucket starts (ns), and the values in it."""

    start: Int64s
    greatest: Float64s
    last: Float64s


class Counter(Protocol):
    group: str
    title: str
    unit: str
    note: str
    changes: int  # how many values there are in all

    def points(self, start: int, end: int, shift: int) -> Points:
        """Of the buckets of 2^shift ns in [start, end), both multiples of that."""


class BusyCounter:
    """The share of each bucket in which a device did anything."""

    unit = "%"
    note = "Share of the time in which the device ran a kernel, a copy or a fill"

    def __init__(self, device: int, intervals: Intervals, origin: int) -> None:
        self.group, self.title = f"GPU {device}", "GPU busy"
        self._intervals = Intervals(intervals.starts - origin, intervals.ends - origin)
        self.changes = len(intervals.starts)

    def points(self, start: int, end: int, shift: int) -> Points:
        starts = np.arange(start, end, 1 << shift)
        share = 100 * covered_ns(self._intervals, starts, starts + (1 << shift)) / (1 << shift)
        changed = np.append(True, share[1:] != share[:-1]) if len(share) else np.zeros(0, bool)
        starts, share = starts[changed], share[changed]
        return Points(starts, share, share)


class MemoryCounter:
    """What the profiler said of a device's memory each time some was taken or freed."""

    unit = "bytes"
    note = ""

    def __init__(self, group: str, title: str, at: Int64s, values: Int64s) -> None:
        self.group, self.title = group, title
        self._at, self._values = at, values
        self.changes = len(at)

    def points(self, start: int, end: int, shift: int) -> Points:
        low, high = np.searchsorted(self._at, (start, end))
        bucket = self._at[low:high] >> shift
        first = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1])) if high > low else np.zeros(0, int)
        values = self._values[low:high].astype(np.float64)
        points = Points(
            bucket[first] << shift,
            np.maximum.reduceat(values, first) if len(first) else values,
            values[np.append(first[1:], len(values)) - 1] if len(first) else values,
        )
        return self._after(points, start, int(low))

    def _after(self, points: Points, start: int, low: int) -> Points:
        """With the value that holds when the window begins."""
        if not low:
            return points
        held = float(self._values[low - 1])
        if len(points.start) and points.start[0] == start:
            points.greatest[0] = max(points.greatest[0], held)
            return points
        return Points(np.append(start, points.start), *(np.append(held, column) for column in points[1:]))


def counters(trace: Trace, work: GpuWork, origin: int) -> Iterator[Counter]:
    """Those that the trace has values of."""
    for device in np.unique(work.device).tolist():
        yield BusyCounter(device, busy(trace, work.index[work.device == device]), origin)
    memory = trace.memory()
    kinds = memory["device_type"] << 32 | np.maximum(memory["device_id"], 0)
    for kind in np.unique(kinds).tolist():
        here = np.flatnonzero(kinds == kind)
        group = f"GPU {kind & 0xFFFFFFFF}" if kind >> 32 else "CPU"
        for column, title in _MEMORY:
            rows = here[memory[column][here] >= 0]
            if memory[column][rows].any():
                yield MemoryCounter(group, title, memory["ts"][rows] - origin, memory[column][rows])
