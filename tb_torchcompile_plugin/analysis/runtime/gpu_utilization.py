"""Show how busy each GPU was, with what, why it idled, and what bounds a step: what `report --json` prints.

The wall time of a step, seen from its busiest device, has six parts that sum to it; the largest is the verdict.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import IdleGap, IdleReason, idle_culprits, longest_gaps
from tb_torchcompile_plugin.analysis.runtime.step_picture import time_base
from tb_torchcompile_plugin.profile import steps as profile_steps
from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Intervals,
    covered_ns,
    groups_of_equal,
    mask_of,
    share_percent,
    us,
)
from tb_torchcompile_plugin.profile.gpu.idle import HOST_KINDS, ThreadActivity, causes_in, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, device_names, gpu_work, layers
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.slices import is_replay

Bound = Literal["compute", "copy", "communication", "input", "compile", "launch"]
WORK = 3  # kinds of work of a device: compute, exposed communication, exposed memory
_COMMUNICATION, _INPUT, _COMPILE = (
    HOST_KINDS.index(kind) for kind in ("waiting_for_ranks", "data_loading", "compiling")
)
_MAX_GAPS = 50  # listed of each device


class Verdict(msgspec.Struct, frozen=True):
    """What bounds a step on the clock that limits it: the largest of six parts that sum to it.

    compute, copy, communication: the device works, "communication" also where the host waits for it. input, compile,
    launch: it idles while the host loads data, compiles, or for another reason.
    """

    bound: Bound
    share_percent: float | None  # of the step; None of a window that takes no time
    device: int  # the one that is busy longest
    communication_us: float


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
    """One stream of a device; streams of one device may work at the same time."""

    stream: int | None  # None where the trace has none
    device: int
    events: Annotated[int, column_head("Kernels and copies", total=True)]
    busy_us: float
    busy_percent: Annotated[float | None, column_head("Busy")]  # of the device's `span_us`


class DeviceInStep(msgspec.Struct, frozen=True):
    """One device in the window of a step. It also idles outside its GPU events."""

    device: int
    busy_us: float
    busy_percent: float | None
    idle_us: float


class LaunchStats(msgspec.Struct, frozen=True):
    """The launches of one span. Medians are None where there was no such launch."""

    launches: int
    launches_per_step: float | None
    call_median_us: Annotated[float, column_head("Time in a launch call, median")]
    idle_launches: Annotated[int, column_head("Launches on an idle stream")]  # idle at the start of the call
    # Of these, from the start of the call to the start of the kernel.
    latency_median_us: Annotated[float | None, column_head("Launch latency, median")]
    latency_p95_us: Annotated[float | None, column_head("Launch latency, 95th percentile")]
    queued_launches: Annotated[int, column_head("Launches on a busy stream")]
    queue_wait_median_us: Annotated[float | None, column_head("Time in the queue, median")]
    queue_wait_p95_us: Annotated[float | None, column_head("Time in the queue, 95th percentile")]
    # Without replays.
    short_events: Annotated[int, column_head("Kernels and copies shorter than their launch call")]
    short_percent: Annotated[float | None, column_head("Share of all kernels and copies")]


class GpuUtilization(msgspec.Struct, frozen=True):
    """GPU time without kernels. Without GPU events, structs are None and lists empty."""

    verdict: Verdict | None  # over the steady steps, or over `window` where there are none
    mean: DeviceInStep | None  # what the verdict's device does in the step whose length is the step time
    # Of devices that idle for at least 2 % of a step.
    idle_reasons: Annotated[list[IdleReason], column_head("Why the GPU was idle")]
    idle_reasons_of: str  # what the times of `idle_reasons` are of: "a step"
    longest_gaps: list[IdleGap]  # of each device some, longest first
    streams: list[Stream]
    launch_stats: Annotated[LaunchStats | None, column_head("Launch statistics")]


class Utilization(NamedTuple):
    """What holds over all steady steps, or over the one window of a trace without steps."""

    verdict: Verdict
    means: list[DeviceInStep]  # what each device does in the step whose length is the step time

    @property
    def mean(self) -> DeviceInStep:
        """What the verdict's device does in that step."""
        return next(row for row in self.means if row.device == self.verdict.device)


def gpu_utilization(profile: Profile) -> GpuUtilization:
    """Return what is known of GPU time except kernels."""
    used = profile.of(utilization)
    gaps = [
        gap
        for device, all_gaps in profile.of(idle_gaps).items()
        for gap in longest_gaps(profile, device, all_gaps.inner(), _MAX_GAPS)
    ]
    return GpuUtilization(
        verdict=used.verdict if used else None,
        mean=used.mean if used else None,
        idle_reasons=profile.of(idle_culprits),
        idle_reasons_of=profile.of(time_base),
        longest_gaps=sorted(gaps, key=lambda gap: -gap.idle_us),
        streams=sorted(_streams(profile), key=lambda row: (row.device, -row.busy_us)),
        launch_stats=profile.of(launch_stats),
    )


def _streams(profile: Profile) -> Iterator[Stream]:
    trace, work = profile.trace, profile.of(gpu_work)
    for device in np.unique(work.device):
        index = work.index[work.device == device]
        span = int((trace.ts[index] + trace.dur[index]).max() - trace.ts[index].min())
        for same in groups_of_equal(index, trace.stream):
            stream, total = int(trace.stream[same[0]]), busy(trace, same).total_ns
            number = stream if stream >= 0 else None
            yield Stream(number, int(device), len(same), us(total), share_percent(total, span))


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


