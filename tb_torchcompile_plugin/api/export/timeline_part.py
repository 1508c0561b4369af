"""The timeline of one span as far as its budget goes: an overview of all of it, and steps at full detail."""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import TrackSlices
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline, encoded
from tb_torchcompile_plugin.api.export.ask import RouteReader, Texts, body_of, key_of, without_code
from tb_torchcompile_plugin.api.export.page import Body, Chunk, chunk_of
from tb_torchcompile_plugin.errors import WrongArgument

BUCKETS = 1024  # of a tile; the tab asks for the same tiles
_OVERVIEW = 3  # levels of which all tiles are there


class TileName(NamedTuple):
    """Which tile of a timeline: the `number`-th of its level (see `Tiles`)."""

    level: int
    number: int

    @property
    def start(self) -> int:
        """Where it begins, in ns of the timeline."""
        return self.number * (BUCKETS << self.level)

    @property
    def end(self) -> int:
        """Where it ends, in ns of the timeline."""
        return self.start + (BUCKETS << self.level)

    def halves(self) -> "tuple[TileName, TileName]":
        """Return the two tiles of the next finer level that cover the same time."""
        return TileName(self.level - 1, 2 * self.number), TileName(self.level - 1, 2 * self.number + 1)


class Tile(NamedTuple):
    """What the server answers to a request for a tile."""

    name: TileName
    data: bytes


