"""Which lanes a timeline has, and in which order: steps, what was compiled, GPUs, host threads, what is left.

GPUs come before the threads that launch their work: streams are a line or two, threads are as deep as their stacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.timeline.items import (
    gaps_left_out,
    gaps_of_gpus,
    item_lanes,
    steps_on_gpus,
)
from tb_torchcompile_plugin.analysis.timeline.lanes import (
    ItemSlices,
    Lane,
    LaneKind,
    Palette,
    Slices,
    TrackSlices,
)
from tb_torchcompile_plugin.analysis.timeline.trace_rows import TraceRows
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace, Track
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS, GPU_LABEL, LABEL, OVERHEAD, PROFILER_CATS

# The plots of a timeline: how busy each GPU was, and how much memory was taken. A plot has one point a
# bucket: the greatest value that occurred in it and the last one. Where nothing changed there is no point:
# the last value holds until the next one.


Float64s = npt.NDArray[np.float64]
_MEMORY = (("total_allocated", "Memory allocated"), ("total_reserved", "Memory reserved"))


class Points(NamedTuple):
    """Columns of equal length by time: where a bucket starts (ns), and the values in it."""

    start: Int64s
    greatest: Float64s
    last: Float64s


class Counter(Protocol):
    group: str
    title: str
    unit: str
    note: str
    changes: int  # how many values there are in all

    def points(self, start: int, end: int, shift: int) -> Points:
        """Of the buckets of 2^shift ns in [start, end), both multiples of that."""


class BusyCounter:
    """The share of each bucket in which a device did anything."""

    unit = "%"
    note = "Share of the time in which the device ran a kernel, a copy or a fill"

    def __init__(self, device: int, intervals: Intervals, origin: int) -> None:
        self.group, self.title = f"GPU {device}", "GPU busy"
        self._intervals = Intervals(intervals.starts - origin, intervals.ends - origin)
        self.changes = len(intervals.starts)

    def points(self, start: int, end: int, shift: int) -> Points:
        starts = np.arange(start, end, 1 << shift)
        share = 100 * covered_ns(self._intervals, starts, starts + (1 << shift)) / (1 << shift)
        changed = np.append(True, share[1:] != share[:-1]) if len(share) else np.zeros(0, bool)
        starts, share = starts[changed], share[changed]
        return Points(starts, share, share)


class MemoryCounter:
    """What the profiler said of a device's memory each time some was taken or freed."""

    unit = "bytes"
    note = ""

    def __init__(self, group: str, title: str, at: Int64s, values: Int64s) -> None:
        self.group, self.title = group, title
        self._at, self._values = at, values
        self.changes = len(at)

    def points(self, start: int, end: int, shift: int) -> Points:
        low, high = np.searchsorted(self._at, (start, end))
        bucket = self._at[low:high] >> shift
        first = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1])) if high > low else np.zeros(0, int)
        values = self._values[low:high].astype(np.float64)
        points = Points(
            bucket[first] << shift,
            np.maximum.reduceat(values, first) if len(first) else values,
            values[np.append(first[1:], len(values)) - 1] if len(first) else values,
        )
        return self._after(points, start, int(low))

    def _after(self, points: Points, start: int, low: int) -> Points:
        """With the value that holds when the window begins."""
        if not low:
            return points
        held = float(self._values[low - 1])
        if len(points.start) and points.start[0] == start:
            points.greatest[0] = max(points.greatest[0], held)
            return points
        return Points(np.append(start, points.start), *(np.append(held, column) for column in points[1:]))


def counters(trace: Trace, work: GpuWork, origin: int) -> Iterator[Counter]:
    """Those that the trace has values of."""
    for device in np.unique(work.device).tolist():
        yield BusyCounter(device, busy(trace, work.index[work.device == device]), origin)
    memory = trace.memory()
    kinds = memory["device_type"] << 32 | np.maximum(memory["device_id"], 0)
    for kind in np.unique(kinds).tolist():
        here = np.flatnonzero(kinds == kind)
        group = f"GPU {kind & 0xFFFFFFFF}" if kind >> 32 else "CPU"
        for column, title in _MEMORY:
            rows = here[memory[column][here] >= 0]
            if memory[column][rows].any():
                yield MemoryCounter(group, title, memory["ts"][rows] - origin, memory[column][rows])


Layout = tuple[list[Lane], dict[int, Slices], dict[int, Counter]]

_DEVICE_CATS = (*GPU_CATS, GPU_LABEL)


