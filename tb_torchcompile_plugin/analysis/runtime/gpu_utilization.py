"""The GPU utilization of one span, put together: what `report --json` prints and the route answers."""

from __future__ import annotations

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
    held_up,
    idle_causes,
    longest_gaps,
)
from tb_torchcompile_plugin.analysis.runtime.launch_stats import LaunchStats, launch_stats
from tb_torchcompile_plugin.analysis.runtime.step_words import idle_of
from tb_torchcompile_plugin.profile.columns import alike
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_in, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import LaunchCalls, launch_calls
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy, device_names, gpu_work, layers
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import launching, step_slices
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace

# What bounds a step: compute, copies, launches, input, communication or compilation? The wall time of a
# step, seen from its busiest device, has six parts that sum to it; the largest one is the verdict.


Bound = Literal["compute", "copy", "communication", "input", "compile", "launch"]

ON_DEVICE: tuple[Bound, ...] = ("compute", "copy", "communication")
_NOTHING_LAUNCHED = np.zeros(len(ON_DEVICE), np.int64)
_COMMUNICATION, _INPUT, _COMPILE = (
    CAUSES.index(cause) for cause in ("communication_wait", "data_loading", "compile")
)


class Verdict(msgspec.Struct, frozen=True):
    """`bound`: the largest of the six parts, which sum to `wall_us`; `share_percent` is its share. Where what was
    launched keeps the device busy for longer than `wall_us`, the host is ahead of it and cannot be what bounds:
    then it is what most of that work is in place of launch, and `share_percent` is None.

    compute: the device computed. copy: it only copied or filled. communication: only that ran, or the host waited for
    it. input, compile: the device idled while the host loaded data, or compiled. launch: it idled for another reason.
    least_us: how long the busiest device was busy, or where the host is ahead, is with what was launched: with the same
    work the step could not be shorter.
    """

    bound: Bound
    share_percent: float | None
    device: int
    wall_us: float
    compute_us: float
    copy_us: float
    communication_us: float
    input_us: float
    compile_us: float
    launch_us: float
    least_us: float


def verdict(
    device: int,
    wall_ns: int,
    busy_ns: int,
    exposed_communication_ns: int,
    exposed_memory_ns: int,
    causes_ns: Int64s,
    launched: Int64s = _NOTHING_LAUNCHED,
) -> Verdict:
    """The verdict over one window, or over several whose numbers were summed.

    causes_ns: idle time by cause. launched: how long the work takes that was launched there, by ON_DEVICE.
    """
    idle = np.asarray(causes_ns)
    assert wall_ns == busy_ns + int(idle.sum())
    parts: dict[Bound, int] = {
        "compute": busy_ns - exposed_communication_ns - exposed_memory_ns,
        "copy": exposed_memory_ns,
        "communication": exposed_communication_ns + int(idle[_COMMUNICATION]),
        "input": int(idle[_INPUT]),
        "compile": int(idle[_COMPILE]),
    }
    parts["launch"] = wall_ns - sum(parts.values())
    bound = max(parts, key=lambda name: parts[name])
    launched_ns = int(launched.sum())
    is_ahead = bound == "launch" and launched_ns >= wall_ns
    if is_ahead:
        bound = ON_DEVICE[int(np.argmax(launched))]
    return Verdict(
        bound=bound,
        share_percent=None if is_ahead else share_percent(parts[bound], wall_ns),
        device=device,
        wall_us=us(wall_ns),
        compute_us=us(parts["compute"]),
        copy_us=us(parts["copy"]),
        communication_us=us(parts["communication"]),
        input_us=us(parts["input"]),
        compile_us=us(parts["compile"]),
        launch_us=us(parts["launch"]),
        least_us=us(launched_ns if launched_ns >= wall_ns else busy_ns),
    )


def bound_unrecorded(recorded: Verdict, share: float) -> Bound:
    """What bounds the same windows while nobody records, which then take this share of their time: what recording adds
    is idle time, as between launches."""
    if recorded.bound != "launch":
        return recorded.bound
    parts: dict[Bound, float] = {
        name: getattr(recorded, f"{name}_us") for name in (*ON_DEVICE, "input", "compile")
    }
    parts["launch"] = share * recorded.wall_us - sum(parts.values())
    return max(parts, key=lambda name: parts[name])


# How busy was each GPU, and with what? By device and by stream.


class Gpu(msgspec.Struct, frozen=True):
    """One device. `span_us` runs from its first GPU event's start to the last one's end."""

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
    """One stream of a device, None where the trace does not tell; `busy_percent` is of the device's `span_us`."""

    device: int
    stream: int | None
    events: int
    busy_us: float
    busy_percent: float | None


def gpus(profile: Profile) -> list[Gpu]:
    """One row a device, [] without GPU events."""
    trace, work = profile.trace, profile.of(gpu_work)
    names = device_names(trace)
    return [
        _device_row(trace, work.where(work.device == device), int(device), names.get(int(device)))
        for device in np.unique(work.device)
    ]


