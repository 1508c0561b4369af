"""Where on the timeline is what this name is part of?"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.timeline.lanes import ItemSlices, Slices, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.slice import SliceRef
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.profile.intervals import Int64s

MAX_HITS = 1000


class TimelineHits(msgspec.Struct, frozen=True):
    """All hits are numbered by time, from 0. `hits`: those from `offset` on. `position`: how many begin before the time
    that was asked from, and so the number of the first behind it."""

    query: str
    count: int
    offset: int
    hits: list[SliceRef]
    position: int


class Hits(NamedTuple):
    """Hits as columns of equal length by (start, lane, row); ns."""

    start: Int64s
    end: Int64s
    lane: Int64s
    row: Int64s


def timeline_search(
    timeline: Timeline,
    query: str,
    window: tuple[int, int] | None,
    lanes: Collection[int],
    at: int,
    offset: int,
    limit: int,
) -> TimelineHits:
    """Slices whose name holds `query`, in whatever case, and what belongs to the compile id that it is. window, lanes:
    look only there; no lanes: in all. At most `limit` hits from `offset` on are listed."""
    timeline.check_lanes(lanes)
    hits = _in(timeline.last_search.get(query, partial(find, timeline, query)), window, lanes)
    last = offset + min(limit, MAX_HITS)
    return TimelineHits(
        query=query,
        count=len(hits.row),
        offset=offset,
        hits=[
            _ref(timeline, lane, row)
            for lane, row in zip(hits.lane[offset:last].tolist(), hits.row[offset:last].tolist())
        ],
        position=int(np.searchsorted(hits.start, at)),
    )


def find(timeline: Timeline, query: str) -> Hits:
    """Every hit. An empty query hits nothing, and idle time is none of the work that it is named after."""
    named = {lane: slices for lane, slices in timeline.slices.items() if timeline.lanes[lane].kind != "gaps"}
    parts = [_hits(timeline, lane, slices, query) for lane, slices in named.items() if query]
    hits = Hits(*(np.concatenate(columns) for columns in zip(*parts))) if parts else _nothing()
    order = np.argsort(hits.start, kind="stable")  # lanes ascend, and rows in each
    return Hits(*(column[order] for column in hits))


def _nothing() -> Hits:
    return Hits(*[np.zeros(0, np.int64)] * 4)


def _hits(timeline: Timeline, lane: int, slices: Slices, query: str) -> Hits:
    wanted = query.casefold()
    hit = np.array([wanted in text.casefold() for text in slices.texts] or [False])
    if isinstance(slices, TrackSlices):
        trace = timeline.rows.trace
        first, last = trace.track_bounds[slices.track : slices.track + 2].tolist()
        row = first + np.flatnonzero(hit[trace.name[first:last]])
        start, dur = trace.ts[row] - timeline.origin, trace.dur[row]
    else:
        assert isinstance(slices, ItemSlices)
        mine = np.array([item.compile_id == query for item in slices.items])
        row = np.flatnonzero(mine | hit[slices.name_codes(np.arange(len(slices.items)))])
        start, dur = slices.start[row], slices.dur[row]
    return Hits(start, start + dur, np.full(len(row), lane), row)


def _in(hits: Hits, window: tuple[int, int] | None, lanes: Collection[int]) -> Hits:
    inside = np.ones(len(hits.row), bool)
    if window is not None:
        inside &= (hits.start < window[1]) & ((hits.end > window[0]) | (hits.start >= window[0]))
    if lanes:
        inside &= np.isin(hits.lane, list(lanes))
    return hits if inside.all() else Hits(*(column[inside] for column in hits))


def _ref(timeline: Timeline, lane: int, row: int) -> SliceRef:
    slices = timeline.slices[lane]
    (code,) = slices.name_codes(np.array([row]))
    start, dur = slices.times(row)
    return SliceRef(row, lane, slices.texts[code], start, dur)
