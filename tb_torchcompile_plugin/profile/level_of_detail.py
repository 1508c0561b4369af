"""Which slices are drawn as one rectangle because they are too short to be seen one by one?

Time is cut into buckets of 2^shift ns, counted from the time 0 of the slices. A slice at least as long as a bucket is
a rectangle of its own. The shorter ones of one group that start in the same bucket are one *run*: from the start of
its first slice to the end of its last; a long one can only be after them. At level 0 every slice is by itself. A
bucket of one level is two of the next finer one, so the runs of a level can be made from those of any finer one, with
the same result.

A *group* is what is drawn in one line: its slices do not overlap, so their ends ascend as their starts do.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import Int64s

Integers = npt.NDArray[Any]  # of 32 or 64 bits
_FINEST = 15  # 33 µs: below, a window holds few enough slices to merge them again
_STEP = 2  # from one stored level to the next: buckets four times as long


class MergedSlices(NamedTuple):
    """Rectangles as columns of equal length, by (group, start); times in ns."""

    group: Integers
    start: Integers
    end: Integers
    covered: Integers  # how much of start … end its slices fill
    size: Integers  # how many they are
    row: Integers  # the longest of them
    longest: Integers  # its length

    def take(self, index: Int64s | npt.NDArray[np.bool_]) -> "MergedSlices":
        """Return some of them."""
        return MergedSlices(*(column[index] for column in self))


def singles(group: Integers, start: Int64s, dur: Int64s, row: Integers) -> MergedSlices:
    """Return each slice as a run of its own."""
    return MergedSlices(group, start, start + dur, dur, np.ones(len(start), np.int32), row, dur)


def merged(runs: MergedSlices, shift: int) -> MergedSlices:
    """Return the runs of the level `shift`, from those of the same or any finer level."""
    if not shift or not len(runs.start):
        return runs
    bucket = runs.start >> shift
    long = runs.longest >= 1 << shift
    begins = np.ones(len(bucket), bool)
    begins[1:] = (bucket[1:] != bucket[:-1]) | (runs.group[1:] != runs.group[:-1]) | long[1:]
    first = np.flatnonzero(begins)
    if len(first) == len(bucket):
        return runs
    longest = np.maximum.reduceat(runs.longest, first)
    # Of each run the earliest slice that is as long as its longest one.
    run = np.cumsum(begins) - 1
    hits = np.flatnonzero(runs.longest == longest[run])
    hits = hits[np.diff(run[hits], prepend=-1) > 0]
    return MergedSlices(
        runs.group[first],
        runs.start[first],
        runs.end[np.append(first[1:], len(bucket)) - 1],
        np.add.reduceat(runs.covered, first),
        np.add.reduceat(runs.size, first),
        runs.row[hits],
        longest,
    )


def touching(runs: MergedSlices, start: int, end: int) -> MergedSlices:
    """Return the runs that overlap [start, end), those that take no time included."""
    inside = ((runs.end > start) | (runs.start >= start)) & (runs.start < end)
    return runs if inside.all() else runs.take(inside)


def shift_for(duration_ns: int, width: int) -> int:
    """Return the finest level whose buckets are no shorter than a pixel."""
    return max(0, (max(1, -(-duration_ns // width)) - 1).bit_length())


def aligned(start: int, end: int, shift: int) -> tuple[int, int]:
    """Return the window, widened to whole buckets."""
    return start >> shift << shift, -(-end >> shift) << shift


class Level(NamedTuple):
    """All runs of one level; those of group g are bounds[g] … bounds[g + 1]."""

    shift: int
    runs: MergedSlices
    bounds: Int64s

    def window(self, groups: range, start: int, end: int, shift: int) -> MergedSlices:
        """Return what is needed for the runs of level `shift` that touch [start, end)."""
        parts = []
        for low, high in zip(self.bounds[groups.start : groups.stop], self.bounds[groups.start + 1 :]):
            first, last = np.searchsorted(self.runs.start[low:high], (start - (1 << shift), end))
            parts.append(np.arange(low + max(first - 1, 0), low + last))
        return self.runs.take(np.concatenate(parts) if parts else np.zeros(0, np.int64))


def levels(lines: Iterable[MergedSlices], groups: int, length_ns: int) -> Iterator[Level]:
    """Yield coarser and coarser levels, up to where all of the time is a few buckets.

    lines: the slices of each group, in order; one at a time, as memory that is touched for the first time costs more
    than what is done with it.
    """
    finest = [merged(line, _FINEST) for line in lines]
    runs = MergedSlices(*(np.concatenate(columns) for columns in zip(*finest)))
    # until all of the time is 64 buckets
    for shift in range(_FINEST, max(_FINEST + 1, length_ns.bit_length() - 6), _STEP):
        runs = merged(runs, shift)
        yield Level(shift, runs, np.searchsorted(runs.group, np.arange(groups + 1)))
