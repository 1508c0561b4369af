"""What host threads ran in a stretch of the timeline: slices with the part of them that lies inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.timeline.lanes import TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.profile.columns import places_in
from tb_torchcompile_plugin.profile.intervals import Int64s


class HostInside(NamedTuple):
    """Columns of equal length by row. row: of the trace. parent: the place of the slice around it, -1 for none.

    ns: its time inside; one that outlasts its parent counts up to that one's end. own_ns: less that of the slices
    directly inside it.
    """

    row: Int64s
    parent: Int64s
    ns: Int64s
    own_ns: Int64s


def host_tracks(timeline: Timeline) -> list[int]:
    """The threads from top to bottom, without the profiler's."""
    lanes = [lane for lane in timeline.lanes if lane.kind == "thread" and lane.group != "profiler"]
    drawn = [timeline.slices[lane.id] for lane in lanes]
    return [slices.track for slices in drawn if isinstance(slices, TrackSlices)]


def host_inside(
    timeline: Timeline, window: tuple[int, int], tracks: Sequence[int], depth: int = 0
) -> HostInside:
    """Of these tracks in [start, end), ns. depth: less deep slices are left out."""
    trace, start = timeline.rows.trace, window[0]
    touching = [timeline.rows.touching(track, *window) for track in tracks]
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *touching]))
    rows = rows[trace.depth[rows] >= depth]
    begin, stop = trace.ts[rows] - timeline.origin, timeline.rows.clamped_end(rows) - timeline.origin
    counts = (stop > start) | (begin >= start)  # not what lies inside only where it outlasts its parent
    rows, ns = rows[counts], inside(begin[counts], stop[counts], window)
    parent = places_in(rows, trace.parent[rows])
    nested = parent >= 0
    own = ns - np.bincount(parent[nested], ns[nested], len(rows)).astype(np.int64)
    return HostInside(rows, parent, ns, own)


def inside(start: Int64s, stop: Int64s, window: tuple[int, int]) -> Int64s:
    """How much of start … stop lies in the window."""
    part: Int64s = np.maximum(np.minimum(stop, window[1]) - np.maximum(start, window[0]), 0)
    return part