class Tiles:
    """The tiles of one timeline, each computed once.

    A tile is 1,024 buckets of 2^level ns. Below one in which every slice is by itself none is needed, so a stretch is
    there at full detail when each tile of it has such a tile above.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        # by tile, whether every slice of it is by itself, at its own time
        self._whole: dict[TileName, bool] = {}
        first, last = timeline.extent
        self.root = root = max(0, (max(1, -(-(last - first) // BUCKETS)) - 1).bit_length())
        self.lowest = max(0, root - _OVERVIEW + 1)  # level of which all tiles are there

    def overview(self) -> Iterator[Tile]:
        """Yield the coarsest levels of all of the time."""
        yield from self._below(self.root, *self._timeline.extent, lowest=self.lowest)

    def detail(self, start: int, end: int) -> Iterator[Tile]:
        """Yield what is missing of a stretch, level by level, until every slice in it is by itself."""
        yield from self._below(self.root, start, end, lowest=0)

    def _below(self, level: int, start: int, end: int, lowest: int) -> Iterator[Tile]:
        length = BUCKETS << level
        first, last = self._timeline.extent
        names = [TileName(level, number) for number in range(start // length, end // length + 1)]
        while names:
            for name in names:
                if name not in self._whole:
                    timeline = self._timeline
                    window = timeline.window(name.start, name.end, BUCKETS, range(len(timeline.lanes)))
                    self._whole[name] = bool((window.rectangles.runs.size == 1).all())
                    yield Tile(name, encoded(window, name.start, name.end, BUCKETS))
            halves = [
                half
                for name in names
                if name.level > lowest and not self._whole[name]
                for half in name.halves()
            ]
            names = [half for half in halves if half.start < end and half.end > start]
            names = [name for name in names if name.end >= first and name.start <= last]


Entry = tuple[str, Body]

_TOGETHER = 1 << 18  # bytes that are compressed together
# Chosen by hand.
_DETAILS = 4_000  # slices whose details are there
_SEARCHED = 300  # names that links search the timeline for
_HITS = 50  # of each; they are counted all the same
_SHOWN = 3  # of each whose details are there
_SHARE = 5  # of the budget: searches take at most a fifth, and so do details of slices
_FIRST = -(10**15)  # ns: before everything
_AROUND = 100  # bytes that a block has around its chunk


class Detailed(NamedTuple):
    """What is wanted at full detail, in ns of the timeline."""

    name: str
    start: int
    end: int


class TimelinePart:
    """What is kept of a timeline, and in words what that is."""

    def __init__(self, reader: RouteReader, ids: Texts, timeline: Timeline, budget: int) -> None:
        self._reader, self._ids, self._timeline = reader, ids, timeline
        self._left = budget
        self._tiles = Tiles(timeline)
        self.detailed: list[Detailed] = []
        self.cut: Detailed | None = None
        self._hits: list[tuple[int, int]] = []  # where links lead to
        self._finest = 0  # level that is complete where a stretch is cut
        self.slices = self.searched = self._tiles_kept = 0

    def keep(self, stretches: list[Detailed], names: Iterable[str]) -> Iterator[bytes]:
        """Yield blocks of all of it. stretches: the most wanted first. names: what links search for."""
        yield from self._some(map(self._tile, self._tiles.overview()))
        if not self._tiles_kept:
            return
        share = self._left // _SHARE
        yield from self._some(self._searches(islice(dict.fromkeys(names), _SEARCHED)), share)
        yield from self._some(self._details(stretches), share)
        for stretch in stretches:
            if not (yield from self._stretch(stretch)):
                break
        yield from self._describe(stretches)

    def _stretch(self, stretch: Detailed) -> Generator[bytes, None, bool]:
        """Yield a stretch as a whole, otherwise its levels that fit. Returns whether it is whole."""
        levels: list[int] = []

        def entries() -> Iterator[Entry]:
            for tile in self._tiles.detail(stretch.start, stretch.end):
                levels.append(tile.name.level)
                yield self._tile(tile)

        chunks, whole = self._fitting(entries(), self._left)
        if whole:
            others = (
                detailed
                for detailed in self.detailed
                if detailed.start < stretch.start or detailed.end > stretch.end
            )
            self.detailed = [*others, stretch]
        else:
            self.cut, self._finest = stretch, levels[sum(len(chunk.bodies) for chunk in chunks)] + 1
        yield from self._append(chunks)
        return whole

    def _some(self, entries: Iterator[Entry], most: int | None = None) -> Iterator[bytes]:
        """Yield as many entries as fit."""
        chunks, _ = self._fitting(entries, self._left if most is None else most)
        yield from self._append(chunks)

    def _fitting(self, entries: Iterator[Entry], most: int) -> tuple[list[Chunk], bool]:
        """Return chunks of at most so many bytes, and whether they are all."""
        chunks = list[Chunk]()
        for bodies in _together(entries):
            chunk = chunk_of(bodies)
            most -= len(chunk.block) + _AROUND
            if most < 0:
                return chunks, False
            chunks.append(chunk)
        return chunks, True

    def _append(self, chunks: list[Chunk]) -> Iterator[bytes]:
        pack = self._reader.pack
        pack.close()
        yield from pack.take()
        for chunk in chunks:
            pack.append(chunk)
            self._tiles_kept += sum(key.startswith("timeline_window") for key in chunk.bodies)
            for block in pack.take():
                self._left -= len(block)
                yield block

    def _tile(self, tile: Tile) -> Entry:
        texts = {"from": str(tile.name.start), "to": str(tile.name.end), "width": str(BUCKETS)}
        return key_of("timeline_window", {**self._ids, **texts}), body_of(tile.data)

    def _searches(self, names: Iterable[str]) -> Iterator[Entry]:
        for name in names:
            texts = {**self._ids, "q": name, "at": str(_FIRST), "limit": str(_HITS)}
            answer = self._reader.ask("timeline_search", texts)
            self.searched += 1
            self._hits += [(hit.lane, hit.row) for hit in answer.hits[:_SHOWN]]
            yield key_of("timeline_search", texts), body_of(answer)

    def _details(self, stretches: list[Detailed]) -> Iterator[Entry]:
        """Yield slices that links lead to, then the longest ones of each stretch, in their order.

        A link need not name the lane of a slice of the trace.
        """
        longest = chain.from_iterable(self._longest(stretch) for stretch in stretches)
        for lane, row in islice(dict.fromkeys(chain(self._hits, longest)), _DETAILS):
            answer = timeline_slice(self._timeline, lane, row)
            body = body_of(answer if self._reader.code else without_code(answer))
            self.slices += 1
            yield key_of("timeline_slice", {**self._ids, "lane": str(lane), "row": str(row)}), body
            if isinstance(self._timeline.slices[lane], TrackSlices):
                yield key_of("timeline_slice", {**self._ids, "row": str(row)}), body

    def _longest(self, stretch: Detailed) -> list[tuple[int, int]]:
        """Return (lane, row) of the longest slices, longest first."""
        parts = [
            (np.full(len(runs.row), lane), runs.row, runs.longest)
            for lane, slices in self._timeline.slices.items()
            if len((runs := slices.runs(stretch.start, stretch.end, 0)).row)
        ]
        if not parts:
            return []
        lanes, rows, durations = (np.concatenate(columns) for columns in zip(*parts))
        order = np.argsort(-durations, kind="stable")[:_DETAILS]
        return list(zip(lanes[order].tolist(), rows[order].tolist()))

    def _describe(self, stretches: list[Detailed]) -> Iterator[bytes]:
        """Yield the description, which opens the timeline where it is at full detail."""
        answer = self._timeline.describe()
        shown = next((stretch for stretch in stretches if stretch in self.detailed), None)
        home = answer.home if shown is None or self._has_all() else [shown.start, shown.end]
        description = msgspec.structs.replace(answer, notes=[*answer.notes, self.sentence()], home=home)
        yield from self._some(iter([(key_of("timeline", self._ids), body_of(description))]))

    def _has_all(self) -> bool:
        first, last = self._timeline.extent
        return any(detailed.start <= first and detailed.end >= last for detailed in self.detailed)

    def sentence(self) -> str:
        """Return what is there, for the timeline itself and for the list of what the file holds."""
        first, last = self._timeline.extent
        if not self._tiles_kept:
            return "The timeline does not fit into its budget"
        if self._has_all():
            return "This file holds every slice of it"
        everywhere = self.cut is not None and self.cut.end - self.cut.start >= last - first
        merged = f"slices below {_bucket(self._finest if everywhere else self._tiles.lowest)} merged"
        if not self.detailed and (everywhere or not self.cut):
            return f"This file holds an overview, {merged}"
        if self.detailed:
            in_order = sorted(self.detailed, key=lambda stretch: stretch.start)
            names = in_order[0].name
            if len(in_order) > 1:
                names += f" – {in_order[-1].name} ({plural(len(in_order), 'step')})"
            part = f"{names} at full detail"
        elif self.cut:
            part = f"{self.cut.name} with slices below {_bucket(self._finest)} merged"
        return f"This file holds {part}; the rest as an overview, {merged}"


def _bucket(level: int) -> str:
    return duration((1 << level) / 1000)


def _together(entries: Iterator[Entry]) -> Iterator[dict[str, Body]]:
    """Yield the entries that are compressed together."""
    bodies, length = dict[str, Body](), 0
    for key, body in entries:
        bodies[key] = body
        length += len(body.data)
        if length >= _TOGETHER:
            yield bodies
            bodies, length = {}, 0
    if bodies:
        yield bodies


def wanted_stretches(timeline: Timeline, step: str, window: tuple[int, int] | None) -> list[Detailed]:
    """Return what is wanted at full detail: what was asked for or the middle step, its neighbours, then everything.

    Raises WrongArgument for a step that does not exist, UserError for a window where nothing is.
    """
    first, last = timeline.extent
    everything = Detailed("everything", first, last)
    if window is not None:
        timeline.check(*window)
        return [_window(*window), everything]
    steps = timeline.describe().steps
    names = [listed.name for listed in steps]
    if step and step not in names:
        raise WrongArgument(f"there is no step {step!r}", next_step=f"There are {', '.join(names) or 'none'}")
    if not steps:  # more and more from the middle on
        middle = (first + last) // 2
        halves = [(last - first) // part // 2 for part in (1024, 256, 64, 16, 4, 2)]
        windows = [_window(max(first, middle - half), min(last, middle + half + 1)) for half in halves]
        return [*windows, everything]
    middle = names.index(step) if step else len(steps) // 2
    order = sorted(range(len(steps)), key=lambda index: (abs(index - middle), index))
    return [*(Detailed(names[index], *timeline.around_step(index)) for index in order), everything]


def _window(start: int, end: int) -> Detailed:
    return Detailed(f"{duration(start / 1000)} to {duration(end / 1000)}", start, end)
