"""The timeline in tiles, as the tab asks for them: all of the time as an overview, and some of it at full detail.

A tile is 1,024 buckets of 2^level ns. One in which every slice is by itself needs none below it, so a stretch is there
at full detail when each tile over it either is of that kind, or has both its halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.analysis.timeline.wire import encoded

BUCKETS = 1024
_OVERVIEW = 3  # levels of which all tiles are there


class TileName(NamedTuple):
    level: int
    number: int

    @property
    def start(self) -> int:
        return self.number * (BUCKETS << self.level)

    @property
    def end(self) -> int:
        return self.start + (BUCKETS << self.level)

    def halves(self) -> tuple[TileName, TileName]:
        return TileName(self.level - 1, 2 * self.number), TileName(self.level - 1, 2 * self.number + 1)


class Tile(NamedTuple):
    """What the server answers to it. whole: every slice of it is by itself, at its own time."""

    name: TileName
    data: bytes
    whole: bool


class Tiles:
    """Of one timeline; each is made once."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._whole: dict[TileName, bool] = {}
        first, last = timeline.extent
        self.root = root = max(0, (max(1, -(-(last - first) // BUCKETS)) - 1).bit_length())
        self.lowest = max(0, root - _OVERVIEW + 1)  # level of which all tiles are there

    def overview(self) -> Iterator[Tile]:
        """The coarsest levels of all of the time."""
        yield from self._below(self.root, *self._timeline.extent, lowest=self.lowest)

    def detail(self, start: int, end: int) -> Iterator[Tile]:
        """What is not there yet of a stretch, level by level, until every slice in it is by itself."""
        yield from self._below(self.root, start, end, lowest=0)

    def _below(self, level: int, start: int, end: int, lowest: int) -> Iterator[Tile]:
        length = BUCKETS << level
        names = [TileName(level, number) for number in range(start // length, end // length + 1)]
        while names:
            for name in names:
                if name not in self._whole:
                    yield self._make(name)
            halves = [
                half
                for name in names
                if name.level > lowest and not self._whole[name]
                for half in name.halves()
            ]
            names = [name for name in halves if name.start < end and name.end > start and self._holds(name)]

    def _holds(self, name: TileName) -> bool:
        first, last = self._timeline.extent
        return name.end >= first and name.start <= last

    def _make(self, name: TileName) -> Tile:
        timeline = self._timeline
        window = timeline.window(name.start, name.end, BUCKETS, range(len(timeline.lanes)))
        whole = bool((window.rectangles.runs.size == 1).all())
        self._whole[name] = whole
        return Tile(name, encoded(window, name.start, name.end, BUCKETS), whole)