def layout(profile: Profile, rows: TraceRows, palette: Palette) -> Layout:
    """The lanes, and by lane what it draws: slices, or a plot."""
    lanes: list[Lane] = []
    slices: dict[int, Slices] = {}
    plots: dict[int, Counter] = {}
    for kind, title, items in item_lanes(profile, rows.origin):
        _add_items(kind, "" if kind == "steps" else "compile", title, ItemSlices.of(items), lanes, slices)
    on_gpus = {f"GPU {device}": items for device, items in steps_on_gpus(profile, rows.origin).items()}
    idle = {f"GPU {device}": gaps for device, gaps in gaps_of_gpus(profile, rows.origin).items()}
    notes = {f"GPU {device}": _shorter(number) for device, number in gaps_left_out(profile).items()}
    launches = launches_by_track(rows.trace)
    waiting = list(counters(rows.trace, profile.of(gpu_work), rows.origin))
    for kind, group, track in _tracks(rows, launches):
        if steps := on_gpus.pop(group, None):
            _add_items("steps", group, f"Steps on {group}", ItemSlices.of(steps), lanes, slices)
        if gaps := idle.pop(group, None):
            _add_items("gaps", group, "Idle", gaps, lanes, slices, note=notes[group])
        for plot in [plot for plot in waiting if plot.group == group]:
            waiting.remove(plot)
            _add_plot(plot, lanes, plots)
        slices[len(lanes)] = TrackSlices(rows, track, palette)
        lane = _track_lane(len(lanes), kind, group, rows, track)
        beside = kind == "thread" and launches.any() and not launches[track]
        lanes.append(msgspec.structs.replace(lane, folded=bool(beside)))
    for plot in waiting:
        _add_plot(plot, lanes, plots)
    return lanes, slices, plots


def launches_by_track(trace: Trace) -> Int64s:
    """How much GPU work each thread launched."""
    calls = trace.launch_of()
    return np.bincount(trace.track[calls[calls >= 0]], minlength=len(trace.tracks))


def _shorter(number: int) -> str:
    return f"{plural(number, 'shorter gap')} not drawn" if number else ""


def user_kernels(profile: Profile) -> frozenset[int]:
    """Codes of the names of the user's own Triton kernels."""
    category = CATEGORIES.index("triton_user")
    names = [launched.name[launched.category == category] for launched in profile.of(kernel_launches)]
    return frozenset(np.unique(np.concatenate(names)).tolist()) if names else frozenset()


def _add_items(
    kind: LaneKind,
    group: str,
    title: str,
    drawn: ItemSlices,
    lanes: list[Lane],
    slices: dict[int, Slices],
    note: str = "",
) -> None:
    slices[len(lanes)] = drawn
    lane = _lane(len(lanes), kind, group, title, int(drawn.line.max()) + 1, len(drawn.start), note=note)
    lanes.append(msgspec.structs.replace(lane, later=kind == "gaps"))


def _add_plot(plot: Counter, lanes: list[Lane], plots: dict[int, Counter]) -> None:
    plots[len(lanes)] = plot
    lanes.append(
        _lane(len(lanes), "counter", plot.group, plot.title, 1, plot.changes, unit=plot.unit, note=plot.note)
    )


def _track_lane(number: int, kind: LaneKind, group: str, rows: TraceRows, track: int) -> Lane:
    first, last = rows.trace.track_bounds[track : track + 2].tolist()
    crossing = int(np.diff(np.searchsorted(rows.crossing, (first, last)))[0])
    note = f"{crossing} slices outlast the one around them and have lines of their own" if crossing else ""
    own = _cats(rows.trace, track) == {OVERHEAD}
    title = "Overhead" if own else _title(rows.trace.tracks[track])
    lines = rows.lines[track]
    return _lane(number, kind, group, title, lines, last - first, crossing, rows.depths[track], note=note)


def _lane(
    number: int,
    kind: LaneKind,
    group: str,
    title: str,
    depths: int,
    slices: int,
    crossing: int = 0,
    crossing_from: int | None = None,
    unit: str | None = None,
    note: str = "",
) -> Lane:
    below = depths if crossing_from is None else crossing_from
    return Lane(number, kind, group, title, depths, slices, crossing, below, unit, note)


def _tracks(rows: TraceRows, launches: Int64s) -> Iterator[tuple[LaneKind, str, int]]:
    """Kind, group and number of each track that has slices: streams by device, threads by process, that of the
    steps first and then who launches most, autograd's among them; the profiler's."""
    trace = rows.trace
    cats = [_cats(trace, track) for track in range(len(trace.tracks))]
    known = [track for track, present in enumerate(cats) if present]
    own = [track for track in known if cats[track] <= set(PROFILER_CATS)]
    streams = [track for track in known if cats[track] & set(_DEVICE_CATS)]
    threads = [track for track in known if track not in own and track not in streams]
    first = {int(trace.track[row]) for row in trace.select(cat=LABEL)[:1]}
    for track in streams:
        yield "stream", f"GPU {_device(trace, track)}", track
    for track in sorted(threads, key=lambda track: (track not in first, -int(launches[track]))):
        yield "thread", _process(trace.tracks[track]), track
    for track in own:
        yield "thread", "profiler", track


def _cats(trace: Trace, track: int) -> set[str]:
    first, last = trace.track_bounds[track : track + 2].tolist()
    return {trace.cats[code] for code in np.flatnonzero(np.bincount(trace.cat[first:last])).tolist()}


def _device(trace: Trace, track: int) -> int | str:
    first, last = trace.track_bounds[track : track + 2].tolist()
    known = trace.device[first:last]
    known = known[known >= 0]
    return int(known[0]) if len(known) else trace.tracks[track].pid


def _process(track: Track) -> str:
    return f"{track.process_name} ({track.pid})" if track.process_name else f"process {track.pid}"


def _title(track: Track) -> str:
    return track.thread_name.strip() or (f"thread {track.tid}" if isinstance(track.tid, int) else track.tid)
