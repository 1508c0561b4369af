"""Looking up columns that few slices of a trace have, and putting equal rows together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union, within
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.caches import is_package_call
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION

Floats = npt.NDArray[np.float64]
_CODES_END = float(2**63)
_DENSE = 8  # numbers for each row: a table of more takes longer than sorting the rows


def values_of(trace: Trace, column: str, wanted: Int64s) -> Floats:
    """The value of a sparse column for each wanted row, NaN where it has none."""
    rows, values = trace.sparse(column)
    if not len(rows):
        return np.full(len(wanted), np.nan)
    # Of two types numpy would make all rows the wider one.
    at = np.minimum(np.searchsorted(rows, wanted.astype(rows.dtype, copy=False)), len(rows) - 1)
    return np.where(rows[at] == wanted, values[at].astype(np.float64), np.nan)


def codes_of(trace: Trace, column: str, wanted: Int64s) -> Int64s:
    """The same for a column of codes or whole numbers, -1 where a row has none."""
    values = values_of(trace, column, wanted)
    return np.where(np.abs(values) < _CODES_END, values, -1).astype(np.int64)


def picked(values: Int64s, places: Int64s) -> Int64s:
    """The value at each place, -1 where the place is below 0."""
    if not len(values):
        return np.full(len(places), -1, values.dtype)
    return np.where(places >= 0, values[np.maximum(places, 0)], values.dtype.type(-1))


def places_in(column: Int64s, wanted: Int64s) -> Int64s:
    """Where each wanted value stands in a column, -1 where it does not, and for values below 0."""
    if not len(column):
        return np.full(len(wanted), -1)
    order = np.argsort(column, kind="stable")
    at = order[np.minimum(np.searchsorted(column[order], wanted), len(column) - 1)]
    return np.where((wanted >= 0) & (column[at] == wanted), at, -1)


def distinct(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """The distinct rows of parallel columns in their order (one column an answer's row), and the place of each row
    among them. What `np.unique` does with an axis, in a tenth of the time."""
    rows = np.stack(columns).astype(np.int64, copy=False)
    if not rows.size:
        return rows, np.zeros(0, np.int64)
    place, count = np.zeros(rows.shape[1], np.int64), 1
    for column in rows:
        # As whole numbers of Python: the difference of two of 64 bits may need more.
        low, high = int(column.min()), int(column.max())
        if count * (high - low + 1) < 2**63:
            codes, size = column - low, high - low + 1
        else:
            codes, size = _numbered(column, 2**64)
        place, count = _numbered(place * size + codes, count * size)
    first = np.empty(count, np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]  # the last assignment wins: the first row
    return rows[:, first], place


def _numbered(values: Int64s, end: int) -> tuple[Int64s, int]:
    """The place of each value among the distinct ones in their order, and how many those are. `end`: beyond them all;
    where it is small none is below 0."""
    if end > _DENSE * len(values):
        unique, place = np.unique(values, return_inverse=True)
        return place, len(unique)
    there = np.zeros(end, bool)
    there[values] = True
    unique = np.flatnonzero(there)
    place = np.empty(end, np.int64)
    place[unique] = np.arange(len(unique))
    return place[values], len(unique)


def sums(place: Int64s, values: Int64s, count: int) -> Int64s:
    """The sum of the values at each of `count` places; a place below 0 is none."""
    assert place.max(initial=-1) < count, "a place beyond the last"
    total = np.zeros(count + 1, np.int64)  # the last takes what has no place
    np.add.at(total, np.maximum(place, -1), values)
    return total[:-1]


def order_of(codes: Int64s) -> Int64s:
    """The stable order of codes. numpy sorts those of 16 bits in a tenth of the time."""
    # below 0, for a type with a sign: beside one without numpy would take floats
    widest = min(int(codes.min(initial=0)), -1 - int(codes.max(initial=0)))
    small = np.min_scalar_type(widest)
    return np.argsort(codes.astype(small, copy=False), kind="stable")


def ordinals(groups: Int64s) -> Int64s:
    """Of each row how many rows of its group come before it."""
    order = np.argsort(groups, kind="stable")
    answer = np.empty(len(groups), np.int64)
    answer[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return answer


def ranges(first: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
    """Return each row `count` times, and next to that its whole numbers from `first` on."""
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]


def alike(places: Int64s, *columns: Int64s) -> Iterator[Int64s]:
    """Those of `places` that agree in all columns, together and in their order."""
    if not len(places):
        return
    chosen = [column[places] for column in reversed(columns)]
    group = distinct(*chosen)[1] if len(chosen) > 1 else chosen[0]
    order = order_of(group)
    places, group = places[order], group[order]
    edges = np.flatnonzero(group[1:] != group[:-1]) + 1
    for first, last in pairwise([0, *edges.tolist(), len(places)]):
        yield places[first:last]


# Slices by name and by thread, and the time that they cover.


Mask = npt.NDArray[np.bool_]


def mask_of(values: Sequence[str], wanted: Callable[[str], bool]) -> Mask:
    """Of each of a trace's names (or categories), whether it is wanted: to be indexed by their codes."""
    return np.array([wanted(value) for value in values] or [False], bool)


def called_by(trace: Trace, rows: Int64s, matches: Callable[[str], bool]) -> Mask:
    """Whether the slice right around each of these has such a name."""
    parent = trace.parent[rows]
    return np.asarray((parent >= 0) & mask_of(trace.names, matches)[trace.name[np.maximum(parent, 0)]])


def place_mask(places: Int64s, count: int) -> Mask:
    """Of so many places, whether each is one of these."""
    mask = np.zeros(count, bool)
    mask[places] = True
    return mask


def host_slices(trace: Trace, wanted: Callable[[str], bool], cats: Sequence[str] = CALL_CATS) -> Int64s:
    """Rows of these kinds whose name is wanted, in the order of the trace."""
    named = mask_of(trace.names, wanted)
    if not named.any():
        return np.zeros(0, np.int64)
    if cats == CALL_CATS:
        rows = trace.call_rows
        return rows[named[trace.name[rows]]].astype(np.int64)
    rows = np.flatnonzero(named[trace.name])
    return rows[mask_of(trace.cats, set(cats).__contains__)[trace.cat[rows]]]


def package_calls(trace: Trace) -> Int64s:
    """Calls of AOTInductor's packages, from Python or labelled by themselves."""
    return host_slices(trace, is_package_call, (*CALL_CATS, PYTHON_FUNCTION))


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
