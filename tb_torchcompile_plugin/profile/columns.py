"""Arithmetic on columns: look up values, put equal rows together, and sum the time that intervals cover.

Intervals are half-open: sorted disjoint int64 arrays of starts and ends (ns). What users see carries its unit in its
name.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.caches import is_package_call
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION

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


Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_CODES_END = float(2**63)  # beyond all int64
_DENSE = 8  # numbers for each row: a table of more takes longer than sorting the rows


def values_of(trace: Trace, column: str, wanted: Int64s) -> Floats:
    """Return the value of a sparse column for each wanted row, NaN where it has none."""
    rows, values = trace.sparse(column)
    if not len(rows):
        return np.full(len(wanted), np.nan)
    # Of two types numpy would make all rows the wider one.
    at = np.minimum(np.searchsorted(rows, wanted.astype(rows.dtype, copy=False)), len(rows) - 1)
    return np.where(rows[at] == wanted, values[at].astype(np.float64), np.nan)


def codes_of(trace: Trace, column: str, wanted: Int64s) -> Int64s:
    """Return the value of a column of codes or whole numbers for each wanted row, -1 where it has none."""
    values = values_of(trace, column, wanted)
    return np.where(np.abs(values) < _CODES_END, values, -1).astype(np.int64)


def values_at(values: Int64s, indices: Int64s) -> Int64s:
    """Return the value at each index, -1 where the index is below 0."""
    if not len(values):
        return np.full(len(indices), -1, values.dtype)
    return np.where(indices >= 0, values[np.maximum(indices, 0)], values.dtype.type(-1))


def indices_in(column: Int64s, wanted: Int64s) -> Int64s:
    """Return the index of each wanted value in a column, -1 where it is not there, and for values below 0."""
    if not len(column):
        return np.full(len(wanted), -1)
    order = np.argsort(column, kind="stable")
    at = order[np.minimum(np.searchsorted(column[order], wanted), len(column) - 1)]
    return np.where((wanted >= 0) & (column[at] == wanted), at, -1)


def distinct(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct rows of parallel columns in their order, and the index of each row among them.

    The distinct rows are columns of a matrix. `np.unique` does the same with an axis, in ten times the time.
    """
    rows = np.stack(columns).astype(np.int64, copy=False)
    if not rows.size:
        return rows, np.zeros(0, np.int64)
    index, count = np.zeros(rows.shape[1], np.int64), 1
    for column in rows:
        # As whole numbers of Python: the difference of two of 64 bits may need more.
        low, high = int(column.min()), int(column.max())
        if count * (high - low + 1) < 2**63:
            codes, size = column - low, high - low + 1
        else:
            codes, size = _numbered(column, 2**64)
        index, count = _numbered(index * size + codes, count * size)
    first = np.empty(count, np.int64)
    first[index[::-1]] = np.arange(len(index))[::-1]  # the last assignment wins: the first row
    return rows[:, first], index


def _numbered(values: Int64s, end: int) -> tuple[Int64s, int]:
    """Return the index of each value among the distinct ones in their order, and how many those are.

    end: beyond them all; where it is small no value is below 0.
    """
    if end > _DENSE * len(values):
        unique, index = np.unique(values, return_inverse=True)
        return index, len(unique)
    exists = mask_at(values, end)
    return (np.cumsum(exists) - 1)[values], int(exists.sum())


def sums(index: Int64s, values: Int64s, count: int) -> Int64s:
    """Return the sum of the values at each of `count` indices; an index below 0 is none."""
    assert index.max(initial=-1) < count, "an index beyond the last"
    total = np.zeros(count + 1, np.int64)  # the last takes what has no index
    np.add.at(total, np.maximum(index, -1), values)
    return total[:-1]


def order_of(codes: Int64s) -> Int64s:
    """Return the stable order of codes. numpy sorts those of 16 bits in a tenth of the time."""
    # Below 0, for a type with a sign: together with one without numpy would take floats.
    widest = min(int(codes.min(initial=0)), -1 - int(codes.max(initial=0)))
    return np.argsort(codes.astype(np.min_scalar_type(widest), copy=False), kind="stable")


def ordinals(groups: Int64s) -> Int64s:
    """Return of each row how many rows of its group are before it."""
    order = np.argsort(groups, kind="stable")
    answer = np.empty(len(groups), np.int64)
    answer[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return answer


def ranges(first: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
    """Return each row `count` times, and next to that its whole numbers from `first` on."""
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]


def groups_of_equal(rows: Int64s, *columns: Int64s) -> Iterator[Int64s]:
    """Yield those of `rows` that agree in all columns, together and in their order."""
    if not len(rows):
        return
    chosen = [column[rows] for column in reversed(columns)]
    group = distinct(*chosen)[1] if len(chosen) > 1 else chosen[0]
    order = order_of(group)
    rows, group = rows[order], group[order]
    yield from np.split(rows, np.flatnonzero(group[1:] != group[:-1]) + 1)


def mask_of(values: Sequence[str], wanted: Callable[[str], bool]) -> Mask:
    """Return for each of a trace's names (or categories) whether it is wanted, to be indexed by their codes."""
    return np.array([wanted(value) for value in values] or [False], bool)


def called_by(trace: Trace, rows: Int64s, matches: Callable[[str], bool]) -> Mask:
    """Return whether the slice right around each of these has such a name."""
    parent = trace.parent[rows]
    return np.asarray((parent >= 0) & mask_of(trace.names, matches)[trace.name[np.maximum(parent, 0)]])


def mask_at(indices: Int64s, count: int) -> Mask:
    """Return a mask of `count` entries that is true at these indices."""
    mask = np.zeros(count, bool)
    mask[indices] = True
    return mask


def host_slices(trace: Trace, wanted: Callable[[str], bool], cats: Sequence[str] = CALL_CATS) -> Int64s:
    """Return the rows of these kinds whose name is wanted, in the order of the trace."""
    named = mask_of(trace.names, wanted)
    if not named.any():
        return np.zeros(0, np.int64)
    if cats == CALL_CATS:
        rows = trace.call_rows
        return rows[named[trace.name[rows]]].astype(np.int64)
    rows = np.flatnonzero(named[trace.name])
    return rows[mask_of(trace.cats, set(cats).__contains__)[trace.cat[rows]]]


def package_calls(trace: Trace) -> Int64s:
    """Return the calls of AOTInductor's packages, from Python or labelled by themselves."""
    return host_slices(trace, is_package_call, (*CALL_CATS, PYTHON_FUNCTION))


def by_track(trace: Trace, rows: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Return each thread with its share of the rows."""
    return ((int(trace.track[same[0]]), same) for same in groups_of_equal(rows, trace.track))


class Cover:
    """The time that slices cover, thread by thread."""

    def __init__(self, trace: Trace, rows: Int64s) -> None:
        self._trace = trace
        self._tracks = {
            track: union(trace.ts[same], trace.ts[same] + trace.dur[same])
            for track, same in by_track(trace, rows)
        }

    def on(self, track: int) -> Intervals:
        """Return the time that they cover on one thread."""
        return self._tracks.get(track, Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64)))

    def holds(self, rows: Int64s) -> Mask:
        """Return whether each slice starts inside; row -1 does not."""
        inside = np.zeros(len(rows), bool)
        tracks = np.where(rows >= 0, self._trace.track[rows], -1)
        for track, covered in self._tracks.items():
            indices = np.flatnonzero(tracks == track)
            inside[indices] = within(covered, self._trace.ts[rows[indices]]) >= 0
        return inside
