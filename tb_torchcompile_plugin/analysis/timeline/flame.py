"""A flame graph of a stretch of the timeline: what each thread ran in it, calls with one stack put together.

Everything is in whole nanoseconds: the frames below one fill it, less what it took itself, and the outermost ones are
all that the thread did.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import COLOR_OF, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.range import HostInside, host_inside, host_tracks
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.profile.columns import distinct, sums
from tb_torchcompile_plugin.profile.host.host_tree import merged_stacks, plain_names
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.units import us

MOST = 600  # frames by themselves
_SMALLEST = 1000  # what has less than this part of the stretch is folded


class FlameFrame(msgspec.Struct, frozen=True):
    """Calls with one stack. `start_ns` … `end_ns`: its place in the picture, from the thread's left edge; its length is
    what the calls took within the stretch. `color`: of `categories`. `row`: the longest call; null: folded."""

    name: str
    depth: int
    start_ns: int
    end_ns: int
    calls: int
    color: int
    row: int | None
    words: str


class FlameThread(msgspec.Struct, frozen=True):
    """`frames`: callers before what they called. `time_ns`: how long the thread ran anything."""

    lane: int
    title: str
    time_ns: int
    frames: list[FlameFrame]


class TimelineFlame(msgspec.Struct, frozen=True):
    """`note`: a sentence on what is drawn, or why nothing is. Threads that ran nothing are left out."""

    start_ns: int
    end_ns: int
    note: str
    threads: list[FlameThread]


class _Frames(NamedTuple):
    """Columns by frame, callers first. row: of the trace, the longest call. folded: how many frames it stands for."""

    parent: Int64s
    track: Int64s
    name: Int64s
    color: Int64s
    ns: Int64s
    calls: Int64s
    row: Int64s
    folded: Int64s

    def take(self, places: Int64s) -> _Frames:
        return _Frames(*(column[places] for column in self))


def timeline_flame(timeline: Timeline, window: tuple[int, int], lane: int, row: int) -> TimelineFlame:
    """Of [start, end), ns. lane, row: a slice; where that is of a thread, it alone and what ran inside of it. Raises
    BadRequest for a stretch without time, or where nothing is."""
    timeline.check(*window)
    slices = timeline.slices.get(lane)
    if isinstance(slices, TrackSlices) and slices.track in host_tracks(timeline) and slices.holds(row):
        inside = host_inside(timeline, window, [slices.track], int(timeline.rows.trace.depth[row]))
    else:
        inside = host_inside(timeline, window, host_tracks(timeline))
    start, end = window
    frames = _folded(_merged(timeline, inside), (end - start) // _SMALLEST)
    threads = _threads(timeline, frames, end - start)
    assert sum(thread.time_ns for thread in threads) == int(inside.own_ns.sum())
    return TimelineFlame(start, end, _note(threads, end - start), threads)


def _merged(timeline: Timeline, inside: HostInside) -> _Frames:
    trace, rows = timeline.rows.trace, inside.row
    name = timeline.profile.of(plain_names)[1][trace.name[rows]]
    color = timeline.palette.colors(rows).astype(np.int64)
    columns, frame = merged_stacks(inside.parent, trace.track[rows].astype(np.int64), name, color)
    count = columns.shape[1]
    longest = np.full(count, -1, np.int64)
    order = np.lexsort((-np.arange(len(rows)), inside.ns))
    longest[frame[order]] = rows[order]  # the last one stays
    calls = np.bincount(frame, minlength=count)
    parent, track, names, colors = columns
    ns, folded = sums(frame, inside.ns, count), np.zeros(count, np.int64)
    return _Frames(parent, track, names, colors, ns, calls, longest, folded)


def _folded(frames: _Frames, least: int) -> _Frames:
    """The longest ones; what is shorter is one frame below each caller that is left."""
    largest = np.lexsort((np.arange(len(frames.ns)), -frames.ns))[:MOST]
    kept = np.sort(largest[frames.ns[largest] >= max(least, 1)])
    place = np.full(len(frames.ns) + 1, -1, np.int64)
    place[kept] = np.arange(len(kept))
    short = place[:-1] < 0
    short &= (frames.parent < 0) | (place[frames.parent] >= 0)  # callers come first, and are no shorter
    short &= frames.ns > 0
    below, into = distinct(place[frames.parent[short]], frames.track[short])
    count = below.shape[1]
    rest = _Frames(
        parent=below[0],
        track=below[1],
        name=np.full(count, -1, np.int64),
        color=np.full(count, COLOR_OF["host_other"], np.int64),
        ns=sums(into, frames.ns[short], count),
        calls=sums(into, frames.calls[short], count),
        row=np.full(count, -1, np.int64),
        folded=np.bincount(into, minlength=count),
    )
    whole = frames.take(kept)._replace(parent=place[frames.parent[kept]])
    return _Frames(*(np.concatenate(pair) for pair in zip(whole, rest)))


def _threads(timeline: Timeline, frames: _Frames, length: int) -> list[FlameThread]:
    """frames: the folded ones last, so that they stand behind their siblings."""
    depth, start = _laid(frames, len(timeline.rows.trace.tracks))
    threads = []
    for track in host_tracks(timeline):
        mine = np.flatnonzero(frames.track == track)
        if len(mine):
            order = mine[np.lexsort((start[mine], depth[mine]))]
            drawn = [_frame(timeline, frames, place, depth, start, length) for place in order.tolist()]
            lane = timeline.lane_of_track[track]
            time = int(frames.ns[mine[frames.parent[mine] < 0]].sum())
            threads.append(FlameThread(lane, timeline.lanes[lane].title, time, drawn))
    return threads


def _laid(frames: _Frames, tracks: int) -> tuple[Int64s, Int64s]:
    """Depth and begin of each frame: side by side below its caller, the longest first and the folded ones last."""
    count = len(frames.ns)
    depth, start, free = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    left = np.zeros(tracks, np.int64)  # where the next outermost one of each thread begins
    for place in np.lexsort((np.arange(count), -frames.ns, frames.folded > 0)).tolist():
        parent, track = int(frames.parent[place]), int(frames.track[place])
        depth[place] = depth[parent] + 1 if parent >= 0 else 0
        start[place] = free[place] = free[parent] if parent >= 0 else left[track]
        if parent >= 0:
            free[parent] += frames.ns[place]
        else:
            left[track] += frames.ns[place]
    return depth, start


def _frame(
    timeline: Timeline, frames: _Frames, place: int, depth: Int64s, start: Int64s, length: int
) -> FlameFrame:
    ns, calls, folded = int(frames.ns[place]), int(frames.calls[place]), int(frames.folded[place])
    names = timeline.profile.of(plain_names)[0]
    return FlameFrame(
        name=f"{plural(folded, 'other')}" if folded else names[frames.name[place]],
        depth=int(depth[place]),
        start_ns=int(start[place]),
        end_ns=int(start[place]) + ns,
        calls=calls,
        color=int(frames.color[place]),
        row=None if folded else int(frames.row[place]),
        words=f"{duration(us(ns))}, {percent(100 * ns / length)} of the stretch, in {plural(calls, 'call')}",
    )


def _note(threads: list[FlameThread], length: int) -> str:
    if not threads:
        return f"No thread ran anything that was recorded in these {duration(us(length))}."
    return (
        f"What {plural(len(threads), 'thread')} ran in these {duration(us(length))}: calls with one stack put "
        "together, the longest first. A click shows the longest call."
    )
