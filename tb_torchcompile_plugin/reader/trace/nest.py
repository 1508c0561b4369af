"""Nesting of the slices of one track: parent, depth and self time, also where slices cross.

The definition is a stack: slices come by (start, longest first); those that ended are popped; the new one's
parent is the top, and its end is clamped to its parent's. A loop in Python over every slice would be slow, so
slices that end before the next one starts are set aside in rounds, with numpy. Only what remains, where slices
cross or nest deeply, goes over the stack. Then the rounds are put back in reverse: the parent of a slice set
aside is the nearest slice before it that was still there, or the first of that one's parents that has not ended.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_AROUND_ITSELF = "a slice is around itself"
_WORTHWHILE = 0.04  # a round that sets aside a smaller share than this is the last
_MANY = 0.25  # from a larger share of all slices it is faster to climb from all at once


def nest(ts: Array, dur: Array) -> tuple[Array, Array, Array, int]:
    """Return parent (-1: none), depth, self time in ns, and the number of slices that outlast their parent.

    ts, dur: int64 ns of the slices of one track, ordered by (ts, -dur).
    """
    parent = np.full(len(ts), -1, np.int64)
    end = ts + dur  # of each slice, clamped to that of its parent
    rounds, rest = _set_aside(ts, end)
    _stack(ts, end, parent, rest)
    for rows, before in reversed(rounds):
        _put_back(ts, end, parent, rows, before)
    assert (parent < np.arange(len(parent))).all(), "what is around a slice comes before it"
    clamped = end - ts
    children = np.zeros(len(parent), np.int64)
    rows = np.flatnonzero(parent >= 0)
    np.add.at(children, parent[rows], clamped[rows])
    return parent, _depths(parent, rounds, rest), clamped - children, int((end < ts + dur).sum())


def _set_aside(ts: Array, end: Array) -> tuple[list[tuple[Array, Array]], Array]:
    """Return [(rows set aside, the remaining row before each or -1)], and the rows that remain."""
    rounds: list[tuple[Array, Array]] = []
    rest = np.arange(len(ts), dtype=np.int64)
    while len(rest) > 1:
        is_over = np.ones(len(rest), bool)
        np.less_equal(end[rest[:-1]], ts[rest[1:]], out=is_over[:-1])
        if is_over.sum() < max(1, _WORTHWHILE * len(rest)):
            break
        kept = np.cumsum(~is_over)[is_over]
        remaining = rest[~is_over]
        before = np.concatenate(([-1], remaining))[kept]
        rounds.append((rest[is_over], before))
        rest = remaining
    return rounds, rest


def _stack(ts: Array, end: Array, parent: Array, rows: Array) -> None:
    """Apply the definition itself to `rows`; clamps `end` in place."""
    stack: list[tuple[int, int]] = []
    parents, ends = [], []
    for row, start, stop in zip(rows.tolist(), ts[rows].tolist(), end[rows].tolist()):
        while stack and stack[-1][1] <= start:
            stack.pop()
        if stack:
            parents.append(stack[-1][0])
            stop = min(stop, stack[-1][1])
        else:
            parents.append(-1)
        ends.append(stop)
        stack.append((row, stop))
    parent[rows], end[rows] = parents, ends


def _put_back(ts: Array, end: Array, parent: Array, rows: Array, before: Array) -> None:
    start = ts[rows]
    ancestor = first_ancestor_where(parent, before, lambda which, at: end[at] > start[which])
    parent[rows] = ancestor
    inside = np.flatnonzero(ancestor >= 0)
    rows, ancestor = rows[inside], ancestor[inside]
    end[rows] = np.minimum(end[rows], end[ancestor])


def _depths(parent: Array, rounds: list[tuple[Array, Array]], rest: Array) -> Array:
    depth = np.zeros(len(parent), np.int32)
    depth_of: dict[int, int] = {-1: -1}
    for row, above in zip(rest.tolist(), parent[rest].tolist()):
        depth_of[row] = depth_of[above] + 1
    depth[rest] = [depth_of[row] for row in rest.tolist()]
    for rows, _ in reversed(rounds):
        above = parent[rows]
        depth[rows] = np.where(above >= 0, depth[above] + 1, 0)
    return depth


def first_ancestor(parent: Array, start: Array, wanted: Array) -> Array:
    """Climb from each of `start` to the first that is `wanted`, itself included; -1 where none is, and for -1."""
    if len(start) > _MANY * len(parent):
        return _all_climbed(parent, wanted)[start]
    return first_ancestor_where(parent, start, lambda _, at: wanted[at])


def _all_climbed(parent: Array, wanted: Array) -> Array:
    """Climb from every slice, and from -1 at the end: each round goes twice as far as the one before."""
    at = np.append(parent, parent.dtype.type(-1))
    np.copyto(at[:-1], np.arange(len(parent), dtype=parent.dtype), where=wanted)
    for _ in range(len(parent).bit_length() + 1):
        further = at[at]
        if np.array_equal(further, at):
            break
        at = further
    assert np.append(wanted, True)[at].all(), _AROUND_ITSELF
    return at


def first_ancestor_where(parent: Array, start: Array, there: Callable[[Array, Array], Array]) -> Array:
    """Climb from each of `start` to the first where it is `there`, itself included; -1 where none is, and for -1.

    there(which, at): for indices in `start` and where each has come to, whether it goes no further.
    """
    reached: Array = start.copy()
    going = np.flatnonzero(reached >= 0)
    for _ in range(len(parent) + 1):  # as many as the highest tree takes, and one to see that it is done
        if not len(going):
            return reached
        going = going[~there(going, reached[going])]
        reached[going] = parent[reached[going]]
        going = going[reached[going] >= 0]
    raise AssertionError(_AROUND_ITSELF)


def outermost_ancestor(parent: Array, start: Array, wanted: Callable[[Array], Array]) -> Array:
    """Climb from each of `start` to the last that is `wanted`, itself included; -1 where none is, and for -1."""
    outermost = np.full(len(start), -1)
    for which, at in ancestors_of(parent, start):
        found = wanted(at)
        outermost[which[found]] = at[found]
    return outermost


def ancestors_of(parent: Array, start: Array) -> Iterator[tuple[Array, Array]]:
    """Yield (indices in `start`, where each has come to), from themselves up, without those that are at the top."""
    which = np.flatnonzero(start >= 0)
    at = start[which]
    for _ in range(len(parent) + 1):  # as in `first_ancestor_where`
        if not len(which):
            return
        yield which, at
        at = parent[at]
        which, at = which[at >= 0], at[at >= 0]
    raise AssertionError(_AROUND_ITSELF)
