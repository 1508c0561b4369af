"""What is a lane of the timeline called, and where do its rectangles come from?

A lane is a few lines of slices. Threads and streams come from the trace as it is. All others hold *items* of an
analysis: steps, compiled regions, graph breaks, phases of compilation, recompiles.

Slices of a thread that outlast their parent would cover what follows it, so they get lines of their own below all
others of the track: nothing overlaps, and nothing is left out.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile import level_of_detail
from tb_torchcompile_plugin.profile.columns import Int64s, indices_in, mask_at, values_at
from tb_torchcompile_plugin.profile.level_of_detail import MergedSlices
from tb_torchcompile_plugin.reader.memo import cached_once
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.collectives import is_communication
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, category_of, has_triton_prefix
from tb_torchcompile_plugin.torch_names.operators import (
    ATEN,
    is_library_operator,
    is_view,
    landmark_of,
    only_allocates,
)
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS, OPERATOR, RUNTIME_CATS, OwnCat, is_region

LaneKind = Literal[
    "steps", "regions", "breaks", "recompiles", "phases", "gaps", "thread", "stream", "counter"
]
Colors = npt.NDArray[np.uint8]

_HostKind = Literal[OwnCat, "runtime", "host_other"]
_CompileKind = Literal["step", "region", "backward_region", "break", "recompile"]
_CompilerKind = Literal["phase_dynamo", "phase_aot_autograd", "phase_inductor", "phase_triton"]
_PhaseKind = Literal[_CompilerKind, "phase_autotune", "phase_cache", "phase_other"]
_WaitKind = Literal["gap_compiling", "gap_waiting_for_ranks", "gap_waiting_for_gpu", "gap_data_loading"]
_PythonKind = Literal[
    "gap_guards", "gap_kernel_launches", "gap_graph_breaks", "gap_eager_operators", "gap_python"
]
SliceKind = Literal[_HostKind, _CompileKind, _PhaseKind, _WaitKind, _PythonKind, "gap_unaccounted"]
Color = Category | SliceKind
COLORS: tuple[Color, ...] = (*CATEGORIES, *get_args(SliceKind))
COLOR_OF: dict[str, int] = {name: code for code, name in enumerate(COLORS)}


_LANDMARKS: dict[str | None, Category] = {name: name for name in ("convolution", "attention", "gemm")}
_MIN_SLICES_FOR_LEVELS = 100_000  # fewer are merged again for each window


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """How a lane is labelled, and how many lines and slices it has."""

    id: int
    kind: LaneKind
    group: str
    title: str
    depths: int  # number of lines
    slices: int  # on all lines
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
    # Shown as they are; numbers carry their unit in their name.
    facts: dict[str, Any] = field(default_factory=dict)


class TrackSlices:
    """A thread or a stream of the trace."""

    def __init__(self, rows: "TraceRows", track: int, palette: "Palette") -> None:
        self.track = track
        self.texts = rows.trace.names
        self.colors = palette.colors
        self._rows = rows

    def runs(self, start: int, end: int, shift: int) -> MergedSlices:
        """Return the runs of level `shift` that touch [start, end)."""
        merged = self._rows.runs(self.track, start, end, shift)
        return merged._replace(group=merged.group - int(self._rows.first_group[self.track]))

    def holds(self, row: int) -> bool:
        """Return whether a row of the trace is on this track."""
        first, last = self._rows.trace.track_bounds[self.track : self.track + 2].tolist()
        return bool(first <= row < last)

    def name_codes(self, rows: Int64s) -> Int64s:
        """Return the names of rows as indices into `texts`."""
        return np.asarray(self._rows.trace.name[rows], np.int64)


class ItemSlices:
    """Items as slices, nested ones below those around them. The row of an item is its index in `items`."""

    def __init__(self, start: Int64s, dur: Int64s, items: Callable[[], list[Item]]) -> None:
        """Take columns by start, longest first, and a function that returns the items in this order when needed."""
        self.start, self.dur, self._load_items = start, dur, items
        self.line = packed(start, start + dur)
        order = np.argsort(self.line, kind="stable")
        self._singles = level_of_detail.singles(self.line[order], start[order], dur[order], order)

    @classmethod
    def of(cls, items: list[Item]) -> "ItemSlices":
        """Create slices of items in any order."""
        ordered = sorted(items, key=lambda item: (item.start, -item.dur))
        start = np.array([item.start for item in ordered], np.int64)
        return cls(start, np.array([item.dur for item in ordered], np.int64), lambda: ordered)

    @cached_once
    def items(self) -> list[Item]:
        """The items, created when first needed."""
        return self._load_items()

    @cached_once
    def texts(self) -> list[str]:
        """The distinct names of the items."""
        return list(dict.fromkeys(item.name for item in self.items))

    @cached_once
    def _names(self) -> Int64s:
        codes = {name: code for code, name in enumerate(self.texts)}
        return np.array([codes[item.name] for item in self.items], np.int64)

    @cached_once
    def _colors(self) -> Colors:
        return np.array([COLOR_OF[item.color] for item in self.items], np.uint8)

    def runs(self, start: int, end: int, shift: int) -> MergedSlices:
        """Return the runs of level `shift` that touch [start, end)."""
        return level_of_detail.touching(level_of_detail.merged(self._singles, shift), start, end)

    def name_codes(self, rows: Int64s) -> Int64s:
        """Return the names of rows as indices into `texts`."""
        return self._names[rows]

    def colors(self, rows: Int64s) -> Colors:
        """Return the colors of rows as indices into `COLORS`."""
        return self._colors[rows]

    def parent(self, row: int) -> int | None:
        """Return the item around this one: in the line above, the last to start before it."""
        above = np.flatnonzero(self.line[:row] == self.line[row] - 1)
        return int(above[-1]) if len(above) else None


# What the rectangles of a lane are made of. Times count from the timeline's zero; the group is the line.
Slices: TypeAlias = TrackSlices | ItemSlices


class Palette:
    """The color of each slice of a trace: kernels and operators by category, everything else by its kind."""

    def __init__(self, trace: Trace, user_kernels: Callable[[], frozenset[int]]) -> None:
        """user_kernels: returns the codes of the names of the user's own Triton kernels."""
        self._trace, self._user_kernels = trace, user_kernels
        kinds = {**dict.fromkeys(GPU_CATS, "other"), **dict.fromkeys(RUNTIME_CATS, "runtime")}
        colors = [COLOR_OF.get(kinds.get(cat, cat), COLOR_OF["host_other"]) for cat in trace.cats]
        self._by_cat = np.array(colors or [0], np.uint8)
        self._has_category = np.array([cat in (*GPU_CATS, OPERATOR) for cat in trace.cats] or [False])

    def colors(self, rows: Int64s) -> Colors:
        """Return the colors of rows as indices into `COLORS`."""
        cats = np.asarray(self._trace.cat[rows], np.int64)
        colors = self._by_cat[cats]
        if len(with_category := np.flatnonzero(self._has_category[cats])):
            names = np.asarray(self._trace.name[rows[with_category]], np.int64)
            keys, inverse = np.unique(names * len(self._by_cat) + cats[with_category], return_inverse=True)
            codes = [self._color(*divmod(key, len(self._by_cat))) for key in keys.tolist()]
            colors[with_category] = np.array(codes, np.uint8)[inverse]
        return colors

    def _color(self, name: int, cat: int) -> int:
        if self._trace.cats[cat] == OPERATOR:
            return COLOR_OF[_operator_color(self._trace.names[name])]
        category = category_of(self._trace.names[name], self._trace.cats[cat])
        return COLOR_OF["triton_user" if name in self._user_kernels() else category]


