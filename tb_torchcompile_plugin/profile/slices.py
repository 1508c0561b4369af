"""Slices by name and by thread, and the time that they cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union, within
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.caches import is_package_call
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, PYTHON_FUNCTION

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
