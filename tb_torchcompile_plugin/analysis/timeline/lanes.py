"""What is a lane of the timeline called, and where do its rectangles come from?

A lane is a few lines of slices. Threads and streams come from the trace as it is. All others hold *items* of an
analysis: steps, compiled regions, graph breaks, phases of compilation, recompiles.
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


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    kind: LaneKind
    group: str
    title: str
    depths: int  # number of lines
    slices: int  # on all lines
    crossing: int = 0  # slices that outlast their parent
    crossing_from: int  # the first line of these
    unit: str | None = None  # of a counter
    note: str = ""  # a sentence about the lane
    folded: bool = False  # how it opens
    later: bool = False  # its slices take long to name, and are asked for when all others are drawn


@dataclass
class Item:
    """Something that an analysis found. Times in ns from the timeline's zero."""

    name: str
    start: int
    dur: int
    color: str
    row: int | None = None  # its slice in the trace
    compile_id: str | None = None
    epoch: int | None = None
    facts: dict[str, Any] = field(
        default_factory=dict
    )  # shown as they are; numbers carry their unit in their name


class Slices(Protocol):
    """What the rectangles of a lane are made of. Times count from the timeline's zero; the group is the line."""

    @property
    def texts(self) -> Sequence[str]: ...
    def runs(self, start: int, end: int, shift: int) -> MergedSlices: ...
    def name_codes(self, rows: Int64s) -> Int64s: ...
    def colors(self, rows: Int64s) -> Colors: ...
    def times(self, row: int) -> tuple[int, int]:
        """Return start and duration."""


class TrackSlices:
    """A thread or a stream of the trace."""

    def __init__(self, rows: TraceRows, track: int, palette: Palette) -> None:
        self.track = track
        self.texts = rows.trace.names
        self.colors = palette.colors
        self._rows = rows

    def runs(self, start: int, end: int, shift: int) -> MergedSlices:
        merged = self._rows.runs(self.track, start, end, shift)
        return merged._replace(group=merged.group - int(self._rows.first_group[self.track]))

    def holds(self, row: int) -> bool:
        first, last = self._rows.trace.track_bounds[self.track : self.track + 2].tolist()
        return bool(first <= row < last)

    def name_codes(self, rows: Int64s) -> Int64s:
        return np.asarray(self._rows.trace.name[rows], np.int64)

    def times(self, row: int) -> tuple[int, int]:
        return int(self._rows.trace.ts[row]) - self._rows.origin, int(self._rows.trace.dur[row])


class ItemSlices:
    """Items as slices, nested ones below those around them. The row of an item is its index in `items`."""

    def __init__(self, start: Int64s, dur: Int64s, items: Callable[[], list[Item]]) -> None:
        """Take columns by start, longest first, and a function that returns the items in this order when needed."""
        self.start, self.dur, self._load_items = start, dur, items
        self.line = packed(start, start + dur)
        order = np.argsort(self.line, kind="stable")
        self._singles = singles(self.line[order], start[order], dur[order], order)

    @classmethod
    def of(cls, items: list[Item]) -> ItemSlices:
        """Create slices of items in any order."""
        ordered = sorted(items, key=lambda item: (item.start, -item.dur))
        start = np.array([item.start for item in ordered], np.int64)
        return cls(start, np.array([item.dur for item in ordered], np.int64), lambda: ordered)

    @once
    def items(self) -> list[Item]:
        return self._load_items()

    @once
    def texts(self) -> list[str]:
        return list(dict.fromkeys(item.name for item in self.items))

    @once
    def _names(self) -> Int64s:
        codes = {name: code for code, name in enumerate(self.texts)}
        return np.array([codes[item.name] for item in self.items], np.int64)

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
        """Return the item around this one: in the line above, the last to start before it."""
        above = np.flatnonzero(self.line[:row] == self.line[row] - 1)
        return int(above[-1]) if len(above) else None


class Palette:
    """The color of each slice of a trace: kernels by category, everything else by its kind."""

    def __init__(self, trace: Trace, user_kernels: Callable[[], frozenset[int]]) -> None:
        """user_kernels: returns the codes of the names of the user's own Triton kernels."""
        self._trace, self._user_kernels = trace, user_kernels
        self._by_cat = np.array([COLOR_OF[_kind(cat)] for cat in trace.cats] or [0], np.uint8)
        self._has_category = np.array([cat in (*GPU_CATS, OPERATOR) for cat in trace.cats] or [False])

    def colors(self, rows: Int64s) -> Colors:
        cats = np.asarray(self._trace.cat[rows], np.int64)
        colors = self._by_cat[cats]
        with_category = np.flatnonzero(self._has_category[cats])
        if len(with_category):
            names = np.asarray(self._trace.name[rows[with_category]], np.int64)
            keys, inverse = np.unique(names * len(self._by_cat) + cats[with_category], return_inverse=True)
            codes = [self._color(*divmod(key, len(self._by_cat))) for key in keys.tolist()]
            colors[with_category] = np.array(codes, np.uint8)[inverse]
        return colors

    def _color(self, name: int, cat: int) -> int:
        category = category_of(self._trace.names[name], self._trace.cats[cat])
        if self._trace.cats[cat] == OPERATOR:
            return COLOR_OF["cpp" if category == "cpp" else OPERATOR]
        return COLOR_OF["triton_user" if name in self._user_kernels() else category]


def _kind(cat: str) -> str:
    if cat in GPU_CATS:
        return "other"
    if cat in RUNTIME_CATS:
        return "runtime"
    return cat if cat in COLOR_OF else "host_other"
