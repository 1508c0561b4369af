"""Where on the timeline are the slices whose name contains a text?"""

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.timeline.lanes import TrackSlices
from tb_torchcompile_plugin.analysis.timeline.slice import SliceRef
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.profile.intervals import Int64s

_MAX_HITS = 1000  # in one answer


class TimelineHits(msgspec.Struct, frozen=True):
    """All hits are numbered by time, from 0."""

    query: str
    count: int
    offset: int
    hits: list[SliceRef]  # those from `offset` on
    position: int  # how many begin before the requested time, which is the number of the first one after it


class _Hits(NamedTuple):
    """Columns of equal length; ns."""

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
    """Return slices whose name contains `query`, ignoring case, and what belongs to a compile id.

    window, lanes: search only there; no lanes: in all. At most `limit` hits from `offset` on are listed.
    """
    timeline.check_lanes(lanes)
    hits = timeline.last_search.get(query, partial(_find, timeline, query))
    selected = np.ones(len(hits.row), bool)
    if window is not None:
        selected &= (hits.start < window[1]) & ((hits.end > window[0]) | (hits.start >= window[0]))
    if lanes:
        selected &= np.isin(hits.lane, list(lanes))
    found = np.flatnonzero(selected)
    refs = []
    for index in found[offset : offset + min(limit, _MAX_HITS)].tolist():
        lane, row, start = int(hits.lane[index]), int(hits.row[index]), int(hits.start[index])
        slices = timeline.slices[lane]
        (name,) = slices.name_codes(np.array([row]))
        refs.append(SliceRef(row, lane, slices.texts[name], start, int(hits.end[index]) - start))
    position = int(np.searchsorted(hits.start[found], at))
    return TimelineHits(query, len(found), offset, refs, position)


def _find(timeline: Timeline, query: str) -> _Hits:
    """Return every hit by (start, lane, row).

    An empty query hits nothing. Idle time is left out: it only has the name of the work after it.
    """
    nothing = np.zeros(0, np.int64)
    parts = [_Hits(nothing, nothing, nothing, nothing)]
    trace, folded = timeline.rows.trace, query.casefold()
    for lane, slices in timeline.slices.items():
        if not query or timeline.lanes[lane].kind == "gaps":
            continue
        is_hit = np.array([folded in text.casefold() for text in slices.texts] or [False])
        if isinstance(slices, TrackSlices):
            first, last = trace.track_bounds[slices.track : slices.track + 2].tolist()
            row = first + np.flatnonzero(is_hit[trace.name[first:last]])
            start, dur = trace.ts[row] - timeline.origin, trace.dur[row]
        else:
            has_compile_id = np.array([item.compile_id == query for item in slices.items])
            row = np.flatnonzero(has_compile_id | is_hit[slices.name_codes(np.arange(len(slices.items)))])
            start, dur = slices.start[row], slices.dur[row]
        parts.append(_Hits(start, start + dur, np.full(len(row), lane), row))
    hits = _Hits(*(np.concatenate(columns) for columns in zip(*parts)))
    order = np.argsort(hits.start, kind="stable")  # lanes ascend, and rows in each
    return _Hits(*(column[order] for column in hits))
