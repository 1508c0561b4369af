"""Which rectangles does a window of the timeline show, at the level of detail that fits its width?

`Timeline` is created once for a profile. Times count in ns from the trace's first event (`Trace.window`), so what was
compiled before it has negative ones. Whatever a window spans, its answer has at most a few rectangles per pixel and
line: see `level_of_detail` for which slices share one.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.timeline.items import Points, has_unix_time, layout, user_kernels
from tb_torchcompile_plugin.analysis.timeline.lanes import (
    COLORS,
    Color,
    Colors,
    ItemSlices,
    Lane,
    Palette,
    TraceRows,
    TrackSlices,
)
from tb_torchcompile_plugin.errors import BadRequest, visible
from tb_torchcompile_plugin.profile.columns import Int64s, us
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.level_of_detail import MergedSlices, aligned, shift_for
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching
from tb_torchcompile_plugin.reader.arrays import Codes
from tb_torchcompile_plugin.reader.memo import Memo, cached_once

MAX_WIDTH = 16384  # pixels
MAX_RECTANGLES = 8192  # in one answer; a window with more is answered with longer buckets
_NEXT_STEP = "See docs/reference/routes.md"
_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))


class StepSpan(msgspec.Struct, frozen=True):
    """A profiled step."""

    name: str
    start_ns: int
    end_ns: int


class TimelineLanes(msgspec.Struct, frozen=True):
    """What there is to draw."""

    headline: str
    duration_ns: int
    extent: list[int]  # from the first to the last slice of all lanes
    home: list[int]  # where to open
    steps: list[StepSpan]
    lanes: list[Lane]
    categories: list[Color]
    notes: list[str]  # which lanes are missing, and why


class Fact(msgspec.Struct, frozen=True):
    """One line shown about a slice or a range."""

    label: str
    value: str | None  # None where unknown
    title: str = ""  # what it is
    unknown: str = ""  # why it is unknown


class Rectangles(NamedTuple):
    """Columns of equal length by (lane, line, start): runs, and how to draw them."""

    lane: Int64s
    runs: MergedSlices
    name: Int64s  # index into `Window.names`
    color: Colors


class Window(NamedTuple):
    """What a window shows: the whole buckets of 2^shift ns that it touches."""

    start: int
    end: int
    shift: int
    names: list[str]
    rectangles: Rectangles
    counters: dict[int, Points]


class Timeline:
    """The lanes of one profile. Many threads may use it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.rows = TraceRows(profile.trace)
        self.origin, self.duration = self.rows.origin, self.rows.end - self.rows.origin
        self.palette = Palette(profile.trace, partial(profile.of, user_kernels))
        drawn = layout(profile, self.rows, self.palette)
        self.lanes, self.slices, self.counters = drawn.lanes, drawn.slices, drawn.counters
        self.lane_of_track = {
            slices.track: lane for lane, slices in self.slices.items() if isinstance(slices, TrackSlices)
        }
        self.last_search = Memo(most=1)  # a user steps through the hits of one search

    def describe(self) -> TimelineLanes:
        """Return the lanes of the timeline."""
        trace, rows = self.profile.trace, self.profile.of(StepWindows).rows
        starts = trace.ts[rows] - self.origin
        notes = []
        if self.profile.summary is None:
            notes.append(
                "No compile summary or log belongs to this trace, so compile phases and recompiles are "
                "not shown. The handler of this package writes a summary next to each trace"
            )
        elif not has_unix_time(self.profile, self.origin):
            notes.append("Compile phases and recompiles are not shown: the trace's clock is not Unix time")
        columns = trace.name[rows].tolist(), starts.tolist(), (starts + trace.dur[rows]).tolist()
        slices = sum(lane.slices for lane in self.lanes if lane.kind != "counter")
        return TimelineLanes(
            headline=f"{plural(slices, 'slice')} on {plural(len(self.lanes), 'lane')}.",
            duration_ns=self.duration,
            extent=list(self.extent),
            home=list(self.around_step(0)) if len(starts) else [0, self.duration],
            steps=[StepSpan(trace.names[name], *window) for name, *window in zip(*columns)],
            lanes=self.lanes,
            categories=list(COLORS),
            notes=notes,
        )

    @cached_once
    def extent(self) -> tuple[int, int]:
        """Start and end of everything that is drawn."""
        items = [slices for slices in self.slices.values() if isinstance(slices, ItemSlices)]
        starts = [int(slices.start.min()) for slices in items]
        ends = [int((slices.start + slices.dur).max()) for slices in items]
        trace = [time - self.origin for time in self.profile.trace.extent()]
        return min(0, *starts, *trace), max(0, self.duration, *ends, *trace)

    def window(self, start: int, end: int, width: int, lanes: Iterable[int]) -> Window:
        """Return what [start, end) shows on `width` pixels; raises BadRequest for what cannot be shown."""
        requested = sorted(set(lanes))
        self.check_lanes(requested)
        self.check(start, end)
        if not 1 <= width <= MAX_WIDTH:
            raise BadRequest(f"width is not between 1 and {MAX_WIDTH} pixels", next_step=_NEXT_STEP)
        drawn = [lane for lane in requested if lane in self.slices]
        shift = shift_for(end - start, width)
        while True:
            first, last = aligned(start, end, shift)
            runs = [self.slices[lane].runs(first, last, shift) for lane in drawn]
            if sum(len(run.start) for run in runs) <= MAX_RECTANGLES or 1 << shift >= end - start:
                break
            shift += 1
        names = Codes()
        rectangles = self._rectangles(drawn, runs, names)
        counters = {lane: self.counters[lane] for lane in requested if lane in self.counters}
        points = {lane: counter.points(first, last, shift) for lane, counter in counters.items()}
        return Window(first, last, shift, names.texts, rectangles, points)

    def check_lanes(self, lanes: Iterable[int]) -> None:
        """Raise BadRequest for lanes that do not exist."""
        for lane in lanes:
            if not 0 <= lane < len(self.lanes):
                raise BadRequest(f"there is no lane {lane}", next_step="Request a lane that `timeline` lists")

    def check(self, start: int, end: int) -> None:
        """Raise BadRequest for a window without time, and one where nothing is."""
        first, last = self.extent
        if start >= end:
            raise BadRequest("the window ends before it begins", next_step="Pass from < to, in ns")
        if end < first or start > last:
            raise BadRequest(f"the window is outside {first} … {last} ns", next_step=_NEXT_STEP)

    def around_step(self, index: int) -> tuple[int, int]:
        """Return start and end of a profiled step with the GPU work that it launched."""
        windows = self.profile.of(StepWindows).windows
        trace, work = self.profile.trace, self.profile.of(gpu_work)
        launched = work.index[launching(windows, trace, trace.launch_of()[work.index]) == index]
        end = int((trace.ts[launched] + trace.dur[launched]).max(initial=windows.ends[index]))
        return int(windows.starts[index]) - self.origin, end - self.origin

    def _rectangles(self, lanes: Sequence[int], runs: Sequence[MergedSlices], names: Codes) -> Rectangles:
        if not runs:
            none = np.zeros(0, np.int64)
            empty = MergedSlices(none, none, none, none, none, none, none)
            return Rectangles(none, empty, none, none.astype(np.uint8))
        codes, colors = [], []
        for lane, run in zip(lanes, runs):
            slices = self.slices[lane]
            distinct, inverse = np.unique(slices.name_codes(run.row), return_inverse=True)
            code = [names.code(slices.texts[name]) for name in distinct.tolist()]
            codes.append(np.array(code, np.int64)[inverse])
            colors.append(slices.colors(run.row))
        return Rectangles(
            np.repeat(np.array(lanes), [len(run.start) for run in runs]),
            MergedSlices(*(np.concatenate(columns) for columns in zip(*runs))),
            np.concatenate(codes),
            np.concatenate(colors),
        )


