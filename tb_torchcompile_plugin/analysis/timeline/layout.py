"""Which lanes does a timeline have, and in which order? Steps, what was compiled, GPUs, host threads, the rest.

GPUs come before the threads that launch their work: streams are a line or two, threads are as deep as their stacks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.timeline.items import gaps_of_gpus, item_lanes, steps_on_gpus
from tb_torchcompile_plugin.analysis.timeline.lanes import (
    ItemSlices,
    Lane,
    LaneKind,
    Palette,
    Slices,
    TraceRows,
    TrackSlices,
)
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS, GPU_LABEL, LABEL, OVERHEAD, PROFILER_CATS

Float64s = npt.NDArray[np.float64]

_MEMORY = (("total_allocated", "Memory allocated"), ("total_reserved", "Memory reserved"))
_DEVICE_CATS = (*GPU_CATS, GPU_LABEL)


class Points(NamedTuple):
    """Points of a plot as columns, at most one per bucket. Until the next point the last value holds."""

    start: Int64s  # of the bucket (ns)
    greatest: Float64s  # value in the bucket
    last: Float64s  # value in the bucket


@dataclass
class Counter:
    """A plot on a lane of its own."""

    group: str
    title: str
    unit: str
    note: str
    changes: int  # how many values there are in all
    # Returns the points of the buckets of 2^shift ns in [start, end), both multiples of that.
    points: Callable[[int, int, int], Points]


def counters(trace: Trace, work: GpuWork, origin: int) -> Iterator[Counter]:
    """Return the counters that the trace has values of."""
    for device in np.unique(work.device).tolist():
        intervals = busy(trace, work.index[work.device == device])
        shifted = Intervals(intervals.starts - origin, intervals.ends - origin)
        note = "Share of the time in which the device ran a kernel, a copy or a fill"
        points = partial(_busy_points, shifted)
        yield Counter(f"GPU {device}", "GPU busy", "%", note, len(shifted.starts), points)
    memory = trace.memory()
    devices = memory["device_type"] << 32 | np.maximum(memory["device_id"], 0)
    for device in np.unique(devices).tolist():
        of_device = np.flatnonzero(devices == device)
        group = f"GPU {device & 0xFFFFFFFF}" if device >> 32 else "CPU"
        for column, title in _MEMORY:
            rows = of_device[memory[column][of_device] >= 0]
            if memory[column][rows].any():
                points = partial(_memory_points, memory["ts"][rows] - origin, memory[column][rows])
                yield Counter(group, title, "bytes", "", len(rows), points)


def _busy_points(busy: Intervals, start: int, end: int, shift: int) -> Points:
    """Return the share of each bucket in which a device was busy, where it changes."""
    starts = np.arange(start, end, 1 << shift)
    share = 100 * covered_ns(busy, starts, starts + (1 << shift)) / (1 << shift)
    changed = np.append(True, share[1:] != share[:-1])[: len(share)]
    return Points(starts[changed], share[changed], share[changed])


def _memory_points(at: Int64s, memory: Int64s, start: int, end: int, shift: int) -> Points:
    """Return the memory of a device in each bucket in which some was allocated or freed."""
    low, high = np.searchsorted(at, (start, end))
    bucket = at[low:high] >> shift
    values = memory[low:high].astype(np.float64)
    first = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1])[: len(bucket)])
    last = np.append(first[1:], len(values)) - 1 if len(first) else first
    greatest = np.maximum.reduceat(values, first) if len(first) else values
    points = Points(bucket[first] << shift, greatest, values[last])
    if not low:
        return points
    before = float(memory[low - 1])  # holds when the window begins
    if len(first) and points.start[0] == start:
        points.greatest[0] = max(points.greatest[0], before)
        return points
    return Points(np.append(start, points.start), *(np.append(before, column) for column in points[1:]))


@dataclass
class TimelineLayout:
    """The lanes, and what each draws: slices, or a plot."""

    lanes: list[Lane] = field(default_factory=list)
    slices: dict[int, Slices] = field(default_factory=dict)
    counters: dict[int, Counter] = field(default_factory=dict)

    def add_items(self, kind: LaneKind, group: str, title: str, items: ItemSlices, note: str = "") -> None:
        """Add a lane of items."""
        lines, count, later = int(items.line.max()) + 1, len(items.start), kind == "gaps"
        number = self._add(kind, group, title, depths=lines, slices=count, note=note, later=later)
        self.slices[number] = items

    def add_counter(self, counter: Counter) -> None:
        """Add a lane with a plot."""
        fields = {"depths": 1, "slices": counter.changes, "unit": counter.unit, "note": counter.note}
        self.counters[self._add("counter", counter.group, counter.title, **fields)] = counter

    def add_track(
        self, kind: LaneKind, group: str, slices: TrackSlices, rows: TraceRows, *, folded: bool
    ) -> None:
        """Add a lane of a thread or a stream."""
        track = rows.trace.tracks[slices.track]
        first, last = rows.trace.track_bounds[slices.track : slices.track + 2].tolist()
        crossing = int(np.diff(np.searchsorted(rows.crossing, (first, last)))[0])
        thread = f"thread {track.tid}" if isinstance(track.tid, int) else track.tid
        is_overhead = _cats(rows.trace, slices.track) == {OVERHEAD}
        note = f"{crossing} slices outlast their parents and have separate lines"
        number = self._add(
            kind,
            group,
            "Overhead" if is_overhead else track.thread_name.strip() or thread,
            depths=rows.lines[slices.track],
            slices=last - first,
            note=note if crossing else "",
            folded=folded,
        )
        self.slices[number] = slices

    def _add(self, kind: LaneKind, group: str, title: str, **fields: Any) -> int:
        number = len(self.lanes)
        self.lanes.append(Lane(id=number, kind=kind, group=group, title=title, **fields))
        return number


def layout(profile: Profile, rows: TraceRows, palette: Palette) -> TimelineLayout:
    """Return the lanes of a timeline, top to bottom."""
    drawn = TimelineLayout()
    for kind, title, items in item_lanes(profile, rows.origin):
        drawn.add_items(kind, "" if kind == "steps" else "compile", title, ItemSlices.of(items))
    steps = {f"GPU {device}": items for device, items in steps_on_gpus(profile, rows.origin).items()}
    idle = {f"GPU {device}": gaps for device, gaps in gaps_of_gpus(profile, rows.origin).items()}
    calls = rows.trace.launch_of()
    launches = np.bincount(rows.trace.track[calls[calls >= 0]], minlength=len(rows.trace.tracks))
    pending = list(counters(rows.trace, profile.of(gpu_work), rows.origin))
    for kind, group, track in _tracks(rows.trace, launches):
        if items := steps.pop(group, []):
            drawn.add_items("steps", group, f"Steps on {group}", ItemSlices.of(items))
        if group in idle:
            gaps, left_out = idle.pop(group)
            note = f"{plural(left_out, 'shorter gap')} not drawn" if left_out else ""
            drawn.add_items("gaps", group, "Idle", gaps, note)
        for counter in [counter for counter in pending if counter.group == group]:
            pending.remove(counter)
            drawn.add_counter(counter)
        launches_nothing = kind == "thread" and bool(launches.any()) and not launches[track]
        drawn.add_track(kind, group, TrackSlices(rows, track, palette), rows, folded=launches_nothing)
    for counter in pending:
        drawn.add_counter(counter)
    return drawn


def user_kernels(profile: Profile) -> frozenset[int]:
    """Return the codes of the names of the user's own Triton kernels."""
    category = CATEGORIES.index("triton_user")
    names = [launched.name[launched.category == category] for launched in profile.of(kernel_launches)]
    return frozenset(np.unique(np.concatenate(names)).tolist()) if names else frozenset()


