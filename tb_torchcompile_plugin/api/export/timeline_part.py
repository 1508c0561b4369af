"""The timeline of one span within its size limit: an overview, and steps in full detail."""

import sys
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice, starmap
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import TrackSlices
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline, encoded
from tb_torchcompile_plugin.api.bodies import Body, body_of
from tb_torchcompile_plugin.api.export.ask import RouteReader, Texts, key_of, without_code
from tb_torchcompile_plugin.errors import WrongArgument, quoted
from tb_torchcompile_plugin.profile.steps import StepWindows, steady_steps

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
        self._root = max(0, (max(1, -(-(last - first) // BUCKETS)) - 1).bit_length())
        self.lowest = max(0, self._root - _OVERVIEW + 1)  # level of which all tiles are there

    def missing(self, start: int, end: int, lowest: int = 0) -> Iterator[tuple[TileName, bytes]]:
        """Yield the tiles of a stretch that were not yielded before, each with what the server answers.

        Level by level, until every slice in it is by itself, or down to the level `lowest`.
        """
        length = BUCKETS << self._root
        first, last = self._timeline.extent
        names = [TileName(self._root, number) for number in range(start // length, end // length + 1)]
        while names:
            halves: list[TileName] = []
            for name in names:
                if name not in self._whole:
                    timeline = self._timeline
                    window = timeline.window(name.start, name.end, BUCKETS, range(len(timeline.lanes)))
                    self._whole[name] = bool((window.rectangles.runs.size == 1).all())
                    yield name, encoded(window, name.start, name.end, BUCKETS)
                if name.level > lowest and not self._whole[name]:
                    halves += name.halves()
            touched = (half for half in halves if half.start < end and half.end > start)
            names = [name for name in touched if name.end >= first and name.start <= last]


Entry = tuple[str, Body]

_TOGETHER = 1 << 18  # bytes that are compressed together
# Chosen by hand.
_DETAILS = 4_000  # slices whose details are there
_SEARCHED = 300  # names that links search the timeline for
_HITS = 50  # of each; they are counted all the same
_SHOWN = 3  # of each whose details are there
_SHARE = 5  # of the budget: searches take at most a fifth, and so do details of slices
_FIRST = -(10**15)  # ns: before everything


class Detailed(NamedTuple):
    """What is wanted at full detail, in ns of the timeline."""

    name: str
    start: int
    end: int


class TimelinePart:
    """What is kept of a timeline, and in words what that is."""

    def __init__(self, reader: RouteReader, ids: Texts, timeline: Timeline, budget: int) -> None:
        self._reader, self._ids, self._timeline = reader, ids, timeline
        reader.pack.close()
        self._end = reader.pack.bytes + budget  # bytes of the file that are not passed
        self._tiles = Tiles(timeline)
        self._has_overview = False
        self.detailed: list[Detailed] = []
        self._cut = ""  # the stretch that does not fit
        self._hits: list[tuple[int, int]] = []  # where links lead to
        self.slices = self.searched = 0

    def keep(self, stretches: list[Detailed], names: Iterable[str]) -> Iterator[bytes]:
        """Yield its blocks. stretches: most important first. names: search terms of links."""
        tiles = starmap(self._tile, self._tiles.missing(*self._timeline.extent, self._tiles.lowest))
        before = self._reader.pack.bytes
        yield from self._some(tiles)
        self._has_overview = self._reader.pack.bytes > before  # the coarsest tile comes first
        if not self._has_overview:
            return
        share = (self._end - self._reader.pack.bytes) // _SHARE
        yield from self._some(self._searches(islice(dict.fromkeys(names), _SEARCHED)), share)
        yield from self._some(self._details(stretches), share)
        for stretch in stretches:
            tiles = starmap(self._tile, self._tiles.missing(stretch.start, stretch.end))
            if not (yield from self._some(tiles)):
                self._cut = stretch.name
                break
            outside = (row for row in self.detailed if row.start < stretch.start or row.end > stretch.end)
            self.detailed = [*outside, stretch]
        yield from self._describe(stretches)

    def _some(self, entries: Iterable[Entry], most_bytes: int = sys.maxsize) -> Generator[bytes, None, bool]:
        """Yield as many entries as fit, in chunks of their own. Returns whether those are all."""
        pack = self._reader.pack
        end = min(self._end, pack.bytes + most_bytes)
        for key, body in entries:
            pack.add(key, body)
            if pack.open_bytes >= _TOGETHER and not pack.close(end - pack.bytes):
                return False
            yield from pack.take()
        are_all = pack.close(end - pack.bytes)
        yield from pack.take()
        return are_all

    def _tile(self, name: TileName, data: bytes) -> Entry:
        texts = {"from": str(name.start), "to": str(name.end), "width": str(BUCKETS)}
        return key_of("timeline_window", {**self._ids, **texts}), body_of(data)

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
        longest = chain.from_iterable(map(self._longest, stretches))
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
        yield from self._some([(key_of("timeline", self._ids), body_of(description))])

    def _has_all(self) -> bool:
        first, last = self._timeline.extent
        return any(detailed.start <= first and detailed.end >= last for detailed in self.detailed)

    def sentence(self) -> str:
        """Return what is there, for the timeline itself and for the list of what the file holds."""
        if not self._has_overview:
            return "The timeline exceeds its size limit"
        if self._has_all():
            return "This file contains every slice of the timeline"
        shortest = duration((1 << self._tiles.lowest) / 1000)
        overview = f"an overview of the rest (slices shorter than {shortest} are merged)"
        if not self.detailed:
            return f"This file contains part of {self._cut}, and {overview}"
        in_order = sorted(self.detailed, key=lambda stretch: stretch.start)
        names = in_order[0].name
        if len(in_order) > 1:
            names += f" – {in_order[-1].name} ({plural(len(in_order), 'step')})"
        return f"This file contains {names} in full detail, and {overview}"


def wanted_stretches(timeline: Timeline, step: str) -> list[Detailed]:
    """Return what is wanted at full detail: this step or the one closest to the mean, its neighbours, then everything.

    Raises WrongArgument for a step that does not exist.
    """
    first, last = timeline.extent
    everything = Detailed("everything", first, last)
    steady, names = timeline.profile.of(steady_steps), timeline.profile.of(StepWindows).names
    if step and step not in names:
        raise WrongArgument(
            f"there is no step {quoted(step)}", next_step=f"Available: {', '.join(names) or 'none'}"
        )
    if not names:  # more and more from the middle on
        middle = (first + last) // 2
        halves = [(last - first) // part // 2 for part in (1024, 256, 64, 16, 4, 2)]
        windows = [_window(max(first, middle - half), min(last, middle + half + 1)) for half in halves]
        return [*windows, everything]
    closest = len(names) // 2
    if steady:
        closest = int(steady.rows[np.abs(steady.lengths - steady.step_ns).argmin()])
    shown = names.index(step) if step else closest
    order = sorted(range(len(names)), key=lambda index: (abs(index - shown), index))
    return [*(Detailed(names[index], *timeline.around_step(index)) for index in order), everything]


def _window(start: int, end: int) -> Detailed:
    return Detailed(f"{duration(start / 1000)} to {duration(end / 1000)}", start, end)
