"""Which lanes does a timeline have, in which order, and which items are on those that no thread wrote?

Items: when graphs were compiled, run and broken, when steps ran, and when each GPU idled. Compilations come from the
compile log or the summary, in Unix time, so they are shown also where the trace has nothing of them, before its first
event and after its last one. GPUs come before the threads that launch their work: streams are a line or two, threads
are as deep as their stacks.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import longest_slice
from tb_torchcompile_plugin.analysis.timeline.lanes import (
    Item,
    ItemSlices,
    Lane,
    LaneKind,
    Palette,
    Slices,
    TraceRows,
    TrackSlices,
)
from tb_torchcompile_plugin.compile_log.record import forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.columns import Floats, Int64s, Intervals, covered_ns, us
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.idle import (
    HOST_KINDS,
    UNACCOUNTED,
    Gaps,
    ThreadActivity,
    causes_of,
    idle_gaps,
)
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, steps_by_gpu
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES
from tb_torchcompile_plugin.torch_names.records import phase_of
from tb_torchcompile_plugin.torch_names.slices import GPU_CATS, GPU_LABEL, LABEL, OVERHEAD, PROFILER_CATS

_WORKERS = "Compile workers"
_MAX_GAPS = 500  # of each device, the longest: naming one takes a look at what its thread did


def has_unix_time(profile: Profile, origin: int) -> bool:
    """Return whether the trace's clock is that of the compile log."""
    return profile.trace.base_ns + origin >= compile_time.EPOCH_FROM_NS


def item_lanes(profile: Profile, origin: int) -> Iterator[tuple[LaneKind, str, list[Item]]]:
    """Return kind, title and items of the lanes that have any, top to bottom.

    origin: the trace's time at the timeline's zero.
    """
    trace = profile.trace
    steps = [
        Item(trace.names[trace.name[row]], int(trace.ts[row]) - origin, int(trace.dur[row]), "step", int(row))
        for row in profile.of(StepWindows).rows
    ]
    lanes: list[tuple[LaneKind, str, list[Item]]] = [
        ("steps", "Steps", steps),
        ("regions", "Compiled regions", _regions(profile, origin)),
        ("breaks", "Graph breaks", list(_breaks(profile, origin))),
    ]
    if profile.summary is not None and has_unix_time(profile, origin):
        epoch = profile.trace.base_ns + origin
        lanes.append(("recompiles", "Recompiles", list(_recompiles(profile.summary, epoch))))
        lanes += [("phases", *lane) for lane in _phases(profile.summary, epoch)]
    return (lane for lane in lanes if lane[2])


def steps_on_gpus(profile: Profile, origin: int) -> dict[int, list[Item]]:
    """Return the profiled steps on the clock of each device: from the first work that a step launched to the next."""
    steps = profile.of(StepWindows)
    return {
        gpu.device: [
            Item(
                name=steps.names[step],
                start=begin - origin,
                dur=length,
                color="step",
                row=int(steps.rows[step]),
                facts={"host_us": us(steps.ends[step] - steps.starts[step])},
            )
            for step, begin, length in zip(gpu.step.tolist(), gpu.begin.tolist(), gpu.length.tolist())
        ]
        for gpu in (profile.of(steps_by_gpu) if len(steps.rows) else ())
    }


def _regions(profile: Profile, origin: int) -> list[Item]:
    trace, ownership = profile.trace, profile.of(Ownership)
    compiled = profile.summary.compilations if profile.summary else ()
    # Where torch used a compile id again, the newest function counts.
    functions = {row.key.compile_id: row.function for row in sorted(compiled, key=lambda row: row.key.epoch)}
    items = [
        Item(
            name=f"{call.compile_id} {functions.get(call.compile_id, '')}".rstrip(),
            start=call.start - origin,
            dur=call.end - call.start,
            color="region",
            row=call.index,
            compile_id=call.compile_id,
            facts={
                "user_us": us(call.own_ns),
                "guard_us": us(call.guard_ns),
                "overhead_us": us(call.overhead_ns),
                "graph_us": us(call.graph_ns),
                "resume": call.resume,
            },
        )
        for call in regions.all_calls(profile.of(regions.region_calls))
    ]
    for row, code in ownership.backwards:
        compile_id, start, dur = ownership.names[code], int(trace.ts[row]) - origin, int(trace.dur[row])
        items.append(Item(f"{compile_id} backward", start, dur, "backward_region", row, compile_id))
    return items


def _breaks(profile: Profile, origin: int) -> Iterator[Item]:
    resume_lines = profile.of(regions.resumes)
    if resume_lines is None:
        return
    reported = profile.summary.graph_breaks if profile.summary else ()
    reasons = {row.key.compile_id: row.reason for row in reported}
    gaps = list(regions.all_breaks(profile.of(regions.region_calls)))
    for gap, host in zip(gaps, regions.break_host_ns(profile, gaps).tolist(), strict=True):
        compile_id, resumed = gap.call.compile_id, gap.resumed
        file, line = resume_lines.place(compile_id, resumed.compile_id)
        yield Item(
            name=f"{os.path.basename(file)}:{line}" if file else f"{compile_id} → {resumed.compile_id}",
            start=gap.start - origin,
            dur=gap.end - gap.start,
            color="break",
            row=resumed.index,
            compile_id=compile_id,
            facts={
                "host_us": us(host),
                "resume_guard_us": us(resumed.guard_ns),
                "resume_overhead_us": us(resumed.overhead_ns),
                "resume_compile_id": resumed.compile_id,
                "reason": reasons.get(compile_id, ""),
                "file": file,
                "line": line,
            },
        )


