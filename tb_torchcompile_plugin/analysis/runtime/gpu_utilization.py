"""Show how busy each GPU was, with what, why it idled, and what bounds a step: what `report --json` prints.

The wall time of a step, seen from its busiest device, has six parts that sum to it; the largest is the verdict.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.runtime.gpu_idle import (
    GapBin,
    HeldUp,
    IdleCauses,
    IdleGap,
    gap_histogram,
    idle_causes,
    idle_culprits,
    longest_gaps,
)
from tb_torchcompile_plugin.analysis.runtime.launch_stats import LaunchStats, launch_stats
from tb_torchcompile_plugin.analysis.runtime.step_picture import time_base
from tb_torchcompile_plugin.profile import steps as profile_steps
from tb_torchcompile_plugin.profile.columns import groups_of_equal
from tb_torchcompile_plugin.profile.gpu.idle import causes_in, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, device_names, gpu_work, layers
from tb_torchcompile_plugin.profile.host.thread_activity import HOST_KINDS, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns, share_percent, us
from tb_torchcompile_plugin.profile.profile import Profile

Bound = Literal["compute", "copy", "communication", "input", "compile", "launch"]
_COMMUNICATION, _INPUT, _COMPILE = (
    HOST_KINDS.index(kind) for kind in ("waiting_for_ranks", "data_loading", "compiling")
)
_MAX_GAPS = 50  # listed of each device


class Verdict(msgspec.Struct, frozen=True):
    """What bounds a step on the clock that limits it: the largest of six parts that sum to `wall_us`."""

    bound: Bound
    share_percent: float | None  # of the bound; None of a window that takes no time
    device: int
    wall_us: float
    compute_us: float
    copy_us: float  # the device only copied or filled
    communication_us: float  # only communication ran, or the host waited for it
    input_us: float  # the device idled while the host loaded data
    compile_us: float  # the device idled while the host compiled
    launch_us: float  # the device idled for another reason
    least_us: float  # how long the busiest device works: with the same work no step is shorter


class Gpu(msgspec.Struct, frozen=True):
    """One device, from its first GPU event's start to the last one's end (`span_us`)."""

    device: int
    name: str | None
    span_us: float
    busy_us: float
    busy_percent: float | None
    idle_us: float
    compute_us: float
    exposed_communication_us: float
    exposed_memory_us: float


class Stream(msgspec.Struct, frozen=True):
    """One stream of a device."""

    device: int
    stream: int | None  # None where the trace has none
    events: int
    busy_us: float
    busy_percent: float | None  # of the device's `span_us`


class DeviceInStep(msgspec.Struct, frozen=True):
    """One device in the window of a step: the parts sum to the step. It also idles outside its GPU events."""

    device: int
    busy_us: float
    busy_percent: float | None
    compute_us: float
    exposed_communication_us: float
    exposed_memory_us: float
    idle_us: float
    idle: IdleCauses  # sums to `idle_us`


class StepUtilization(msgspec.Struct, frozen=True):
    """One step, or the one window of a trace without steps: from the first GPU event to the end of the last."""

    step: str | None
    start_us: float
    wall_us: float
    devices: list[DeviceInStep]
    verdict: Verdict
    launches: int  # whose call begins in the step
    launch_call_us: float
    graph_replays: int


class DeviceIdle(msgspec.Struct, frozen=True):
    """Why one device idled inside its span, and how long at a time: causes and bins both sum to `idle_us`."""

    device: int
    idle_us: float
    gaps: int
    causes: IdleCauses
    histogram: list[GapBin]


class GpuUtilization(msgspec.Struct, frozen=True):
    """GPU time without kernels. Without GPU events, structs are None and lists empty."""

    verdict: Verdict | None  # over the steady steps, or over `window` where there are none
    mean: DeviceInStep | None  # what the verdict's device does in the step whose length is the step time
    held_up: list[HeldUp]
    held_up_of: str  # what the times of `held_up` are of: "a step"
    idle: list[DeviceIdle]
    streams: list[Stream]
    steps: list[StepUtilization]
    window: StepUtilization | None
    longest_gaps: list[IdleGap]  # of each device some, longest first
    launch_stats: LaunchStats | None


@dataclass(frozen=True, eq=False)
class Utilization:
    """The steps, or where there are none the one window, with what holds over all that are steady."""

    steps: list[StepUtilization]
    window: StepUtilization | None
    verdict: Verdict
    means: list[DeviceInStep]  # what each device does in the step whose length is the step time

    @property
    def mean(self) -> DeviceInStep:
        """What the verdict's device does in that step."""
        return next(row for row in self.means if row.device == self.verdict.device)