def _tracks(trace: Trace, launches: Int64s) -> Iterator[tuple[LaneKind, str, int]]:
    """Return kind, group and number of each track that has slices.

    Streams come first; then threads: that of the steps, then by number of launches (autograd's among them); then the
    profiler's own.
    """
    cats = {track: _cats(trace, track) for track in range(len(trace.tracks))}
    own = [track for track, names in cats.items() if names and names <= set(PROFILER_CATS)]
    streams = [track for track, names in cats.items() if names & set(_DEVICE_CATS)]
    threads = [track for track, names in cats.items() if names and track not in own and track not in streams]
    with_steps = {int(trace.track[row]) for row in trace.select(cat=LABEL)[:1]}
    for track in streams:
        first, last = trace.track_bounds[track : track + 2].tolist()
        devices = trace.device[first:last]
        devices = devices[devices >= 0]
        yield "stream", f"GPU {devices[0] if len(devices) else trace.tracks[track].pid}", track
    for track in sorted(threads, key=lambda track: (track not in with_steps, -int(launches[track]))):
        name, pid = trace.tracks[track].process_name, trace.tracks[track].pid
        yield "thread", f"{name} ({pid})" if name else f"process {pid}", track
    for track in own:
        yield "thread", "profiler", track


def _cats(trace: Trace, track: int) -> set[str]:
    first, last = trace.track_bounds[track : track + 2].tolist()
    return {trace.cats[code] for code in np.flatnonzero(np.bincount(trace.cat[first:last])).tolist()}