def _recompiles(summary: CompileSummary, epoch: int) -> Iterator[Item]:
    compiled = forward_compilations(summary)
    for row in summary.recompiles:
        frame = compiled.get(key_of(row.key))
        if frame is not None and frame.HasField("start_ns"):
            duration = us(frame.duration_ns) if frame.HasField("duration_ns") else None
            yield Item(
                name=f"recompile {row.key.compile_id}",
                start=frame.start_ns - epoch,
                dur=0,
                color="recompile",
                compile_id=row.key.compile_id,
                epoch=row.key.epoch,
                facts={"reasons": list(row.reasons), "duration_us": duration, "function": frame.function},
            )


def _phases(summary: CompileSummary, epoch: int) -> Iterator[tuple[str, list[Item]]]:
    """Return title and items of each thread that compiled, and of all worker processes together."""
    rows = sorted(summary.spans, key=lambda row: (row.start_ns, -row.duration_ns))
    threads = dict.fromkeys(row.thread for row in rows if not row.worker_process)
    titles = {thread: f"Compile phases, thread {number}" for number, thread in enumerate(threads, 1)}
    if set(threads) <= {0}:  # of a log, which has no thread ids
        titles = dict.fromkeys(threads, "Compile phases")
    lanes = grouped(rows, lambda row: _WORKERS if row.worker_process else titles[row.thread])
    for title in sorted(lanes, key=_WORKERS.__eq__):
        items = []
        around: list[tuple[int, str]] = []  # (end, phase) of the spans that are still open
        for row in lanes[title]:
            while around and around[-1][0] <= row.start_ns:
                around.pop()
            phase = phase_of(row.name) or (around[-1][1] if around else "other")
            around.append((row.start_ns + row.duration_ns, phase))
            fields = ("function", "kernel", "unfinished")
            facts = {"phase": phase, **{name: getattr(row, name) for name in fields}}
            items.append(
                Item(
                    name=f"{row.name}: {row.kernel}" if row.kernel else row.name,
                    start=row.start_ns - epoch,
                    dur=row.duration_ns,
                    color=f"phase_{phase}",
                    compile_id=row.key.compile_id or None,
                    epoch=row.key.epoch,
                    facts={name: value for name, value in facts.items() if value},
                )
            )
        yield title, items


def gaps_of_gpus(profile: Profile, origin: int) -> dict[int, tuple[ItemSlices, int]]:
    """Return the longest gaps between two GPU events of each device, and how many shorter ones are left out.

    Each is named after what the host did meanwhile, when it is to be drawn: a timeline opens before that is known.
    """
    slices = {}
    for device, gaps in profile.of(idle_gaps).items():
        if len(inner := gaps.inner()):
            longest = inner.take(np.sort(np.argsort(inner.starts - inner.ends, kind="stable")[:_MAX_GAPS]))
            items = partial(_gap_items, profile, longest, origin)
            drawn = ItemSlices(longest.starts - origin, longest.ends - longest.starts, items)
            slices[device] = drawn, max(0, len(inner) - _MAX_GAPS)
    return slices


def _gap_items(profile: Profile, gaps: Gaps, origin: int) -> list[Item]:
    trace = profile.trace
    items = []
    columns = zip(gaps.starts.tolist(), gaps.ends.tolist(), gaps.track.tolist())
    for (start, end, track), ns in zip(columns, causes_of(gaps, profile.of(ThreadActivity)).tolist()):
        row = longest_slice(trace, track, start, end) if track >= 0 else None
        cause = HOST_KINDS[max(range(len(ns)), key=ns.__getitem__)]
        items.append(
            Item(
                name="idle"
                if row is None or cause == HOST_KINDS[UNACCOUNTED]
                else trace.names[trace.name[row]],
                start=start - origin,
                dur=end - start,
                color=f"gap_{cause}",
                row=row,
                facts={f"{name}_us": us(time) for name, time in zip(HOST_KINDS, ns, strict=True) if time},
            )
        )
    return items


_MEMORY = (("total_allocated", "Memory allocated"), ("total_reserved", "Memory reserved"))
_DEVICE_CATS = (*GPU_CATS, GPU_LABEL)


class Points(NamedTuple):
    """Points of a plot as columns, at most one per bucket. Until the next point the last value holds."""

    start: Int64s  # of the bucket (ns)
    greatest: Floats  # value in the bucket
    last: Floats  # value in the bucket


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
        number = self._add(
            kind,
            group,
            "Overhead" if is_overhead else track.thread_name.strip() or thread,
            depths=rows.lines[slices.track],
            slices=last - first,
            note=f"{crossing} slices outlast their parents and have separate lines" if crossing else "",
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
    pending = grouped(counters(rows.trace, profile.of(gpu_work), rows.origin), lambda row: row.group)
    for kind, group, track in _tracks(rows.trace, launches):
        if items := steps.pop(group, []):
            drawn.add_items("steps", group, f"Steps on {group}", ItemSlices.of(items))
        if group in idle:
            gaps, left_out = idle.pop(group)
            note = f"{plural(left_out, 'shorter gap')} not drawn" if left_out else ""
            drawn.add_items("gaps", group, "Idle", gaps, note)
        for counter in pending.pop(group, ()):
            drawn.add_counter(counter)
        launches_nothing = kind == "thread" and bool(launches.any()) and not launches[track]
        drawn.add_track(kind, group, TrackSlices(rows, track, palette), rows, folded=launches_nothing)
    for counter in chain.from_iterable(pending.values()):
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