@dataclass(frozen=True, eq=False)
class _Windows:
    """What one device did in each window, in ns: arrays with one entry (causes: one row) per window."""

    device: int
    wall: Int64s
    busy: Int64s  # the sum of the next three
    compute: Int64s
    communication: Int64s  # exposed
    memory: Int64s  # exposed
    causes: npt.NDArray[np.int64]


def gpu_utilization(profile: Profile) -> GpuUtilization:
    """Return what is known of GPU time except kernels."""
    used = profile.of(utilization)
    idle: list[DeviceIdle] = []
    longest: list[IdleGap] = []
    for device, all_gaps in profile.of(idle_gaps).items():
        gaps = all_gaps.inner()
        causes = causes_of(gaps, profile.of(ThreadActivity)).sum(axis=0)
        total = int((gaps.ends - gaps.starts).sum())
        assert int(causes.sum()) == total, "the causes do not sum to the idle time"
        idle.append(DeviceIdle(device, us(total), len(gaps), idle_causes(causes), gap_histogram(gaps)))
        longest += longest_gaps(profile, device, gaps, _MAX_GAPS)
    return GpuUtilization(
        verdict=used.verdict if used else None,
        mean=used.mean if used else None,
        held_up=profile.of(idle_culprits),
        held_up_of=profile.of(time_base),
        idle=idle,
        streams=_streams(profile),
        steps=used.steps if used else [],
        window=used.window if used else None,
        longest_gaps=sorted(longest, key=lambda gap: -gap.idle_us),
        launch_stats=profile.of(launch_stats),
    )


def _streams(profile: Profile) -> list[Stream]:
    """Return one row per stream that did something, by device, busiest first; streams may overlap."""
    trace, work = profile.trace, profile.of(gpu_work)
    rows = []
    for device in np.unique(work.device):
        index = work.index[work.device == device]
        span = int((trace.ts[index] + trace.dur[index]).max() - trace.ts[index].min())
        for same in groups_of_equal(index, trace.stream):
            stream, total = int(trace.stream[same[0]]), busy(trace, same).total_ns
            number = stream if stream >= 0 else None
            rows.append(Stream(int(device), number, len(same), us(total), share_percent(total, span)))
    return sorted(rows, key=lambda row: (row.device, -row.busy_us))


def gpus(profile: Profile) -> list[Gpu]:
    """Return one row per device, [] without GPU events."""
    trace, work = profile.trace, profile.of(gpu_work)
    names, rows = device_names(trace), []
    for device in np.unique(work.device).tolist():
        covered = layers(trace, work.where(work.device == device))
        compute, with_communication, total = (layer.total_ns for layer in covered)
        communication, memory = with_communication - compute, total - with_communication
        starts, ends = covered.memory
        idle, span = int((starts[1:] - ends[:-1]).sum()), int(ends[-1] - starts[0])
        assert compute + communication + memory + idle == span, "the parts do not sum to the span"
        assert min(compute, communication, memory, idle) >= 0, "a part is negative"
        row = Gpu(
            device=device,
            name=names.get(device),
            span_us=us(span),
            busy_us=us(total),
            busy_percent=share_percent(total, span) if profile.of(idle_gaps) else None,
            idle_us=us(idle),
            compute_us=us(compute),
            exposed_communication_us=us(communication),
            exposed_memory_us=us(memory),
        )
        rows.append(row)
    return rows


