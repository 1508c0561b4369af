"""What ran inside what on the host, as `torch.profiler` sees it: the tree behind `key_averages()`.

Slices may cross: a label that begins in `__enter__` and ends in `__exit__` outlasts the call that opened it. torch
then takes the outer call as ended where the label begins: a slice has the parent that holds all of it, or none.
A `Trace`'s own `parent` cuts the label instead, which is right for drawing and wrong for sums.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import distinct, mask_of, place_mask
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, union
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb, climb_to, ways_up
from tb_torchcompile_plugin.reader.trace.serial import narrow
from tb_torchcompile_plugin.torch_names.operators import UNCOUNTED
from tb_torchcompile_plugin.torch_names.python_frames import without_address
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, OVERHEAD, PYTHON_FUNCTION, RUNTIME_CATS

Mask = npt.NDArray[np.bool_]

_HOST_CATS = (*CALL_CATS, PYTHON_FUNCTION, OVERHEAD, *RUNTIME_CATS)


class HostTree(msgspec.Struct, frozen=True):
    """Host slices as parallel columns, in the order of the trace's rows. Rows and positions may have 32 bits.

    A call that does nothing but call itself again under the same name is one call with it.
    """

    index: Int64s  # rows of the trace
    parent: Int64s  # positions in `index`, -1: none
    self_ns: Int64s  # duration less that of the children
    python: Mask  # whether it is a Python function
    place: Int64s  # for each row of the trace its position, or that of the call it is one with; -1: not of the host

    def nearest(self, start: Int64s, wanted: Mask) -> Int64s:
        """For each position the nearest one around it, itself included, for which `wanted` holds; -1: none."""
        return climb(self.parent, start, wanted)


def host_tree(profile: Profile) -> HostTree:
    """The host slices of the trace and their nesting."""
    trace = profile.trace
    counted = (
        mask_of(trace.cats, _HOST_CATS.__contains__)[trace.cat]
        & ~mask_of(trace.names, UNCOUNTED.__contains__)[trace.name]
    )
    index = narrow(np.flatnonzero(counted))
    place = np.full(len(trace) + 1, -1, index.dtype)  # the last answers for "no parent"
    place[index] = np.arange(len(index))
    above = trace.parent[index]
    parent = place[above]
    hidden = np.flatnonzero((parent < 0) & (above >= 0))
    parent[hidden] = place[climb(trace.parent, above[hidden], counted)]
    del above
    start = trace.ts[index]
    end = start + trace.dur[index]
    bounds = bounds_in(index, trace).tolist()
    behind = np.searchsorted(hidden, bounds).tolist()
    for (first, last), inside in zip(pairwise(bounds), pairwise(behind)):
        here = slice(first, last)
        _uncross(start[here], end[here], parent[here], hidden[slice(*inside)] - first, first)
    _place_overhead(trace, index, start, end, parent)
    del start, end  # as long as the trace, as all that follows
    python = mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat[index]]
    into = _merge(trace.name[index], parent, python)
    own = _less_children(trace.dur[index], parent, into)
    return _without(index, parent, own, python, place[:-1], into)


def bounds_in(index: Int64s, trace: Trace) -> Int64s:
    """Where the tracks begin and end among these rows, which ascend."""
    # of two types numpy copies all rows
    return np.searchsorted(index, trace.track_bounds.astype(index.dtype))


def calling_tracks(profile: Profile) -> Mask:
    """By track whether an operator or a call of the runtime ran on it: threads that called nothing mostly wait."""
    trace = profile.trace
    calls = trace.select(cat=(*CALL_CATS, *RUNTIME_CATS))
    return place_mask(trace.track[calls], len(trace.tracks))


def _uncross(start: Int64s, end: Int64s, parent: Int64s, inside: Int64s, base: int) -> None:
    """Give every slice of a track a parent that holds all of it, in place. `base`: position of the track's first.
    inside: what began inside of a slice that does not count, and may have outlasted that.

    Whoever is outlasted by a slice that began inside it is done with there. That changes the parent of the slice that
    outlasts it, and of what begins behind its end while the other still runs, but for what is inside of a slice that
    began later than the other: such a parent is the right one.
    """
    inner = np.maximum(parent - base, -1)
    crossing = np.flatnonzero((inner >= 0) & (end > end[inner]))
    if not len(crossing) and not len(inside):
        return
    # What does not count may have ended at once.
    ended = np.append(_ended(end, inner, crossing), start[inside])
    outlasting = np.append(crossing, inside)
    first, last = np.searchsorted(start, ended), np.searchsorted(start, end[outlasting])
    behind = _places(union(narrow(first), narrow(last)))

    def held(which: Int64s, at: Int64s) -> Mask:
        return np.asarray(end[at] >= end[crossing[which]])

    inner[crossing] = climb_to(inner, inner[crossing], held)
    outlasting = np.sort(outlasting).astype(behind.dtype)
    latest = outlasting[np.searchsorted(outlasting, behind, side="right") - 1]
    _put_right(start, end, inner, behind[inner[behind] < latest])
    parent[:] = np.where(inner >= 0, inner + base, -1)


def _ended(end: Int64s, parent: Int64s, places: Int64s) -> Int64s:
    """When the first of each slice and those around it ends."""
    ended = end[places]
    for which, around in ways_up(parent, parent[places]):
        ended[which] = np.minimum(ended[which], end[around])
    return ended


def _places(stretches: Intervals) -> Int64s:
    """All that lie in these stretches."""
    lengths = stretches.ends - stretches.starts
    skipped = stretches.ends - np.cumsum(lengths, dtype=lengths.dtype)
    return np.arange(lengths.sum(), dtype=lengths.dtype) + np.repeat(skipped, lengths)


def _put_right(start: Int64s, end: Int64s, parent: Int64s, places: Int64s) -> None:
    """The parents of these slices, in place: of the one before each and those around that the first that holds it."""
    ends, parents = end.data, parent.data  # their elements are numbers of Python
    for place, until in zip(places.tolist(), np.maximum(end[places], start[places] + 1).tolist()):
        around = place - 1
        while around >= 0 and ends[around] < until:
            around = parents[around]
        parents[place] = around


def _place_overhead(trace: Trace, index: Int64s, start: Int64s, end: Int64s, parent: Int64s) -> None:
    """The profiler's own work that has a track of its own is to torch inside what the main thread was doing."""
    main = [code for code, track in enumerate(trace.tracks) if track.pid == track.tid]
    overhead = mask_of(trace.cats, OVERHEAD.__eq__)[trace.cat[index]]
    if not main or not overhead.any():
        return
    first, last = bounds_in(index, trace)[main[0] : main[0] + 2].tolist()
    overhead[first:last] = False
    placed = np.flatnonzero(overhead & ~(overhead[parent] & (parent >= 0)))
    before = first + np.searchsorted(start[first:last], start[placed], side="right") - 1
    before = np.where(before >= first, before, -1)
    parent[placed] = climb_to(parent, before, lambda which, at: end[at] >= end[placed[which]])


