"""What did each thread run in a range of the timeline? A flame graph: calls with one stack are merged.

Everything is in whole nanoseconds: the frames below one fill it, except for its self time, and the outermost ones are
all that the thread did.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import COLOR_OF, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.range import HostInside, host_inside, host_tracks
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.profile.columns import distinct, sums
from tb_torchcompile_plugin.profile.host.host_tree import merged_stacks, plain_names
from tb_torchcompile_plugin.profile.intervals import Int64s, us

MAX_FRAMES = 600  # frames that are not folded
_MIN_FRACTION = 1000  # shorter frames are folded: less than 2 pixels in a picture 2,000 pixels wide


class FlameFrame(msgspec.Struct, frozen=True):
    """Calls with one stack."""

    name: str
    depth: int
    start_ns: int  # position in the picture, from the thread's left edge
    end_ns: int  # the length is what the calls took within the range
    calls: int
    color: int  # index into the timeline's `categories`
    row: int | None  # the longest call; None for a folded frame
    description: str


class FlameThread(msgspec.Struct, frozen=True):
    """The frames of one thread."""

    lane: int
    title: str
    time_ns: int  # time in which the thread ran anything
    frames: list[FlameFrame]  # callers before what they called


class TimelineFlame(msgspec.Struct, frozen=True):
    """A flame graph of a range."""

    start_ns: int
    end_ns: int
    note: str  # a sentence on what is drawn, or why nothing is
    threads: list[FlameThread]  # without those that ran nothing


class _Frames(NamedTuple):
    """Columns by frame, callers first."""

    parent: Int64s  # index of the caller
    track: Int64s
    name: Int64s
    color: Int64s
    ns: Int64s
    calls: Int64s
    row: Int64s  # of the trace, the longest call
    folded: Int64s  # how many frames it stands for, 0 for a frame that is not folded


def timeline_flame(timeline: Timeline, window: tuple[int, int], lane: int, row: int) -> TimelineFlame:
    """Return what each thread ran in [start, end) ns, merged by stack.

    Raises BadRequest for a range without time, or where nothing is.

    lane, row: a slice; where it is on a host thread, only the slice and what ran inside of it are drawn.
    """
    timeline.check(*window)
    slices = timeline.slices.get(lane)
    tracks = host_tracks(timeline)
    if isinstance(slices, TrackSlices) and slices.track in tracks and slices.holds(row):
        inside = host_inside(timeline, window, [slices.track], int(timeline.rows.trace.depth[row]))
    else:
        inside = host_inside(timeline, window, tracks)
    start, end = window
    frames = _fold(_merge(timeline, inside), (end - start) // _MIN_FRACTION)
    threads = _threads(timeline, frames, end - start)
    assert sum(thread.time_ns for thread in threads) == int(inside.own_ns.sum())
    length = duration(us(end - start))
    note = f"Nothing was recorded on any thread in these {length}."
    if threads:
        note = (
            f"What {plural(len(threads), 'thread')} ran in these {length}. Calls with the same stack are merged, the "
            "longest first. Click one to show its longest call."
        )
    return TimelineFlame(start, end, note, threads)


def _merge(timeline: Timeline, inside: HostInside) -> _Frames:
    trace, rows = timeline.rows.trace, inside.row
    name = timeline.profile.of(plain_names)[1][trace.name[rows]]
    color = timeline.palette.colors(rows).astype(np.int64)
    columns, frame = merged_stacks(inside.parent, trace.track[rows].astype(np.int64), name, color)
    count = columns.shape[1]
    longest = np.full(count, -1, np.int64)
    order = np.lexsort((-np.arange(len(rows)), inside.ns))
    longest[frame[order]] = rows[order]  # the last assignment wins
    parent, track, names, colors = columns
    ns, calls = sums(frame, inside.ns, count), np.bincount(frame, minlength=count)
    return _Frames(parent, track, names, colors, ns, calls, longest, np.zeros(count, np.int64))


def _fold(frames: _Frames, min_ns: int) -> _Frames:
    """Keep the longest frames; the shorter ones become one frame below each caller that is kept."""
    largest = np.lexsort((np.arange(len(frames.ns)), -frames.ns))[:MAX_FRAMES]
    kept = np.sort(largest[frames.ns[largest] >= max(min_ns, 1)])
    index = np.full(len(frames.ns) + 1, -1, np.int64)  # of kept frames; the last entry is that of no caller
    index[kept] = np.arange(len(kept))
    short = index[:-1] < 0
    short &= (frames.parent < 0) | (index[frames.parent] >= 0)  # callers come first, and are no shorter
    short &= frames.ns > 0
    (parent, track), group = distinct(index[frames.parent[short]], frames.track[short])
    count = len(parent)
    none = np.full(count, -1, np.int64)
    rest = _Frames(
        parent=parent,
        track=track,
        name=none,
        color=np.full(count, COLOR_OF["host_other"], np.int64),
        ns=sums(group, frames.ns[short], count),
        calls=sums(group, frames.calls[short], count),
        row=none,
        folded=np.bincount(group, minlength=count),
    )
    whole = _Frames(*(column[kept] for column in frames))._replace(parent=index[frames.parent[kept]])
    return _Frames(*(np.concatenate(pair) for pair in zip(whole, rest)))


def _threads(timeline: Timeline, frames: _Frames, length: int) -> list[FlameThread]:
    depth, start = _positions(frames, len(timeline.rows.trace.tracks))
    names = timeline.profile.of(plain_names)[0]
    threads = []
    for track in host_tracks(timeline):
        on_track = np.flatnonzero(frames.track == track)
        drawn = []
        for index in on_track[np.lexsort((start[on_track], depth[on_track]))].tolist():
            ns, calls, folded = int(frames.ns[index]), int(frames.calls[index]), int(frames.folded[index])
            share = percent(100 * ns / length)
            drawn.append(
                FlameFrame(
                    name=plural(folded, "other") if folded else names[frames.name[index]],
                    depth=int(depth[index]),
                    start_ns=int(start[index]),
                    end_ns=int(start[index]) + ns,
                    calls=calls,
                    color=int(frames.color[index]),
                    row=None if folded else int(frames.row[index]),
                    description=f"{duration(us(ns))}, {share} of the range, in {plural(calls, 'call')}",
                )
            )
        if drawn:
            lane = timeline.lane_of_track[track]
            time = int(frames.ns[on_track[frames.parent[on_track] < 0]].sum())
            threads.append(FlameThread(lane, timeline.lanes[lane].title, time, drawn))
    return threads


def _positions(frames: _Frames, tracks: int) -> tuple[Int64s, Int64s]:
    """Place the frames next to each other below their caller, the longest first and the folded ones last."""
    count = len(frames.ns)
    depth, start, free = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    free_on_track = np.zeros(tracks, np.int64)  # where the next outermost frame of each thread starts
    for index in np.lexsort((np.arange(count), -frames.ns, frames.folded > 0)).tolist():
        parent = int(frames.parent[index])
        next_free, container = (free, parent) if parent >= 0 else (free_on_track, int(frames.track[index]))
        depth[index] = depth[parent] + 1 if parent >= 0 else 0
        start[index] = free[index] = next_free[container]
        next_free[container] += frames.ns[index]
    return depth, start