def utilization(profile: Profile) -> Utilization | None:
    """Return what each device did in each step, and the verdict; None without GPU events, or a step that has all."""
    trace, steps = profile.trace, profile.of(profile_steps.StepWindows)
    if not profile.of(idle_gaps):
        return None
    begins, ends = profile.of(profile_steps.bottleneck_windows if len(steps) else profile_steps.span_window)
    devices = [_windows(profile, device, begins, ends) for device in profile.of(idle_gaps)]
    on_host = profile.of(profile_steps.profiled_time) if len(steps) else profile.of(profile_steps.span_window)
    rows, lacks = [], profile.of(profile_steps.incomplete_steps) if len(steps) else np.zeros(1, bool)
    for index, (name, begin, end) in enumerate(zip(steps.names or [None], begins, ends)):
        if lacks[index]:  # without its GPU records it is not idle, but unknown
            continue
        launches = profile.of(launch_calls).between(on_host.starts[index], on_host.ends[index])
        row = StepUtilization(
            step=name,
            start_us=us(begin - trace.window()[0]),
            wall_us=us(end - begin),
            devices=[_device(device, np.array([index])) for device in devices],
            verdict=_verdict(devices, np.array([index])),
            launches=launches.launches,
            launch_call_us=us(launches.time_ns),
            graph_replays=launches.replays,
        )
        rows.append(row)
    steady = profile.of(profile_steps.steady_steps)
    counted = steady.rows if steady else np.arange(len(begins))
    # Profiling makes the host slower, so a device idles longer: its work takes as long unprofiled.
    overhead_ns = (
        round(1000 * profile.of(profile_steps.step_time).overhead_us * len(counted)) if steady else 0
    )
    total = _verdict(devices, counted, overhead_ns)
    means = [_device(device, counted, overhead_ns) for device in devices]
    return Utilization(rows if len(steps) else [], None if len(steps) else rows[0], total, means)


def _windows(profile: Profile, device: int, begins: Int64s, ends: Int64s) -> _Windows:
    trace, work = profile.trace, profile.of(gpu_work)
    on_device = work.where(work.device == device)
    compute, communication, memory = (covered_ns(layer, begins, ends) for layer in layers(trace, on_device))
    causes = causes_in(profile.of(idle_gaps)[device], profile.of(ThreadActivity), begins, ends)
    assert np.array_equal(memory + causes.sum(axis=1), ends - begins)
    return _Windows(
        device=device,
        wall=ends - begins,
        busy=memory,
        compute=compute,
        communication=communication - compute,
        memory=memory - communication,
        causes=causes,
    )


def _verdict(devices: list[_Windows], indices: Int64s, overhead_ns: int = 0) -> Verdict:
    """Return the verdict over these windows, by the device that is busy longest, without so much overhead."""
    windows = max(devices, key=lambda device: int(device.busy[indices].sum()))
    columns = windows.busy, windows.communication, windows.memory
    busy, communication, memory = (int(column[indices].sum()) for column in columns)
    idle = _idle(windows, indices, overhead_ns)
    wall = busy + int(idle.sum())
    parts: dict[Bound, int] = {
        "compute": busy - communication - memory,
        "copy": memory,
        "communication": communication + int(idle[_COMMUNICATION]),
        "input": int(idle[_INPUT]),
        "compile": int(idle[_COMPILE]),
    }
    parts["launch"] = wall - sum(parts.values())
    bound = max(parts, key=lambda name: parts[name])
    return Verdict(
        bound=bound,
        share_percent=share_percent(parts[bound], wall),
        device=windows.device,
        wall_us=us(wall),
        **{f"{name}_us": us(ns) for name, ns in parts.items()},
        least_us=us(busy),
    )


def _idle(windows: _Windows, indices: Int64s, overhead_ns: int) -> Int64s:
    """Return why the device idled in these windows (ns), with each cause as much shorter as all are by the overhead."""
    idle = windows.causes[indices].sum(axis=0)
    total = int(idle.sum())
    assert total == int((windows.wall - windows.busy)[indices].sum()), "the parts do not sum to the windows"
    left = max(total - overhead_ns, 0)  # in whole ns that sum to it
    edges = np.round(np.cumsum(idle) * (left / total if total else 0.0)).astype(np.int64)
    return np.diff(edges, prepend=0)


def _device(windows: _Windows, indices: Int64s, overhead_ns: int = 0) -> DeviceInStep:
    """Return what the device did in the mean of these windows, without so much overhead in all of them."""
    count = len(indices)
    busy, idle = int(windows.busy[indices].sum()), _idle(windows, indices, overhead_ns)
    return DeviceInStep(
        device=windows.device,
        busy_us=us(busy) / count,
        busy_percent=share_percent(busy, busy + int(idle.sum())),
        compute_us=us(windows.compute[indices].sum()) / count,
        exposed_communication_us=us(windows.communication[indices].sum()) / count,
        exposed_memory_us=us(windows.memory[indices].sum()) / count,
        idle_us=us(idle.sum()) / count,
        idle=idle_causes(idle, count),
    )