def _operator_color(name: str) -> Color:
    """Return the category of what an operator runs, where its name shows that it runs something."""
    if is_region(name):
        return "region"
    if is_communication(name):
        return "communication"
    if not is_library_operator(name):
        category = category_of(name)
        return category if has_triton_prefix(category) or category == "cpp" else OPERATOR
    if is_view(name.removeprefix(ATEN)) or only_allocates(name):
        return OPERATOR
    return "normalization" if "_norm" in name else _LANDMARKS.get(landmark_of(name), "aten")


class TraceRows:
    """Rows of the trace by (track, line, time). A *group* is one line of one track; times count from `origin`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.origin, self.end = trace.window()
        self.crossing, self._clamped = crossing_rows(trace)
        lines = np.array(trace.depth)
        self.depths = self._count_lines(lines)  # by track, without lines of crossing slices
        lines[self.crossing] = np.array(self.depths)[trace.track[self.crossing]] + self._extra_lines
        self.lines = self._count_lines(lines)
        self.first_group = np.concatenate(([0], np.cumsum(self.lines, dtype=np.int64)))
        self.groups = int(self.first_group[-1])
        group = lines + np.repeat(self.first_group[:-1], np.diff(trace.track_bounds)).astype(np.int32)
        narrow = np.uint16 if self.groups < 2**16 else np.int64  # numpy sorts 16 bits by radix
        order = np.argsort(group.astype(narrow), kind="stable")
        self.order = order.astype(np.int32 if len(trace) < 2**31 else np.int64)
        counts = np.bincount(group, minlength=self.groups) if len(group) else np.zeros(0, np.int64)
        self.bounds = np.concatenate(([0], np.cumsum(counts)))

    def _count_lines(self, lines: Int64s) -> list[int]:
        bounds = self.trace.track_bounds.tolist()
        return [int(lines[first:last].max(initial=-1)) + 1 for first, last in pairwise(bounds)]

    @cached_once
    def _extra_lines(self) -> Int64s:
        """The line of each crossing slice, below the ordinary ones of its track."""
        lines = np.zeros(len(self.crossing), np.int64)
        tracks = self.trace.track[self.crossing]
        for track in np.unique(tracks):
            on_track = np.flatnonzero(tracks == track)
            rows = self.crossing[on_track]
            lines[on_track] = packed(self.trace.ts[rows], self.trace.ts[rows] + self.trace.dur[rows])
        return lines

    def line_of(self, row: int) -> int:
        """Return the line in which a row is drawn."""
        crossing = int(np.searchsorted(self.crossing, row))
        if crossing < len(self.crossing) and self.crossing[crossing] == row:
            return self.depths[int(self.trace.track[row])] + int(self._extra_lines[crossing])
        return int(self.trace.depth[row])

    def clamped_end(self, rows: Int64s) -> Int64s:
        """Return where slices end if none may outlast its parent, in the trace's own time."""
        index = indices_in(self.crossing, rows)
        ends = self.trace.ts[rows] + self.trace.dur[rows]
        return np.where(index >= 0, values_at(self._clamped, index), ends)

    def runs(self, track: int, start: int, end: int, shift: int) -> MergedSlices:
        """Return the runs of level `shift` of one track that touch [start, end), by (group, start)."""
        # The coarsest level from which these can be made; None where that is the slices themselves.
        level = next((level for level in reversed(self._levels) if level.shift <= shift), None)
        window = start, end, shift
        near = level.window(self._groups(track), *window) if level else self._slices(track, *window)
        return level_of_detail.touching(level_of_detail.merged(near, shift), start, end)

    def touching(self, track: int, start: int, end: int) -> Int64s:
        """Return the rows of one track that touch [start, end)."""
        return np.asarray(level_of_detail.touching(self._slices(track, start, end, 0), start, end).row)

    def _groups(self, track: int) -> range:
        return range(int(self.first_group[track]), int(self.first_group[track + 1]))

    @cached_once
    def _levels(self) -> list[level_of_detail.Level]:
        """Computed once, because browsers ask for several windows at a time."""
        if len(self.trace) < _MIN_SLICES_FOR_LEVELS:
            return []
        groups = (
            self._singles(np.array([group]), [self.order[self.bounds[group] : self.bounds[group + 1]]])
            for group in range(self.groups)
        )
        return list(level_of_detail.levels(groups, self.groups, self.end - self.origin))

    def _slices(self, track: int, start: int, end: int, shift: int) -> MergedSlices:
        first, last = self.trace.track_bounds[track : track + 2].tolist()
        moments = np.array((start - (1 << shift), end)) + self.origin
        row_bounds = first + np.searchsorted(self.trace.ts[first:last], moments)
        rows = []
        for group in self._groups(track):
            begin, stop = int(self.bounds[group]), int(self.bounds[group + 1])
            low, high = begin + np.searchsorted(self.order[begin:stop], row_bounds)
            rows.append(self.order[max(low - 1, begin) : high])  # the one that began before may still run
        return self._singles(np.array(self._groups(track)), rows)

    def _singles(self, groups: Int64s, rows_of: list[level_of_detail.Integers]) -> MergedSlices:
        group = np.repeat(groups.astype(np.int32), [len(rows) for rows in rows_of])
        rows = np.concatenate([np.zeros(0, np.int32), *rows_of])
        return level_of_detail.singles(group, self.trace.ts[rows] - self.origin, self.trace.dur[rows], rows)


def crossing_rows(trace: Trace) -> tuple[Int64s, Int64s]:
    """Return the slices that outlast their parent, or what is left of it, in order of rows; and where that ends."""
    if not trace.crossing:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    end = trace.ts + trace.dur
    clamped = end.copy()
    rows = inner = np.flatnonzero(trace.parent >= 0)
    while len(rows):
        limit = clamped[trace.parent[rows]]
        cut = limit < clamped[rows]
        clamped[rows[cut]] = limit[cut]
        shorter = mask_at(rows[cut], len(end))
        rows = inner[shorter[trace.parent[inner]]]  # what is inside of those may now outlast them, too
    crossing = np.flatnonzero(clamped < end)
    return crossing, clamped[crossing]


def packed(start: Int64s, end: Int64s) -> Int64s:
    """Return for intervals in order of start the first line that is free when each begins."""
    lines = np.zeros(len(start), np.int64)
    busy: list[tuple[int, int]] = []  # (until when, line)
    free: list[int] = []
    for index, (begin, stop) in enumerate(zip(start.tolist(), end.tolist())):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lines[index] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stop, int(lines[index])))
    return lines
