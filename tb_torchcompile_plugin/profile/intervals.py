"""How much time do sets of half-open intervals cover, and which numbers do users see of it?

Intervals are sorted disjoint int64 arrays of starts and ends (ns). What users see carries its unit in its name.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

# Standard deviations in a median absolute deviation, of a normal distribution: 1 / its quantile of 75 %.
NORMAL_DEVIATIONS = 1.4826


class Intervals(NamedTuple):
    """Disjoint intervals in order of time; both arrays have one entry an interval."""

    starts: Int64s
    ends: Int64s

    @property
    def total_ns(self) -> int:
        """How much time they cover."""
        return int((self.ends - self.starts).sum())


def union(starts: Int64s, ends: Int64s) -> Intervals:
    """Return the set covered by any of these intervals, which may overlap and be in any order."""
    if not len(starts):
        return Intervals(starts, ends)
    if (starts[1:] < starts[:-1]).any():  # rows of one thread are in order already
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(starts[first], reach[last])


def joined(*sets: Intervals) -> Intervals:
    """Return the set covered by any of these sets, of which there is one at least."""
    return union(*map(np.concatenate, zip(*sets, strict=True)))


def covered_ns(intervals: Intervals, starts: Int64s, ends: Int64s) -> Int64s:
    """Return for each window [start, end) how much of it `intervals` cover. Windows may overlap and be in any order."""
    if not len(intervals.starts):
        return np.zeros(len(starts), np.int64)
    before = np.append(0, np.cumsum(intervals.ends - intervals.starts))
    times = np.stack((starts, ends))
    index = np.searchsorted(intervals.starts, times, side="right")
    last = np.maximum(index - 1, 0)
    inside = np.where(index > 0, np.minimum(times, intervals.ends[last]) - intervals.starts[last], 0)
    return np.asarray(np.diff(before[last] + inside, axis=0)[0], np.int64)


def exclusive(starts: Int64s, ends: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return the begins of intervals in order of time behind what earlier ones cover, and which of them are left."""
    begins = starts.copy()
    begins[1:] = np.maximum(begins[1:], np.maximum.accumulate(ends)[:-1])
    return begins, begins < ends


def within(intervals: Intervals, times: Int64s) -> Int64s:
    """Return for each of `times` the index of the interval that holds it, -1 for none."""
    index = np.searchsorted(intervals.starts, times, side="right") - 1
    ends = np.append(intervals.ends, 0)  # index -1 reads the last, which no time is before
    return np.asarray(np.where((index >= 0) & (times < ends[index]), index, -1), np.int64)


def subtract(intervals: Intervals, others: Intervals) -> Intervals:
    """Return what `intervals` cover and `others` do not."""
    times = np.concatenate((intervals.starts, intervals.ends, others.starts, others.ends))
    counts = (len(intervals.starts),) * 2 + (len(others.starts),) * 2
    order = np.argsort(times, kind="stable")
    signs = (1, -1, 0, 0), (0, 0, 1, -1)
    inside, hidden = (np.cumsum(np.repeat(sign, counts)[order]) > 0 for sign in signs)
    times = times[order]
    kept = np.flatnonzero(inside[:-1] & ~hidden[:-1] & (times[1:] > times[:-1]))
    return union(times[kept], times[kept + 1])


def us(ns: int) -> float:
    """Return microseconds, exact to the nanosecond: the nearest double of a number with three decimals."""
    return int(ns) / 1000


def to_seconds(ns: int) -> float:
    """Return seconds."""
    return int(ns) / 1_000_000_000


def share_percent(part: int, whole: int) -> float | None:
    """Return a share in percent; None where there is no whole."""
    return 100 * int(part) / int(whole) if whole else None