def _merge(name: Int64s, parent: Int64s, python: Mask) -> Int64s:
    """For each only child of a parent of its name the call that it becomes one with, else -1. Mends `parent`."""
    into = np.full_like(parent, -1)
    while True:
        there = (parent >= 0) & (into < 0)
        same = np.flatnonzero(there & (name == name[parent]) & ~python)
        same = same[_alone(parent, there, same)]
        if not len(same):
            return into
        into[same] = climb(parent, same, ~place_mask(same, len(name)))
        moved = np.flatnonzero(there & (into[parent] >= 0) & (into < 0))
        parent[moved] = into[parent[moved]]


def _alone(parent: Int64s, there: Mask, children: Int64s) -> Mask:
    """Which of the children that are there have no sibling."""
    above = parent[children]
    of_them = np.flatnonzero(there & place_mask(above, len(parent))[parent])
    parents, siblings = np.unique(parent[of_them], return_counts=True)
    return np.asarray(siblings[np.searchsorted(parents, above)] == 1)


def _less_children(length: Int64s, parent: Int64s, into: Int64s) -> Int64s:
    """The own part of each call, in place of `length`: a call that becomes one with another is no child of it."""
    children = np.flatnonzero((parent >= 0) & (into < 0))
    whole = length[children]
    np.subtract.at(length, parent[children], whole)
    return length


def _without(
    index: Int64s, parent: Int64s, own: Int64s, python: Mask, place: Int64s, into: Int64s
) -> HostTree:
    """The tree less the slices that became one with another."""
    if not (into >= 0).any():
        return _tree(index, parent, own, python, place)
    kept = into < 0
    position = np.append(np.cumsum(kept, dtype=index.dtype) - 1, index.dtype.type(-1))  # the last: of "none"
    gone = np.flatnonzero(~kept)
    position[gone] = position[climb(into, gone, kept)]
    place = position[place]
    return _tree(index[kept], position[parent[kept]], own[kept], python[kept], place)


def _tree(index: Int64s, parent: Int64s, own: Int64s, python: Mask, place: Int64s) -> HostTree:
    return HostTree(narrow(index), narrow(parent), own, python, narrow(place))


# Calls with one stack put together: the frames of a flame graph, the modules of a program.


def merged_stacks(caller: Int64s, *keys: Int64s) -> tuple[Int64s, Int64s]:
    """Frames as rows (parent, *keys), callers before what they called; and the frame of each call.

    caller: the place of each call's caller among the calls, -1 for none. Calls are one frame where their callers are
    one and all keys agree.
    """
    frame = np.full(len(caller) + 1, -1, np.int64)  # the last answers for "none"
    frames = [np.zeros((1 + len(keys), 0), np.int64)]
    count = 0
    for calls in _levels(caller):
        rows, which = distinct(frame[caller[calls]], *(key[calls] for key in keys))
        frame[calls] = count + which
        count += rows.shape[1]
        frames.append(rows)
    return np.hstack(frames), frame[:-1]


def plain_names(profile: Profile) -> tuple[list[str], Int64s]:
    """Names without addresses: calls of one function have one, whatever object it is of. And for each name of the
    trace its place among them."""
    shown = [without_address(name) for name in profile.trace.names]
    names = list(dict.fromkeys(shown))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[name] for name in shown], np.int64)


def _levels(caller: Int64s) -> list[Int64s]:
    """The calls by depth, outermost first."""
    depth = np.zeros(len(caller), np.int64)
    for inner, _ in ways_up(caller, caller):
        depth[inner] += 1
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []
