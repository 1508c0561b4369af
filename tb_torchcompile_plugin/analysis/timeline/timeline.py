"""A trace as lanes of rectangles, at the level of detail that a window of some width can show.

`Timeline` is made once for a profile. Times count in ns from the trace's first event (`Trace.window`), so compilations
before it have negative ones. A window answers with at most a few rectangles a pixel and line, whatever it spans: see
`detail` for which slices share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.timeline.items import has_unix_time
from tb_torchcompile_plugin.analysis.timeline.lanes import (
    COLORS,
    Color,
    Colors,
    ItemSlices,
    Lane,
    Palette,
    Slices,
    TrackSlices,
)
from tb_torchcompile_plugin.analysis.timeline.layout import Points, layout, user_kernels
from tb_torchcompile_plugin.analysis.timeline.trace_rows import TraceRows
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.level_of_detail import MergedSlices, aligned, shift_for
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_slices
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import Codes
from tb_torchcompile_plugin.reader.memo import Memo, once

MAX_WIDTH = 16384
MAX_RECTANGLES = 8192  # in one answer; a window with more is answered with longer buckets
_SEE = "See docs/http.md"


class StepSpan(msgspec.Struct, frozen=True):
    name: str
    start_ns: int
    end_ns: int


class TimelineLanes(msgspec.Struct, frozen=True):
    """What there is to draw. `extent`: from the first to the last thing of all lanes; `home`: where to open.
    `notes`: which lanes are missing, and why."""

    headline: str
    duration_ns: int
    extent: list[int]
    home: list[int]
    steps: list[StepSpan]
    lanes: list[Lane]
    categories: list[Color]
    notes: list[str]


class Rectangles(NamedTuple):
    """Columns of equal length by (lane, line, start): runs, and how to draw them. `name` is a place in a table."""

    lane: Int64s
    runs: MergedSlices
    name: Int64s
    color: Colors


class Window(NamedTuple):
    """What a window shows. `start` … `end`: the whole buckets of 2^shift ns that it touches."""

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
        self.lanes, self.slices, self.counters = layout(profile, self.rows, self.palette)
        drawn = ((lane, slices) for lane, slices in self.slices.items() if isinstance(slices, TrackSlices))
        self.lane_of_track = {slices.track: lane for lane, slices in drawn}
        self.last_search = Memo(most=1)  # somebody steps through it

    def describe(self) -> TimelineLanes:
        """What the tab asks first."""
        starts, ends = self._steps
        names = [
            self.profile.trace.names[code] for code in self.profile.trace.name[self.profile.of(step_slices)]
        ]
        slices = sum(lane.slices for lane in self.lanes if lane.kind != "counter")
        return TimelineLanes(
            headline=f"{plural(slices, 'slice')} on {plural(len(self.lanes), 'lane')}.",
            duration_ns=self.duration,
            extent=list(self.extent),
            home=list(self._home()),
            steps=[StepSpan(*step) for step in zip(names, starts.tolist(), ends.tolist())],
            lanes=self.lanes,
            categories=list(COLORS),
            notes=self._notes(),
        )

    @once
    def extent(self) -> tuple[int, int]:
        items = [slices for slices in self.slices.values() if isinstance(slices, ItemSlices)]
        first = min((int(slices.start.min()) for slices in items), default=0)
        last = max((int((slices.start + slices.dur).max()) for slices in items), default=0)
        every = [time - self.origin for time in self.profile.trace.extent()]
        return min(0, first, *every), max(self.duration, last, *every)

    def window(self, start: int, end: int, width: int, lanes: Iterable[int]) -> Window:
        """What [start, end) shows on `width` pixels. Raises BadRequest for what cannot be shown."""
        wanted = sorted(set(lanes))
        self.check_lanes(wanted)
        self.check(start, end)
        if not 1 <= width <= MAX_WIDTH:
            raise BadRequest(f"width is not between 1 and {MAX_WIDTH} pixels", next_step=_SEE)
        shift = shift_for(end - start, width)
        drawn = [lane for lane in wanted if lane in self.slices]
        merged = self._runs(start, end, shift, drawn)
        while sum(len(runs.start) for runs in merged) > MAX_RECTANGLES and 1 << shift < end - start:
            shift += 1
            merged = self._runs(start, end, shift, drawn)
        first, last = aligned(start, end, shift)
        names = _Names()
        rectangles = self._rectangles(drawn, merged, names)
        points = {
            lane: self.counters[lane].points(first, last, shift) for lane in wanted if lane in self.counters
        }
        return Window(first, last, shift, names.texts, rectangles, points)

    def check_lanes(self, lanes: Iterable[int]) -> None:
        """Raise BadRequest for lanes that there are not."""
        unknown = [lane for lane in lanes if not 0 <= lane < len(self.lanes)]
        if unknown:
            raise BadRequest(
                f"there is no lane {unknown[0]}", next_step="Ask for the lanes that `timeline` lists"
            )

    def check(self, start: int, end: int) -> None:
        """Raise BadRequest for a window without time, and one where nothing is."""
        first, last = self.extent
        if start >= end:
            raise BadRequest("the window ends before it begins", next_step="Give from < to, in ns")
        if end < first or start > last:
            raise BadRequest(f"the window lies outside of {first} … {last} ns", next_step=_SEE)

    def _runs(self, start: int, end: int, shift: int, lanes: Sequence[int]) -> list[MergedSlices]:
        first, last = aligned(start, end, shift)
        return [self.slices[lane].runs(first, last, shift) for lane in lanes]

    def _rectangles(self, lanes: Sequence[int], merged: Sequence[MergedSlices], names: _Names) -> Rectangles:
        if not merged:
            none = np.zeros(0, np.int64)
            return Rectangles(
                none, MergedSlices(*[none] * len(MergedSlices._fields)), none, none.astype(np.uint8)
            )
        codes = [names.codes(self.slices[lane], runs.row) for lane, runs in zip(lanes, merged)]
        colors = [self.slices[lane].colors(runs.row) for lane, runs in zip(lanes, merged)]
        return Rectangles(
            np.repeat(np.array(lanes), [len(runs.start) for runs in merged]),
            MergedSlices(*(np.concatenate(columns) for columns in zip(*merged))),
            np.concatenate(codes),
            np.concatenate(colors),
        )

    @once
    def _steps(self) -> tuple[Int64s, Int64s]:
        rows = self.profile.of(step_slices)
        starts = self.profile.trace.ts[rows] - self.origin
        return starts, starts + self.profile.trace.dur[rows]

    def _notes(self) -> list[str]:
        """Which lanes are missing, and why."""
        if self.profile.summary is None:
            return [
                "No compile summary or log goes with this trace, so phases of compilation and recompiles are "
                "not shown. The handler of this package writes one beside each trace"
            ]
        if not has_unix_time(self.profile, self.origin):
            return ["Phases of compilation and recompiles have no place: the trace's clock is not Unix time"]
        return []

    def _home(self) -> tuple[int, int]:
        """The first profiled step with the GPU work that it launched, or everything."""
        return self.around_step(0) if len(self._steps[0]) else (0, self.duration)

    def around_step(self, place: int) -> tuple[int, int]:
        """A profiled step by its place, with the GPU work that it launched."""
        starts, ends = self._steps
        trace, work = self.profile.trace, self.profile.of(gpu_work)
        start, end = int(starts[place]), int(ends[place])
        step = self.profile.of(StepWindows).launching(trace, trace.launch_of()[work.index])
        mine = work.index[step == place]
        finished = trace.ts[mine] + trace.dur[mine] - self.origin
        return start, max(end, int(finished.max(initial=end)))


class _Names(Codes):
    """The texts that one answer names, each once."""

    def codes(self, slices: Slices, rows: Int64s) -> Int64s:
        """The name of each row as a place in `texts`."""
        distinct, inverse = np.unique(slices.name_codes(rows), return_inverse=True)
        codes = [self.code(slices.texts[code]) for code in distinct.tolist()]
        return np.array(codes, np.int64)[inverse]


# What is told of a slice or of a stretch of time in words, line by line.


_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))


class Fact(msgspec.Struct, frozen=True):
    """`value` null: not known, `unknown` says why. `title`: what it is."""

    label: str
    value: str | None
    title: str = ""
    unknown: str = ""


def time_fact(label: str, ns: int | None, title: str = "", unknown: str = "") -> Fact:
    return Fact(label, None if ns is None else duration(us(ns)), title, unknown)


def busy_fact(label: str, ns: int, share: float | None, kernels: int | None = None) -> Fact:
    """ "41.2 % (2.06 ms), 21 kernels"."""
    value = f"{percent(share or 0)} ({duration(us(ns))})"
    return Fact(label, value if kernels is None else f"{value}, {plural(kernels, 'kernel')}")


def exact(ns: int) -> str:
    """All digits of a time: "1.234567891 s"."""
    size, name = next((row for row in _UNITS if abs(ns) >= row[0]), _UNITS[-1])
    digits = f"{abs(ns) // size}.{abs(ns) % size * 10**9 // size:09}".rstrip("0").rstrip(".")
    return f"{'-' if ns < 0 else ''}{digits}\u202f{name}"
