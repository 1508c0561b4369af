"""What the host did between its calls: pieces of time with the innermost slice that ran, by the point they led to.

The time before a point is that of its own thread; where that thread did nothing recorded (autograd's was not woken
yet), of the thread of the point before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.host_lane import HostLane, host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace


class Pieces(NamedTuple):
    """Columns in order of time (ns). row: the innermost slice, -1 where nothing was recorded. point: the point that the
    time led to. They cover all time between points."""

    point: Int64s
    row: Int64s
    begin: Int64s
    end: Int64s

    @property
    def ns(self) -> Int64s:
        return self.end - self.begin

    def take(self, places: Int64s) -> Pieces:
        return Pieces(*(column[places] for column in self))


def host_pieces(profile: Profile) -> Pieces:
    """Of all points of the host lane."""
    trace, lane = profile.trace, profile.of(host_lane)
    point = np.arange(1, len(lane))
    begin, end = lane.end[:-1], lane.begin[1:]
    long = end > begin
    whole = Pieces(point[long], np.full(int(long.sum()), -1), begin[long], end[long])
    window = (int(lane.begin[0]), int(lane.end.max())) if len(lane) else (0, 0)
    activity = {
        track: _activity(trace, track, window) for track in np.unique(lane.track).tolist() if track >= 0
    }
    own = _filled(whole, lane.track[whole.point], activity)
    nothing = own.row < 0
    other = _filled(own.take(np.flatnonzero(nothing)), _before(lane, own.point[nothing]), activity)
    kept = own.take(np.flatnonzero(~nothing))
    joined = Pieces(*(np.concatenate(pair) for pair in zip(kept, other)))
    return joined.take(np.argsort(joined.begin, kind="stable"))


def _before(lane: HostLane, point: Int64s) -> Int64s:
    """The thread of the point before, where it is another one."""
    track = lane.track[point - 1]
    return np.where(track == lane.track[point], -1, track)


Activity = tuple[Int64s, Int64s]  # from times[i] on the innermost slice is rows[i]


def _activity(trace: Trace, track: int, window: tuple[int, int]) -> Activity:
    """What a thread ran at each moment of a window: the innermost slice; one that crosses its parent ends with it."""
    rows = _around(trace, track, window)
    begin, depth = trace.ts[rows], trace.depth[rows]
    end = begin + trace.dur[rows]
    parent = trace.parent[rows]
    place = np.minimum(np.searchsorted(rows, parent), max(len(rows) - 1, 0))
    for level in range(int(depth.min(initial=0)) + 1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        end[here] = np.minimum(end[here], end[place[here]])
    times = np.concatenate((end, begin))
    active = np.concatenate((parent, rows))
    # At one moment ends come before begins, inner ends before outer ones, outer begins before inner ones.
    rank = np.concatenate((-depth.astype(np.int64) - 1, depth.astype(np.int64)))
    order = np.lexsort((rank, times))
    times, active = times[order], active[order]
    final = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    return times[final], active[final]


def _around(trace: Trace, track: int, window: tuple[int, int]) -> Int64s:
    """The slices of a thread that begin in the window, and those around the first of them; ascending."""
    first, last = trace.track_bounds[track : track + 2].tolist()
    low, high = (first + int(place) for place in np.searchsorted(trace.ts[first:last], window))
    around, row = [], low - 1 if low > first else -1
    while row >= 0:
        around.append(row)
        row = int(trace.parent[row])
    return np.concatenate((np.array(around[::-1], np.int64), np.arange(low, high)))


def _filled(pieces: Pieces, track: Int64s, activity: dict[int, Activity]) -> Pieces:
    """The pieces cut at what the thread of each did. A track below 0 leaves a piece as it is."""
    parts = [pieces.take(np.flatnonzero(track < 0))]
    for one, (times, rows) in activity.items():
        mine = pieces.take(np.flatnonzero(track == one))
        parts.append(_cut(mine, times, rows))
    joined = Pieces(*(np.concatenate(columns) for columns in zip(*parts)))
    return joined.take(np.argsort(joined.begin, kind="stable"))


def _cut(pieces: Pieces, times: Int64s, rows: Int64s) -> Pieces:
    low = np.searchsorted(times, pieces.begin, side="right")
    high = np.searchsorted(times, pieces.end, side="left")
    count = high - low + 1
    of = np.repeat(np.arange(len(count)), count)
    at = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + low[of]
    edges = np.concatenate((times, [np.iinfo(np.int64).max]))
    active = np.concatenate(([-1], rows))
    begin = np.maximum(np.concatenate(([np.iinfo(np.int64).min], times))[at], pieces.begin[of])
    return Pieces(pieces.point[of], active[at], begin, np.minimum(edges[at], pieces.end[of]))
