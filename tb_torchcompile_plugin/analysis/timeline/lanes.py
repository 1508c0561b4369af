"""The lanes of a timeline: what each is called, and where its rectangles come from.

A lane is a few lines of slices. Threads and streams come from the trace as it is. All others hold *items* that an
analysis made: steps, compiled regions, graph breaks, phases of compilation, recompiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.timeline.trace_rows import TraceRows, packed
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.level_of_detail import MergedSlices, merged, singles, touching
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, category_of
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS, OPERATOR, RUNTIME_CATS, OwnCat

LaneKind = Literal[
    "steps", "regions", "breaks", "recompiles", "phases", "gaps", "thread", "stream", "counter"
]
Colors = npt.NDArray[np.uint8]

SliceKind = Literal[
    OwnCat,
    "runtime",
    "host_other",
    "step",
    "region",
    "backward_region",
    "break",
    "recompile",
    "phase_dynamo",
    "phase_aot_autograd",
    "phase_inductor",
    "phase_triton",
    "phase_autotune",
    "phase_cache",
    "phase_other",
    "gap_compile",
    "gap_communication_wait",
    "gap_synchronise",
    "gap_data_loading",
    "gap_guards_wrapper",
    "gap_break_eager",
    "gap_launch_call",
    "gap_python",
    "gap_nothing_launched",
]
Color = Category | SliceKind
COLORS: tuple[Color, ...] = (*CATEGORIES, *get_args(SliceKind))
COLOR_OF: dict[str, int] = {name: code for code, name in enumerate(COLORS)}


class Lane(msgspec.Struct, frozen=True):
    """A lane: `depths` lines, of which those from `crossing_from` on hold its `crossing` slices that outlast their
    parent. `slices` is how many there are in all; `unit` is of a counter, `note` a sentence about the lane.
    `folded`: it opens so. `later`: its slices take long to name, and are asked for when all others are drawn."""

    id: int
    kind: LaneKind
    group: str
    title: str
    depths: int
    slices: int
    crossing: int
    crossing_from: int
    unit: str | None
    note: str
    folded: bool = False
    later: bool = False


class Slices(Protocol):
    """What the rectangles of a lane are made of. Times count from the timeline's zero; the group is the line."""

    @property
    def texts(self) -> Sequence[str]: ...
    def runs(self, start: int, end: int, shift: int) -> MergedSlices: ...
    def name_codes(self, rows: Int64s) -> Int64s: ...
    def colors(self, rows: Int64s) -> Colors: ...
    def times(self, row: int) -> tuple[int, int]:
        """Start and duration."""


class TrackSlices:
    """A thread or a stream of the trace."""

    def __init__(self, rows: TraceRows, track: int, palette: Palette) -> None:
        self.track = track
        self.texts = rows.trace.names
        self._rows, self._palette = rows, palette

    def runs(self, start: int, end: int, shift: int) -> MergedSlices:
        merged = self._rows.runs(self.track, start, end, shift)
        return merged._replace(group=merged.group - int(self._rows.first_group[self.track]))

    def holds(self, row: int) -> bool:
        first, last = self._rows.trace.track_bounds[self.track : self.track + 2].tolist()
        return bool(first <= row < last)

    def name_codes(self, rows: Int64s) -> Int64s:
        return np.asarray(self._rows.trace.name[rows], np.int64)

    def colors(self, rows: Int64s) -> Colors:
        return self._palette.colors(rows)

    def times(self, row: int) -> tuple[int, int]:
        return int(self._rows.trace.ts[row]) - self._rows.origin, int(self._rows.trace.dur[row])


class Palette:
    """The colour of each slice of a trace: kernels by category, everything else by its kind."""

    def __init__(self, trace: Trace, users: Callable[[], frozenset[int]]) -> None:
        """users: codes of the names of the user's own Triton kernels."""
        self._trace, self._users = trace, users
        self._by_cat = np.array([COLOR_OF[_kind(cat)] for cat in self._trace.cats] or [0], np.uint8)
        kernels = [code for code, cat in enumerate(self._trace.cats) if cat in (*GPU_CATS, OPERATOR)]
        self._named = np.isin(np.arange(len(self._by_cat)), kernels)

    def colors(self, rows: Int64s) -> Colors:
        cats = np.asarray(self._trace.cat[rows], np.int64)
        colors = self._by_cat[cats]
        named = np.flatnonzero(self._named[cats])
        if len(named):
            keys = np.asarray(self._trace.name[rows[named]], np.int64) * len(self._by_cat) + cats[named]
            distinct, inverse = np.unique(keys, return_inverse=True)
            codes = [self._color(*divmod(key, len(self._by_cat))) for key in distinct.tolist()]
            colors[named] = np.array(codes, np.uint8)[inverse]
        return colors

    def _color(self, name: int, cat: int) -> int:
        category = category_of(self._trace.names[name], self._trace.cats[cat])
        if self._trace.cats[cat] == OPERATOR:
            return COLOR_OF["cpp" if category == "cpp" else OPERATOR]
        return COLOR_OF["triton_user" if name in self._users() else category]


def _kind(cat: str) -> str:
    if cat in GPU_CATS:
        return "other"
    if cat in RUNTIME_CATS:
        return "runtime"
    return cat if cat in COLOR_OF else "host_other"


@dataclass
class Item:
    """Something that an analysis found. Times in ns from the timeline's zero; `row`: its slice in the trace.

    facts: what else there is to say of it, in words or numbers that carry their unit in their name.
    """

    name: str
    start: int
    dur: int
    color: str
    row: int | None = None
    compile_id: str | None = None
    epoch: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class ItemSlices:
    """Items as slices, nested ones below those around them. The row of an item is its place in `items`."""

    def __init__(self, start: Int64s, dur: Int64s, make: Callable[[], list[Item]]) -> None:
        """Columns by start, longest first. make: the items in this order, made when one is first asked for."""
        self.start, self.dur, self._make = start, dur, make
        self.line = packed(start, start + dur)
        order = np.argsort(self.line, kind="stable")
        self._singles = singles(self.line[order], start[order], dur[order], order)

    @classmethod
    def of(cls, items: list[Item]) -> ItemSlices:
        """Of items in any order."""
        ordered = sorted(items, key=lambda item: (item.start, -item.dur))
        start, dur = (
            np.array([getattr(item, name) for item in ordered], np.int64) for name in ("start", "dur")
        )
        return cls(start, dur, lambda: ordered)

    @once
    def items(self) -> list[Item]:
        return self._make()

    @once
    def texts(self) -> list[str]:
        return list(self._codes)

    @once
    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(dict.fromkeys(item.name for item in self.items))}

    @once
    def _names(self) -> Int64s:
        return np.array([self._codes[item.name] for item in self.items], np.int64)

    @once
    def _colors(self) -> Colors:
        return np.array([COLOR_OF[item.color] for item in self.items], np.uint8)

    def runs(self, start: int, end: int, shift: int) -> MergedSlices:
        return touching(merged(self._singles, shift), start, end)

    def name_codes(self, rows: Int64s) -> Int64s:
        return self._names[rows]

    def colors(self, rows: Int64s) -> Colors:
        return self._colors[rows]

    def times(self, row: int) -> tuple[int, int]:
        return int(self.start[row]), int(self.dur[row])

    def parent(self, row: int) -> int | None:
        """The item around this one: in the line above, the last to start before it."""
        above = np.flatnonzero(self.line[:row] == self.line[row] - 1)
        return int(above[-1]) if len(above) else None
