"""How busy was each device in each profiled step, why did it idle there, and what bounds the step?"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.gpu_utilization.idle import IdleCauses, idle_causes
from tb_torchcompile_plugin.analysis.gpu_utilization.verdicts import ON_DEVICE, Verdict, verdict
from tb_torchcompile_plugin.profile.columns import alike
from tb_torchcompile_plugin.profile.gpu.idle import causes_in, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import LaunchCalls, launch_calls
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, gpu_work, layers
from tb_torchcompile_plugin.profile.host.thread_activity import ThreadActivity
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import launching, step_slices
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.trace.kineto import Trace


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