def step_parts(profile: Profile) -> dict[int, Int64s]:
    """Return what each device did in each step; see `device_parts`."""
    return device_parts(profile, profile.of(profile_steps.bottleneck_windows))


def device_parts(profile: Profile, windows: Intervals) -> dict[int, Int64s]:
    """Return how long (ns) each device did what (row) in each window (column): `WORK`, then idle by cause.

    The parts of a device sum to the windows.
    """
    work, device_ns = profile.of(gpu_work), dict[int, Int64s]()
    for device, gaps in profile.of(idle_gaps).items():
        on_device = layers(profile.trace, work.where(work.device == device))
        reach = [covered_ns(layer, *windows) for layer in on_device]
        causes = causes_in(gaps, profile.of(ThreadActivity), *windows).T
        parts = device_ns[device] = np.concatenate([np.diff(reach, axis=0, prepend=0), causes])
        assert np.array_equal(parts.sum(axis=0), windows.ends - windows.starts)
    return device_ns


def utilization(profile: Profile) -> Utilization | None:
    """Return what each device did in a step, and the verdict; None without GPU events, or a step that has all."""
    if not profile.of(idle_gaps):
        return None
    if steady := profile.of(profile_steps.steady_steps):
        parts, overhead_us = profile.of(step_parts), profile.of(profile_steps.step_time).overhead_us
        counted = steady.rows
    else:
        parts, overhead_us = device_parts(profile, profile.of(profile_steps.span_window)), 0.0
        counted = np.arange(1)
    total = {
        device: _unprofiled(ns[:, counted].sum(axis=1), round(1000 * overhead_us * len(counted)))
        for device, ns in parts.items()
    }
    means = [
        DeviceInStep(
            device=device,
            busy_us=us(ns[:WORK].sum()) / len(counted),
            busy_percent=share_percent(ns[:WORK].sum(), ns.sum()),
            idle_us=us(ns[WORK:].sum()) / len(counted),
        )
        for device, ns in total.items()
    ]
    return Utilization(step_verdict(total), means)


def _unprofiled(parts: Int64s, overhead_ns: int) -> Int64s:
    """Return the parts without so much profiling, which makes a device idle longer: its work takes as long."""
    idle = parts[WORK:]
    total = int(idle.sum())
    left = max(total - overhead_ns, 0)  # in whole ns that sum to it
    edges = np.round(np.cumsum(idle) * (left / total if total else 0.0)).astype(np.int64)
    return np.concatenate([parts[:WORK], np.diff(edges, prepend=0)])


def step_verdict(parts: Mapping[int, Int64s]) -> Verdict:
    """Return the verdict by the parts (ns) of the device that is busy longest: of one step, or of several together."""
    device = max(parts, key=lambda device: int(parts[device][:WORK].sum()))
    (compute, communication, memory), idle = parts[device][:WORK], parts[device][WORK:]
    by_bound: dict[Bound, int] = {
        "compute": compute,
        "copy": memory,
        "communication": communication + idle[_COMMUNICATION],
        "input": idle[_INPUT],
        "compile": idle[_COMPILE],
    }
    wall = parts[device].sum()
    by_bound["launch"] = wall - sum(by_bound.values())
    bound = max(by_bound, key=lambda name: by_bound[name])
    share = share_percent(by_bound[bound], wall)
    return Verdict(bound, share, device, communication_us=us(by_bound["communication"]))


def launch_stats(profile: Profile) -> LaunchStats | None:
    """Return the launches of a span; None without GPU events."""
    trace, work, launches = profile.trace, profile.of(gpu_work), profile.of(launch_calls)
    if not len(work.index):
        return None
    steps = profile.of(profile_steps.StepWindows)
    windows = zip(steps.starts.tolist(), steps.ends.tolist())
    in_steps = sum(launches.between(begin, end).launches for begin, end in windows)
    wait = trace.ts[launches.event] - launches.start
    latency, queued = wait[launches.idle], wait[~launches.idle]
    launch = trace.launch_of()[work.index]
    compared = np.flatnonzero((launch >= 0) & ~mask_of(trace.names, is_replay)[trace.name[launch]])
    short = int((trace.dur[work.index[compared]] < trace.dur[launch[compared]]).sum())
    return LaunchStats(
        launches=len(launches.call),
        launches_per_step=in_steps / len(steps) if len(steps) else None,
        call_median_us=percentile_us(launches.dur) or 0.0,
        idle_launches=len(latency),
        latency_median_us=percentile_us(latency),
        latency_p95_us=percentile_us(latency, 95),
        queued_launches=len(queued),
        queue_wait_median_us=percentile_us(queued),
        queue_wait_p95_us=percentile_us(queued, 95),
        short_events=short,
        short_percent=share_percent(short, len(compared)),
    )


def percentile_us(ns: Int64s, percent: int = 50) -> float | None:
    """Return a percentile of times, by default the median, in µs; None without any."""
    return float(np.percentile(ns, percent)) / 1000 if len(ns) else None