def time_fact(label: str, ns: int | None, title: str = "", unknown: str = "") -> Fact:
    """Return a fact about a time; None is unknown."""
    return Fact(label, None if ns is None else duration(us(ns)), title, unknown)


def busy_fact(label: str, ns: int, share: float | None, kernels: int | None = None) -> Fact:
    """Return a fact about busy time: "41.2 % (2.06 ms), 21 kernels"."""
    value = f"{percent(share or 0)} ({duration(us(ns))})"
    return Fact(label, value if kernels is None else f"{value}, {plural(kernels, 'kernel')}")


def exact(ns: int) -> str:
    """Return all digits of a time: "1.234567891 s"."""
    size, name = next((unit for unit in _UNITS if abs(ns) >= unit[0]), _UNITS[-1])
    digits = f"{abs(ns) // size}.{abs(ns) % size * 10**9 // size:09}".rstrip("0").rstrip(".")
    return f"{'-' if ns < 0 else ''}{digits}\u202f{name}"


_ALIGN = 8  # bytes, of the widest typed array
_FULL_SHARE = 65535  # what a share of 1 is sent as: the most that 16 bits hold
_NO_POINTS = Points(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

_Encoded: TypeAlias = tuple[str, int, bytes]  # dtype, length, and what is sent


class WindowColumn(msgspec.Struct, frozen=True):
    """`length` values of `dtype` from byte `offset` behind the header."""

    dtype: str
    offset: int
    length: int


class WindowHeader(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """What a browser needs to read the columns."""

    start: int  # as requested, as are the next two
    end: int
    width: int
    aligned: list[int]  # what the answer covers: whole buckets
    bucket_ns: int
    names: list[str]
    columns: dict[str, WindowColumn]


def timeline_window(timeline: Timeline, window: tuple[int, int], width: int, lanes: Sequence[int]) -> bytes:
    """Return the rectangles of these lanes in [start, end) ns, for `width` pixels; raises BadRequest."""
    start, end = window
    return encoded(timeline.window(start, end, width, lanes), start, end, width)


def encoded(window: Window, start: int, end: int, width: int) -> bytes:
    """Encode the answer to a request for [start, end) on `width` pixels."""
    columns, blocks, offset = {}, [], 0
    for name, (dtype, length, block) in _columns(window).items():
        columns[name] = WindowColumn(dtype, offset, length)
        padding = -len(block) % _ALIGN
        blocks += [block, bytes(padding)]
        offset += len(block) + padding
    names = [visible(name) for name in window.names]
    fields = WindowHeader(start, end, width, [window.start, window.end], 1 << window.shift, names, columns)
    header = msgspec.json.encode(fields)
    header += b" " * (-(4 + len(header)) % _ALIGN)
    return b"".join((len(header).to_bytes(4, "little"), header, *blocks))


def _columns(window: Window) -> dict[str, _Encoded]:
    drawn, runs = window.rectangles, window.rectangles.runs
    length = runs.end - runs.start
    share = np.where(length > 0, runs.covered / np.maximum(length, 1), 1)
    lanes = np.repeat(list(window.counters), [len(points.start) for points in window.counters.values()])
    start, greatest, last = map(np.concatenate, zip(_NO_POINTS, *window.counters.values()))
    return {
        "lane": _integers(drawn.lane),
        "depth": _integers(runs.group),
        "start": _integers(runs.start - window.start),
        "dur": _integers(length),
        "name": _integers(drawn.name),
        "color": _integers(drawn.color),
        "count": _integers(runs.size),
        "busy": _integers(np.rint(share * _FULL_SHARE)),
        "row": _integers(runs.row),
        "counter_lane": _integers(lanes),
        "counter_start": _integers(start - window.start),
        "counter_max": ("f4", len(greatest), greatest.astype("<f4").tobytes()),
        "counter_last": ("f4", len(last), last.astype("<f4").tobytes()),
    }


def _integers(values: npt.NDArray[Any]) -> _Encoded:
    """Encode in the shortest type that holds all values. "i5": the low 32 bits of all, then their high 8."""
    low, high = (values.min(), values.max()) if len(values) else (0, 0)
    for dtype in ("u1", "u2", "u4", "i4"):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return dtype, len(values), values.astype(f"<{dtype}").tobytes()
    if low >= -(1 << 39) and high < 1 << 39:
        words = values.astype("<i8").view("<u4").reshape(-1, 2)
        return "i5", len(values), words[:, 0].tobytes() + words[:, 1].astype("u1").tobytes()
    return "f8", len(values), values.astype("<f8").tobytes()
