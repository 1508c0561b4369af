"""What ran inside what on the host? The tree behind `key_averages()` of `torch.profiler`.

Slices may cross: a label that begins in `__enter__` and ends in `__exit__` outlasts the call that opened it. torch
then takes the outer call as ended where the label begins: a slice has the parent that holds all of it, or none. A
`Trace`'s own `parent` cuts the label instead, which is right for drawing and wrong for sums.
"""

from itertools import pairwise

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Mask,
    distinct,
    groups_of_equal,
    mask_at,
    mask_of,
    union,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import ancestors_of, first_ancestor, first_ancestor_where
from tb_torchcompile_plugin.reader.trace.table import narrow
from tb_torchcompile_plugin.torch_names.operators import UNCOUNTED
from tb_torchcompile_plugin.torch_names.python_frames import without_address
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS, OVERHEAD, PYTHON_FUNCTION, RUNTIME_CATS

_HOST_CATS = (*CALL_CATS, PYTHON_FUNCTION, OVERHEAD, *RUNTIME_CATS)


class HostTree(msgspec.Struct, frozen=True):
    """Host slices as parallel columns, in the order of the trace's rows. Rows and positions may have 32 bits.

    A call that does nothing but call itself again under the same name is one call with it.
    """

    index: Int64s  # rows of the trace
    parent: Int64s  # positions in `index`, -1: none
    self_ns: Int64s  # duration less that of the children
    python: Mask  # whether it is a Python function
    place: Int64s  # for each row of the trace its position, or that of the call it is one with; -1: not on the host

    def nearest(self, start: Int64s, wanted: Mask) -> Int64s:
        """Return for each position the nearest one around it, itself included, that is wanted; -1: none."""
        return first_ancestor(self.parent, start, wanted)


def host_tree(profile: Profile) -> HostTree:
    """Return the host slices of the trace and their nesting."""
    trace = profile.trace
    on_host = mask_of(trace.cats, _HOST_CATS.__contains__)[trace.cat]
    counted = on_host & ~mask_of(trace.names, UNCOUNTED.__contains__)[trace.name]
    index = narrow(np.flatnonzero(counted))
    position = np.full(len(trace) + 1, -1, index.dtype)  # the last is read for "no parent"
    position[index] = np.arange(len(index))
    above = trace.parent[index]
    parent = position[above]
    hidden = np.flatnonzero((parent < 0) & (above >= 0))
    parent[hidden] = position[first_ancestor(trace.parent, above[hidden], counted)]
    del above
    start = trace.ts[index]
    end = start + trace.dur[index]
    bounds = bounds_in(index, trace).tolist()
    behind = np.searchsorted(hidden, bounds).tolist()
    for (first, last), inside in zip(pairwise(bounds), pairwise(behind)):
        track = slice(first, last)
        _uncross(start[track], end[track], parent[track], hidden[slice(*inside)] - first, first)
    _place_overhead(trace, index, start, end, parent)
    del start, end  # as long as the trace, as all that follows
    python = mask_of(trace.cats, PYTHON_FUNCTION.__eq__)[trace.cat[index]]
    into = _merge(trace.name[index], parent, python)
    own = trace.dur[index]
    # a call that becomes one with another is no child of it
    children = np.flatnonzero((parent >= 0) & (into < 0))
    np.subtract.at(own, parent[children], own[children])
    return _without_merged(index, parent, own, python, position[:-1], into)


def bounds_in(index: Int64s, trace: Trace) -> Int64s:
    """Return where the tracks begin and end among these rows, which ascend."""
    # Of two types numpy would copy all rows.
    return np.searchsorted(index, trace.track_bounds.astype(index.dtype))


def calling_tracks(profile: Profile) -> Mask:
    """Return by track whether an operator or a runtime call ran on it: threads that called nothing mostly wait."""
    trace = profile.trace
    calls = trace.select(cat=(*CALL_CATS, *RUNTIME_CATS))
    return mask_at(trace.track[calls], len(trace.tracks))


def _uncross(start: Int64s, end: Int64s, parent: Int64s, inside: Int64s, base: int) -> None:
    """Give every slice of a track a parent that holds all of it, in place.

    A slice that is outlasted by one that began inside it ends there. That changes the parent of the slice that
    outlasts it, and of what begins behind its end while the other still runs, except what is inside of a slice that
    began later than the other: such a parent is the right one. base: position of the track's first slice. inside:
    what began inside of a slice that does not count, and may have outlasted that.
    """
    inner = np.maximum(parent - base, -1)
    crossing = np.flatnonzero((inner >= 0) & (end > end[inner]))
    if not len(crossing) and not len(inside):
        return
    # When the first of each slice's ancestors ends; what does not count may have ended at once.
    ends = end[inner[crossing]]
    for which, around in ancestors_of(inner, inner[crossing]):
        ends[which] = np.minimum(ends[which], end[around])
    ended = np.append(ends, start[inside])
    outlasting = np.append(crossing, inside)
    first, last = np.searchsorted(start, ended), np.searchsorted(start, end[outlasting])
    stretches = union(narrow(first), narrow(last))
    sizes = stretches.ends - stretches.starts
    skipped = stretches.ends - np.cumsum(sizes, dtype=sizes.dtype)
    behind = np.arange(sizes.sum(), dtype=sizes.dtype) + np.repeat(skipped, sizes)

    def holds(which: Int64s, around: Int64s) -> Mask:
        return np.asarray(end[around] >= end[crossing[which]])

    inner[crossing] = first_ancestor_where(inner, inner[crossing], holds)
    outlasting = np.sort(outlasting).astype(behind.dtype)
    latest = outlasting[np.searchsorted(outlasting, behind, side="right") - 1]
    _put_right(start, end, inner, behind[inner[behind] < latest])
    parent[:] = np.where(inner >= 0, inner + base, -1)