def streams(profile: Profile) -> list[Stream]:
    """One row per stream that did something, by device, busiest first. Streams of one device may overlap."""
    trace, work = profile.trace, profile.of(gpu_work)
    rows = []
    for device in np.unique(work.device):
        index = work.index[work.device == device]
        ends = trace.ts[index] + trace.dur[index]
        span = int(ends.max() - trace.ts[index].min())
        for stream in np.unique(trace.stream[index]):
            mine = index[trace.stream[index] == stream]
            total = busy(trace, mine).total_ns
            known = int(stream) if stream >= 0 else None
            rows.append(Stream(int(device), known, len(mine), us(total), share_percent(total, span)))
    return sorted(rows, key=lambda row: (row.device, -row.busy_us))


def _device_row(trace: Trace, work: GpuWork, device: int, name: str | None) -> Gpu:
    did = layers(trace, work)
    span = int(did.memory.ends[-1] - did.memory.starts[0])
    compute, compute_or_communication, total = (layer.total_ns for layer in did)
    exposed_communication = compute_or_communication - compute
    exposed_memory = total - compute_or_communication
    idle = span - total
    assert compute + exposed_communication + exposed_memory + idle == span and idle >= 0
    return Gpu(
        device=device,
        name=name,
        span_us=us(span),
        busy_us=us(total),
        busy_percent=share_percent(total, span),
        idle_us=us(idle),
        compute_us=us(compute),
        exposed_communication_us=us(exposed_communication),
        exposed_memory_us=us(exposed_memory),
    )


# How busy was each device in each profiled step, why did it idle there, and what bounds the step?


class DeviceInStep(msgspec.Struct, frozen=True):
    """One device inside the window of a step: compute + exposed communication + exposed memory + idle = wall, and
    `idle` sums to `idle_us`. Before its first and after its last GPU event a device idles, too."""

    device: int
    busy_us: float
    busy_percent: float | None
    compute_us: float
    exposed_communication_us: float
    exposed_memory_us: float
    idle_us: float
    idle: IdleCauses


class StepUtilization(msgspec.Struct, frozen=True):
    """`step` is None for the one window of a trace without steps: from the first GPU event to the end of the last.

    Launches count where their call begins.
    """

    step: str | None
    start_us: float
    wall_us: float
    devices: list[DeviceInStep]
    verdict: Verdict
    launches: int
    launch_call_us: float
    graph_replays: int


@dataclass(frozen=True, eq=False)
class Windows:
    """What one device did in each window, in ns: arrays of one entry (causes: one row) a window."""

    device: int
    wall: Int64s
    compute: Int64s
    communication: Int64s  # exposed
    memory: Int64s  # exposed
    causes: npt.NDArray[np.int64]
    launched: Int64s  # the work that was launched in the window, whenever it ran: columns are of ON_DEVICE

    @property
    def busy(self) -> Int64s:
        return self.compute + self.communication + self.memory


def _windows(profile: Profile, device: int, begins: Int64s, ends: Int64s) -> Windows:
    trace, work = profile.trace, profile.of(gpu_work)
    mine = work.where(work.device == device)
    did = layers(trace, mine)
    compute, communication, memory = (covered_ns(layer, begins, ends) for layer in did)
    causes = causes_in(profile.of(idle_gaps)[device], profile.of(ThreadActivity), begins, ends)
    assert np.array_equal(memory + causes.sum(axis=1), ends - begins)
    return Windows(
        device=device,
        wall=ends - begins,
        compute=compute,
        communication=communication - compute,
        memory=memory - communication,
        causes=causes,
        launched=_launched(trace, mine, begins, ends),
    )


def _launched(trace: Trace, work: GpuWork, begins: Int64s, ends: Int64s) -> Int64s:
    """For each window the time in which any of the GPU events ran that were launched in it, by ON_DEVICE."""
    at = launching(Intervals(begins, ends), trace, trace.launch_of()[work.index])
    total = np.zeros((len(begins), len(ON_DEVICE)), np.int64)
    for same in alike(np.flatnonzero(at >= 0), at):
        compute, communicating, active = (one.total_ns for one in layers(trace, work.where(same)))
        total[at[same[0]]] = compute, active - communicating, communicating - compute
    return total


@dataclass(frozen=True, eq=False)
class Utilization:
    """`steps`, or where there are none the one `window` from the first GPU event to the end of the last. `verdict` is
    over all of them together, `mean` what its device did in the mean one."""

    steps: list[StepUtilization]
    window: StepUtilization | None
    verdict: Verdict
    mean: DeviceInStep

    @property
    def windows(self) -> list[StepUtilization]:
        return self.steps if self.window is None else [self.window]


