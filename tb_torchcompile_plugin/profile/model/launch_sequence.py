"""The host's side of a step as one lane: the calls through which it meets the GPUs, in order of time.

A step is fed by one thread at a time: while autograd's thread runs a backward, the one that called it waits. So the
calls that give work to a GPU, and those that wait for one, stand in one row whatever their thread, and the time
between two of them is what the host needed to get to the second.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import host_slices, mask_of, place_mask
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import (
    LABEL,
    RUNTIME_CATS,
    is_optimizer_step,
    is_synchronisation,
)

# The steps that the model of a profile is of: marked by the profiler, or told by what every step of a loop
# does once. Without a schedule nobody marks steps. Then a step lasts from the end of one call of the
# optimizer to that of the next; in a loop without one, from one call of the outermost compiled region to
# the next.


StepSource = Literal["profiler", "optimizer", "compiled_region", "span"]
_FEWEST = 3  # calls: two steps at least, or nothing says that it is a loop


class LoopSteps(NamedTuple):
    """moments: the begins of the steps in order of time and the end of the last one (ns); [] where nothing tells steps:
    then the span is one. track: of the thread that runs the loop, -1 without steps. source: what tells them; region:
    the compile id of the region whose calls do, "" otherwise."""

    moments: Int64s
    track: int
    source: StepSource
    region: str = ""


def loop_steps(profile: Profile) -> LoopSteps:
    """The steps, one behind the other."""
    return _marked(profile) or _optimized(profile) or _called(profile) or LoopSteps(_NONE, -1, "span")


_NONE = np.zeros(0, np.int64)


def _marked(profile: Profile) -> LoopSteps | None:
    steps = profile.of(StepWindows)
    if not len(steps):
        return None
    moments = np.append(steps.starts, steps.ends[-1])
    return LoopSteps(moments, int(profile.trace.track[steps.rows[0]]), "profiler")


def _optimized(profile: Profile) -> LoopSteps | None:
    """By the optimizer that is called most often."""
    trace = profile.trace
    rows = host_slices(trace, is_optimizer_step, (LABEL,))
    if not len(rows):
        return None
    names, calls = np.unique(trace.name[rows], return_counts=True)
    rows = rows[trace.name[rows] == names[calls.argmax()]]
    ends = np.sort(trace.ts[rows] + trace.dur[rows])
    return LoopSteps(ends, int(trace.track[rows[0]]), "optimizer") if len(rows) >= _FEWEST else None


def _called(profile: Profile) -> LoopSteps | None:
    """By the outermost region that is called most often; of several the first."""
    calls = profile.of(region_calls)
    ((most, times),) = Counter(call.compile_id for call in calls).most_common(1) or ((None, 0),)
    if times < _FEWEST:
        return None
    mine = [call for call in calls if call.compile_id == most]
    moments = np.array([call.begin for call in mine], np.int64)
    return LoopSteps(moments, int(profile.trace.track[mine[0].index]), "compiled_region", most or "")


_LONG_NS = 50_000  # a call that takes longer may have waited for a GPU


@dataclass(frozen=True, eq=False)
class HostLane:
    """Points in order of time, as columns (ns).

    row: the runtime or driver call; -1 for the begin of a step and for the end of the last one. launches: whether it
    gave work to a GPU. synchronises: whether waiting is what it is for. marks: places of the steps' begins among the
    points, and of the last one's end; without steps the first and the last point.
    """

    row: Int64s
    track: Int64s
    begin: Int64s
    end: Int64s
    launches: npt.NDArray[np.bool_]
    synchronises: npt.NDArray[np.bool_]
    marks: Int64s

    def __len__(self) -> int:
        return len(self.row)

    @property
    def steps(self) -> int:
        """How many whole steps there are; the span is one where nothing tells steps."""
        return max(len(self.marks) - 1, 1)


def host_lane(profile: Profile) -> HostLane:
    """The lane of the profiled steps; of the span where there are none. Of very many calls only the first ones are
    taken, in whole steps. Without launches there are only the marks of the steps."""
    trace, launched = profile.trace, profile.of(launch_calls).call
    calls = trace.select(cat=RUNTIME_CATS)
    feeds = place_mask(trace.track[launched], len(trace.tracks))
    waits = mask_of(trace.names, is_synchronisation)[trace.name[calls]]
    chosen = waits | (trace.dur[calls] > _LONG_NS)
    launches, waiting = (place_mask(mine, len(trace)) for mine in (launched, calls[waits]))
    rows = np.flatnonzero(launches | place_mask(calls[feeds[trace.track[calls]] & chosen], len(trace)))
    moments = _moments(profile, rows)
    rows = _chosen(profile, rows, moments)
    return _lane(profile, rows, moments, launches[rows], waiting[rows])


def is_cut(profile: Profile) -> bool:
    """Whether there are more calls than the lane holds."""
    lane, moments = profile.of(host_lane), profile.of(loop_steps).moments
    return len(lane.marks) < len(moments) if len(moments) else len(lane) >= profile.most_calls


def _moments(profile: Profile, rows: Int64s) -> Int64s:
    """The begins of the steps that the lane holds, and the end of the last one; none without steps."""
    moments = profile.of(loop_steps).moments
    if not len(moments):
        return moments
    calls = np.searchsorted(np.sort(profile.trace.ts[rows]), moments)
    fitting = int(np.searchsorted(calls - calls[0], profile.most_calls, side="right")) - 1
    return moments[: max(1, fitting) + 1]


def _chosen(profile: Profile, rows: Int64s, moments: Int64s) -> Int64s:
    begin = profile.trace.ts[rows]
    if not len(moments):
        return rows[np.argsort(begin, kind="stable")[: profile.most_calls]]
    return np.asarray(rows[(begin >= moments[0]) & (begin < moments[-1])])


def _lane(
    profile: Profile,
    rows: Int64s,
    moments: Int64s,
    launches: npt.NDArray[np.bool_],
    waits: npt.NDArray[np.bool_],
) -> HostLane:
    trace = profile.trace
    marks = np.full(len(moments), -1)
    row = np.concatenate((marks, rows))
    begin = np.concatenate((moments, trace.ts[rows]))
    order = np.lexsort((row >= 0, begin))
    end = np.concatenate((moments, trace.ts[rows] + trace.dur[rows]))[order]
    none = np.zeros(len(moments), bool)
    place = np.flatnonzero(row[order] < 0) if len(moments) else np.array([0, len(rows) - 1])[: len(rows)]
    track = np.concatenate((np.full(len(moments), profile.of(loop_steps).track), trace.track[rows]))
    return HostLane(
        row=row[order],
        track=track[order],
        begin=begin[order],
        end=end,
        launches=np.concatenate((none, launches))[order],
        synchronises=np.concatenate((none, waits))[order],
        marks=place,
    )


# What the host did between its calls: pieces of time with the innermost slice that ran, by the point they
# led to. The time before a point is that of its own thread; where that thread did nothing recorded
# (autograd's was not woken yet), of the thread of the point before.


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