def _put_right(start: Int64s, end: Int64s, parent: Int64s, positions: Int64s) -> None:
    """Set the parents of these slices, in place: the first that holds it of the slice before and its ancestors."""
    ends, parents = end.data, parent.data  # their elements are numbers of Python
    for position, until in zip(positions.tolist(), np.maximum(end[positions], start[positions] + 1).tolist()):
        around = position - 1
        while around >= 0 and ends[around] < until:
            around = parents[around]
        parents[position] = around


def _place_overhead(trace: Trace, index: Int64s, start: Int64s, end: Int64s, parent: Int64s) -> None:
    """Move the profiler's own work with a track of its own into what the main thread was doing, as torch does."""
    main = [code for code, track in enumerate(trace.tracks) if track.pid == track.tid]
    overhead = mask_of(trace.cats, OVERHEAD.__eq__)[trace.cat[index]]
    if not main or not overhead.any():
        return
    first, last = bounds_in(index, trace)[main[0] : main[0] + 2].tolist()
    overhead[first:last] = False
    placed = np.flatnonzero(overhead & ~(overhead[parent] & (parent >= 0)))
    before = first + np.searchsorted(start[first:last], start[placed], side="right") - 1
    before = np.where(before >= first, before, -1)
    parent[placed] = first_ancestor_where(parent, before, lambda row, around: end[around] >= end[placed[row]])


def _merge(name: Int64s, parent: Int64s, python: Mask) -> Int64s:
    """Return for each only child of a parent of its name the call it becomes one with, else -1; fix `parent`."""
    into = np.full_like(parent, -1)
    while True:
        is_child = (parent >= 0) & (into < 0)
        same = np.flatnonzero(is_child & (name == name[parent]) & ~python)
        siblings = np.flatnonzero(is_child & mask_at(parent[same], len(parent))[parent])
        parents, count = np.unique(parent[siblings], return_counts=True)
        same = same[count[np.searchsorted(parents, parent[same])] == 1]
        if not len(same):
            return into
        into[same] = first_ancestor(parent, same, ~mask_at(same, len(name)))
        moved = np.flatnonzero(is_child & (into[parent] >= 0) & (into < 0))
        parent[moved] = into[parent[moved]]


def _without_merged(
    index: Int64s, parent: Int64s, own: Int64s, python: Mask, position: Int64s, into: Int64s
) -> HostTree:
    if (into >= 0).any():
        kept = into < 0
        moved = np.append(np.cumsum(kept, dtype=index.dtype) - 1, index.dtype.type(-1))  # the last: of "none"
        gone = np.flatnonzero(~kept)
        moved[gone] = moved[first_ancestor(into, gone, kept)]
        position = moved[position]
        index, parent, own, python = index[kept], moved[parent[kept]], own[kept], python[kept]
    return HostTree(narrow(index), narrow(parent), own, python, narrow(position))


def merged_stacks(caller: Int64s, *keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the rows (parent, *keys) of a tree of calls, callers before what they called; and the row of each call.

    Calls are one row where their callers are one and all keys agree. caller: the index of each call's caller among
    the calls, -1 for none.
    """
    frame = np.full(len(caller) + 1, -1, np.int64)  # the last is read for "none"
    frames = [np.zeros((1 + len(keys), 0), np.int64)]
    count = 0
    depth = np.zeros(len(caller), np.int64)
    for inner, _ in ancestors_of(caller, caller):
        depth[inner] += 1
    for calls in groups_of_equal(np.arange(len(caller)), depth):
        rows, which = distinct(frame[caller[calls]], *(key[calls] for key in keys))
        frame[calls] = count + which
        count += rows.shape[1]
        frames.append(rows)
    return np.hstack(frames), frame[:-1]


def plain_names(profile: Profile) -> tuple[list[str], Int64s]:
    """Return names without addresses, and for each name of the trace its index among them.

    So calls of one function have one name, whatever object it is of.
    """
    codes: dict[str, int] = {}
    index = [codes.setdefault(without_address(name), len(codes)) for name in profile.trace.names]
    return list(codes), np.array(index, np.int64)