def utilization(profile: Profile) -> Utilization | None:
    """None without GPU events."""
    trace, work, steps = profile.trace, profile.of(gpu_work), profile.of(step_slices)
    if not len(work.index):
        return None
    if len(steps):
        begins, ends = trace.ts[steps], trace.ts[steps] + trace.dur[steps]
    else:
        begins = trace.ts[work.index].min(keepdims=True)
        ends = (trace.ts[work.index] + trace.dur[work.index]).max(keepdims=True)
    devices = [_windows(profile, device, begins, ends) for device in profile.of(idle_gaps)]
    launches = profile.of(launch_calls)
    names = [trace.names[name] for name in trace.name[steps]] or [None]
    rows = [_row(trace, name, begins, devices, launches, row) for row, name in enumerate(names)]
    every = np.arange(len(begins))
    whole = _verdict(devices, every)
    mean = _device(next(one for one in devices if one.device == whole.device), every)
    if len(steps):
        return Utilization(rows, None, whole, mean)
    return Utilization([], rows[0], whole, mean)


def _row(
    trace: Trace, name: str | None, begins: Int64s, devices: list[Windows], launches: LaunchCalls, row: int
) -> StepUtilization:
    begin, wall = begins[row], devices[0].wall[row]
    made = launches.between(begin, begin + wall)
    return StepUtilization(
        step=name,
        start_us=us(begin - trace.window()[0]),
        wall_us=us(wall),
        devices=[_device(device, np.array([row])) for device in devices],
        verdict=_verdict(devices, np.array([row])),
        launches=made.launches,
        launch_call_us=us(made.time_ns),
        graph_replays=made.replays,
    )


def _verdict(devices: list[Windows], rows: Int64s) -> Verdict:
    device = max(devices, key=lambda one: int(one.busy[rows].sum()))
    return verdict(
        device.device,
        int(device.wall[rows].sum()),
        int(device.busy[rows].sum()),
        int(device.communication[rows].sum()),
        int(device.memory[rows].sum()),
        device.causes[rows].sum(axis=0),
        device.launched[rows].sum(axis=0),
    )


def _device(windows: Windows, rows: Int64s) -> DeviceInStep:
    """In the mean of these windows."""
    count = len(rows)
    busy, wall = int(windows.busy[rows].sum()), int(windows.wall[rows].sum())
    return DeviceInStep(
        device=windows.device,
        busy_us=us(busy) / count,
        busy_percent=share_percent(busy, wall),
        compute_us=us(windows.compute[rows].sum()) / count,
        exposed_communication_us=us(windows.communication[rows].sum()) / count,
        exposed_memory_us=us(windows.memory[rows].sum()) / count,
        idle_us=us(wall - busy) / count,
        idle=idle_causes(windows.causes[rows].sum(axis=0), count),
    )


_GAPS_LISTED = 50  # of each device


class DeviceIdle(msgspec.Struct, frozen=True):
    """Why one device idled inside its span, and how long at a time: causes and bins both sum to `idle_us`."""

    device: int
    idle_us: float
    gaps: int
    causes: IdleCauses
    histogram: list[GapBin]


class GpuUtilization(msgspec.Struct, frozen=True):
    """`verdict` is over all steps, or over `window` where there are none; `mean`: what its device did in the mean one.
    `held_up_of`: what the times of `held_up` are of, "a step". Without GPU events `verdict`, `mean`, `window` and
    `launch_stats` are None and the lists empty. `longest_gaps`: some of each device, longest first."""

    verdict: Verdict | None
    mean: DeviceInStep | None
    held_up: list[HeldUp]
    held_up_of: str
    idle: list[DeviceIdle]
    streams: list[Stream]
    steps: list[StepUtilization]
    window: StepUtilization | None
    longest_gaps: list[IdleGap]
    launch_stats: LaunchStats | None


def gpu_utilization(profile: Profile) -> GpuUtilization:
    """All that is known of GPU time but kernels."""
    used = profile.of(utilization)
    inside = {device: gaps.inner() for device, gaps in profile.of(idle_gaps).items()}
    longest = [
        gap for device, gaps in inside.items() for gap in longest_gaps(profile, device, gaps, _GAPS_LISTED)
    ]
    steps = used.steps if used else []
    return GpuUtilization(
        verdict=used.verdict if used else None,
        mean=used.mean if used else None,
        held_up=profile.of(held_up),
        held_up_of=profile.of(idle_of),
        idle=[_idle(profile, device, gaps) for device, gaps in inside.items()],
        streams=profile.of(streams),
        steps=steps,
        window=used.window if used else None,
        longest_gaps=sorted(longest, key=lambda gap: -gap.idle_us),
        launch_stats=profile.of(launch_stats),
    )


def _idle(profile: Profile, device: int, gaps: Gaps) -> DeviceIdle:
    idle = int((gaps.ends - gaps.starts).sum())
    causes = causes_of(gaps, profile.of(ThreadActivity)).sum(axis=0)
    assert int(causes.sum()) == idle
    return DeviceIdle(
        device=device,
        idle_us=us(idle),
        gaps=len(gaps),
        causes=idle_causes(causes),
        histogram=gap_histogram(gaps),
    )
